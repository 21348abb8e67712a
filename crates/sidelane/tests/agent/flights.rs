//! Tests of the agent's flight recorders. A recorder writes when a service misses its objective, and is in status and
//! metrics. A reload that does not change a recorder's settings leaves it alone. Recorders end with the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use sidelane_lab::bench::workload::RealServer;
use sidelane_lab::programs::LabBinary;

use crate::common::agent::SIDELANE;
use crate::common::collector::{Collector, length_ns, root_of_whole_trace};
use crate::common::process::{scheduling_class, threads_named};
use crate::common::redis::{PLACE, RATE_PER_S, traceable_redis};
use crate::common::{Footprint, Turn, can_observe_requests, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::service::Program;

const SECONDS: f64 = 1.0;
/// Number of the ordinary scheduling class (SCHED_OTHER) in the kernel.
const ORDINARY: &str = "0";

/// Real server with an objective that no request meets.
struct Scene {
    server: RealServer,
    lab: LabBinary,
    dir: tempfile::TempDir,
    collector: Collector,
    _turn: Turn,
}

impl Scene {
    fn start() -> Option<Self> {
        let (turn, lab, server) = traceable_redis()?;
        Some(Self { server, lab, dir: tempfile::tempdir().unwrap(), collector: Collector::start(), _turn: turn })
    }

    fn file(&self) -> File {
        let service = format!("port = {}\nslo = \"p50=1ns\"", self.server.address().port());
        let (dir, url) = (self.dir.path().display(), &self.collector.url);
        let trace = format!("[trace]\ndir = \"{dir}\"\nkeep = \"5s\"\notlp = \"{url}\"");
        File::with_holmes_policy().with_service(&service).with_batch("/nobody").with_lines(&trace)
    }

    /// Waits until the recorder records, and returns its threads.
    fn wait_for_recorder_threads(&self, daemon: &mut Daemon) -> Vec<u32> {
        daemon.run.wait_until("it recorded", |_| status()["flight_recorders"][0]["state"] == "records");
        threads_named(daemon.run.pid(), "sidelane-flight")
    }

    fn send_load(&self) {
        self.server.run_load(&self.lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    }

    fn recorded_files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
    }
}

fn must_be_readable(log: &Path) {
    let report = Command::new(SIDELANE).arg("report").arg(log).output().unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
}

#[test]
fn broken_objective_is_recorded_and_reported() {
    let Some(scene) = Scene::start() else { return };
    let before = Footprint::capture();
    let mut daemon = Daemon::start(&scene.file(), 1, 0);
    let threads = scene.wait_for_recorder_threads(&mut daemon);
    assert_eq!(threads.iter().filter_map(|tid| scheduling_class(*tid)).collect::<Vec<_>>(), [ORDINARY]);
    scene.send_load();
    daemon.run.wait_until("a recording was written", |_| status()["flight_recorders"][0]["recordings"] == 1);
    let told = status()["flight_recorders"][0].clone();
    assert_eq!((&told["service"], &told["slo"]), (&"the service".into(), &"p50=1ns".into()), "{told}");
    let (logs, pages) = (scene.recorded_files("log"), scene.recorded_files("html"));
    assert_eq!((logs.len(), pages.len()), (1, 1));
    assert_eq!(told["last"], pages[0].display().to_string());
    must_be_readable(&logs[0]);
    let ended = daemon.end();
    let said = ended.audit().into_iter().filter(|line| line["action"] == "trace");
    let said: Vec<String> = said.filter_map(|line| Some(line["why"].as_str()?.to_owned())).collect();
    let written = format!("the service: written to {} and {}", pages[0].display(), logs[0].display());
    assert!(said.contains(&written), "no `{written}` in {said:#?}");
    assert!(said.iter().any(|line| line.contains("requests were beyond p50=1ns")), "{said:#?}");
    assert!(said.iter().any(|line| line.starts_with("the service: exported ")), "{said:#?}");
    let traces = scene.collector.take_traces();
    assert!(!traces.is_empty());
    traces.values().for_each(|spans| assert!(length_ns(root_of_whole_trace(spans)) > 0));
    before.wait_until_restored();
}

#[test]
fn reload_leaves_an_unchanged_recorder_running() {
    let Some(scene) = Scene::start() else { return };
    let before = Footprint::capture();
    let mut daemon = Daemon::start(&scene.file(), 1, 0);
    let first = scene.wait_for_recorder_threads(&mut daemon);
    daemon.reload(&scene.file().with_lines("[intervals]\nlook = \"20ms\""));
    daemon.run.wait_until_audited("reload", 0);
    assert_eq!(scene.wait_for_recorder_threads(&mut daemon), first);
    daemon.reload(&scene.file().replace("keep = \"5s\"", "keep = \"6s\""));
    wait_until("it was another one", || {
        let now = threads_named(daemon.run.pid(), "sidelane-flight");
        now.len() == 1 && now != first
    });
    scene.wait_for_recorder_threads(&mut daemon);
    daemon.run.kill();
    before.wait_until_restored();
}

#[test]
fn recorder_waits_for_a_service_that_does_not_listen_yet() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let program = Program::new();
    let service = program.start("0");
    let dir = tempfile::tempdir().unwrap();
    let table = format!("{}\nslo = \"p99=5ms\"", program.service_match_line());
    let file = File::with_holmes_policy().with_service(&table).with_batch("/nobody");
    let daemon = Daemon::start(&file.with_lines(&format!("[trace]\ndir = \"{}\"", dir.path().display())), 1, 0);
    wait_until("it was told of", || status()["flight_recorders"][0]["state"] == "begins");
    daemon.end();
    service.must_be_untouched();
}

#[test]
fn an_agent_without_the_directory_for_recordings_is_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let file = File::with_holmes_policy().with_service("port = 1\nslo = \"p99=5ms\"").with_batch("/nobody");
    let file = file.with_lines("[trace]\ndir = \"/nonexistent\"");
    let refused =
        Daemon::launch(&file, crate::common::Run::with_arguments(&[])).run.wait_for_end().expect_exit_code(125);
    refused.expect_stderr_contains(&[
        "trace.dir is /nonexistent, but there is no such directory; make it, or name another",
    ]);
}
