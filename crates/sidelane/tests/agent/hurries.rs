//! Tests of the agent's moves of long requests to big cores. The service's threads are bound, and are in status and
//! metrics. A reload that does not change `[hurry]` leaves the threads alone. After any kind of end the threads have
//! their CPUs back.
//!
//! On machines without big and little cores the tests declare CPU 0 to be big.

use std::path::Path;

use serde_json::{Value, json};
use sidelane_host::cores::Cores;
use sidelane_host::topology::Topology;

use crate::common::busy::{BIG, CLIENTS, LITTLE};
use crate::common::process::{scheduling_class, threads_named};
use crate::common::scripted::unused_address;
use crate::common::{Busy, Footprint, Run, can_observe_requests, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::metrics::http_get;
use crate::service::Program;

const THREAD: &str = "sidelane-hurry";
/// Number of SCHED_FIFO in the kernel.
const FIFO: &str = "1";

fn start_service() -> Option<Busy> {
    Busy::start("thread-per-connection", None)
}

/// Creates the agent's file with the service, without `[hurry]`.
fn agent_file_with_service(busy: &Busy) -> File {
    File::with_holmes_policy().with_service(&format!("port = {}", busy.address.port())).with_batch("/nobody")
}

fn hurry_table(more: &str) -> String {
    format!("[hurry]\nservices = [\"the service\"]\nbig = \"{BIG}\"\nlittle = \"{LITTLE}\"\n{more}")
}

/// Starts the agent, and waits until the service's threads are bound.
fn start_and_wait_for_binding(busy: &Busy, file: &File) -> Daemon {
    let mut daemon = Daemon::start(file, 1, 0);
    daemon.run.wait_until("each worker was bound", |_| busy.bound_thread_count() >= CLIENTS);
    daemon
}

fn mapper_status() -> Value {
    status()["mappers"][0].clone()
}

fn notes() -> Vec<String> {
    let notes = status()["notes"].as_array().cloned().unwrap_or_default();
    notes.iter().filter_map(|note| Some(note["note"].as_str()?.to_owned())).collect()
}

#[test]
fn long_requests_move_and_threads_get_their_cpus_back() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = start_service() else { return };
    let (cpus, before, metrics) = (busy.cpus_by_thread(), Footprint::capture(), unused_address());
    let more = format!("threshold = \"1ms\"\nlog = \"{}\"", busy.file("").display());
    let file = agent_file_with_service(&busy)
        .with_lines(&hurry_table(&more))
        .with_lines(&format!("[metrics]\nlisten = \"{metrics}\""));
    let mut daemon = start_and_wait_for_binding(&busy, &file);
    daemon.run.wait_until("the status told of all workers, and of a request that moved", |_| {
        mapper_status()["threads"] == CLIENTS && mapper_status()["moved"].as_u64() > Some(0)
    });
    let told = mapper_status();
    let expected = json!({
        "service": "the service",
        "state": "maps",
        "sizes": format!("big CPUs {BIG} and little CPUs {LITTLE} (given)"),
        "threads": CLIENTS,
        "refused": 0,
        "threshold_ns": 1_000_000,
        "threshold_from": "given",
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(told[key], *value, "{key} in {told}");
    }
    assert!(told["requests"].as_u64() >= told["moved"].as_u64() && told["own_cpu_percent"].is_number(), "{told}");
    let threads = threads_named(daemon.run.pid(), THREAD);
    assert_eq!(threads.iter().filter_map(|tid| scheduling_class(*tid)).collect::<Vec<_>>(), [FIFO]);
    let answer = http_get(metrics.port(), "/metrics");
    for line in [
        "sidelane_hurry_requests_moved_total{service=\"the service\"} ",
        "sidelane_hurry_moves_refused_total{service=\"the service\"} 0",
        &format!("sidelane_hurry_threads{{service=\"the service\"}} {CLIENTS}"),
        "sidelane_hurry_threshold_seconds{service=\"the service\"} 0.001",
    ] {
        assert!(answer.contains(line), "no {line} in {answer}");
    }
    let ended = daemon.end();
    assert_eq!(busy.cpus_by_thread(), cpus);
    let said = ended.audit().into_iter().filter(|line| line["action"] == "hurry");
    let said: Vec<String> = said.filter_map(|line| Some(line["why"].as_str()?.to_owned())).collect();
    let first = format!("the service: its threads are mapped to big CPUs {BIG} and little CPUs {LITTLE} (given)");
    assert_eq!(said[0], first);
    assert!(said[1].starts_with("the service: its threads have their CPUs back; "), "{said:?}");
    let moves = std::fs::read_to_string(busy.file("sidelane-hurry-the-service.jsonl")).unwrap();
    assert!(moves.contains("long requests moved to big cores"), "{moves}");
    before.wait_until_restored();
}

#[test]
fn a_killed_agent_gives_threads_their_cpus_back() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = start_service() else { return };
    let (cpus, before) = (busy.cpus_by_thread(), Footprint::capture());
    let file = agent_file_with_service(&busy).with_lines(&hurry_table(""));
    let mut daemon = start_and_wait_for_binding(&busy, &file);
    daemon.run.kill();
    wait_until("each thread had the CPUs that it had", || busy.cpus_by_thread() == cpus);
    before.wait_until_restored();
}

#[test]
fn reload_restarts_or_ends_only_a_changed_mapper() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = start_service() else { return };
    let cpus = busy.cpus_by_thread();
    let file = agent_file_with_service(&busy);
    let mut daemon = start_and_wait_for_binding(&busy, &file.clone().with_lines(&hurry_table("")));
    let pid = daemon.run.pid();
    let first = threads_named(pid, THREAD);
    daemon.reload(&file.clone().with_lines(&hurry_table("")).with_lines("[intervals]\nlook = \"20ms\""));
    daemon.run.wait_until_audited("reload", 0);
    assert_eq!(
        (threads_named(pid, THREAD), mapper_status()["threshold_from"].as_str()),
        (first.clone(), Some("learnt"))
    );
    daemon.reload(&file.clone().with_lines(&hurry_table("threshold = \"2ms\"")));
    daemon.run.wait_until("another one mapped", |_| {
        mapper_status()["state"] == "maps"
            && mapper_status()["threshold_from"] == "given"
            && busy.bound_thread_count() >= CLIENTS
    });
    assert!(threads_named(pid, THREAD).iter().all(|tid| !first.contains(tid)));
    assert!(notes().iter().all(|note| !note.contains("do not move")), "{:?}", notes());
    daemon.reload(&file);
    wait_until("each thread had its CPUs back", || busy.cpus_by_thread() == cpus);
    daemon.run.wait_until("it was told of no more", |_| status()["mappers"] == Value::Array(vec![]));
    assert_eq!(status()["services"][0]["name"], "the service");
    daemon.end();
    assert_eq!(busy.cpus_by_thread(), cpus);
}

#[test]
fn agent_continues_when_a_mapped_service_ends() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(service) = start_service() else { return };
    let mut daemon =
        start_and_wait_for_binding(&service, &agent_file_with_service(&service).with_lines(&hurry_table("")));
    drop(service);
    daemon.wait_for_managed_counts(0, 0);
    daemon.run.wait_until("its mapper had ended", |run| threads_named(run.pid(), THREAD).is_empty());
    assert_eq!(status()["mappers"], Value::Array(vec![]));
    daemon.end();
}

#[test]
fn refused_mapper_starts_at_a_reload_once_the_other_ended() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = start_service() else { return };
    let arguments = ["hurry", "--service", &busy.target(), "--big", BIG, "--little", LITTLE];
    let mut other = Run::with_arguments(&arguments).start_without_batch();
    other.wait_until("it maps", |run| run.errors().contains("mapping threads"));
    let file = agent_file_with_service(&busy).with_lines(&hurry_table(""));
    let mut daemon = Daemon::start(&file, 1, 0);
    let note = format!(
        "long requests of service the service do not move to big cores: cannot move threads of process {}: another \
         sidelane (process {}) moves them already; end that sidelane, or wait for its end; run `sidelane hurry` for \
         this service, then send the agent SIGHUP",
        busy.pid(),
        other.pid()
    );
    daemon.run.wait_until("it was told of", |_| notes().contains(&note));
    assert_eq!(mapper_status()["state"], "ended");
    other.signal(libc::SIGINT);
    other.wait_for_end().expect_exit_code(0);
    daemon.reload(&file);
    daemon.run.wait_until("it mapped", |_| mapper_status()["state"] == "maps");
    assert!(!notes().contains(&note));
    daemon.end();
}

#[test]
fn a_service_that_listens_nowhere_is_waited_for() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let program = Program::new();
    let service = program.start("0-1");
    let file = File::with_holmes_policy()
        .with_service(&program.service_match_line())
        .with_batch("/nobody")
        .with_lines(&hurry_table(""));
    let mut daemon = Daemon::start(&file, 1, 0);
    daemon.run.wait_until("it was told of", |_| mapper_status()["state"] == "begins");
    assert_eq!(mapper_status().get("threads"), None, "nothing was counted");
    daemon.end();
    service.must_be_untouched();
}

#[test]
fn dry_run_binds_no_thread() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = start_service() else { return };
    let cpus = busy.cpus_by_thread();
    let file = agent_file_with_service(&busy).with_lines(&hurry_table(""));
    let mut daemon = Daemon::launch(&file, Run::with_arguments(&["agent", "--dry-run"]));
    daemon.run.wait_until_audited("came", 0);
    daemon.reload(&file);
    daemon.run.wait_until_audited("reload", 0);
    assert_eq!((threads_named(daemon.run.pid(), THREAD), busy.cpus_by_thread()), (vec![], cpus));
    daemon.end();
}

#[test]
fn agent_with_equal_cores_notes_it_and_continues() {
    let Some(_turn) = lock_lanes() else { return };
    if Cores::find(Path::new("/sys")).is_ok() {
        return sidelane_testing::skip("needs a machine whose cores are equal".to_owned());
    }
    let Some(busy) = start_service() else { return };
    let cpus = busy.cpus_by_thread();
    let daemon =
        Daemon::start(&agent_file_with_service(&busy).with_lines("[hurry]\nservices = [\"the service\"]"), 1, 0);
    let notes = notes();
    let is_it = |note: &String| {
        note.starts_with("no request moves to a big core: all cores are equal (")
            && note.ends_with("or siblings = true if cores have several lanes; or leave [hurry] out")
    };
    assert_eq!(notes.iter().filter(|note| is_it(note)).count(), 1, "{notes:?}");
    assert_eq!((status()["mappers"].clone(), busy.cpus_by_thread()), (Value::Array(vec![]), cpus));
    daemon.end();
}

/// The agent's file declares the SMT siblings, since the machine may have none.
#[test]
fn long_requests_move_to_lanes_with_idle_siblings() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = start_service() else { return };
    let cpus = busy.cpus_by_thread();
    let file = agent_file_with_service(&busy)
        .with_lines("[hurry]\nservices = [\"the service\"]\nsiblings = true\nthreshold = \"1ms\"");
    let mut daemon = start_and_wait_for_binding(&busy, &file);
    daemon.run.wait_until("the status told that it maps", |_| mapper_status()["state"] == "maps");
    assert_eq!(mapper_status()["sizes"], "lanes of the cores {0-1}; a lane is big while its siblings are idle");
    daemon.end();
    assert_eq!(busy.cpus_by_thread(), cpus);
    if Topology::read(Path::new("/sys")).unwrap().has_smt() {
        return sidelane_testing::skip("needs a machine whose cores have one lane each".to_owned());
    }
    let daemon = Daemon::start(&file.replace("siblings = [\"0,1\"]", ""), 1, 0);
    let note = "no request moves to a big core: no core of this machine has several lanes; leave siblings out of \
                [hurry], or name CPUs of one core in [policy], as in siblings = [\"0,4\", \"1,5\"]";
    let notes = notes();
    assert!(notes.iter().any(|found| found == note), "{notes:?}");
    assert_eq!((status()["mappers"].clone(), busy.cpus_by_thread()), (Value::Array(vec![]), cpus));
    daemon.end();
}

#[test]
fn missing_log_directory_or_cpus_of_hurry_are_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let file =
        File::with_absent_targets().with_lines(&hurry_table("log = \"/nonexistent\"").replace("\"1\"", "\"7000\""));
    let refused = Daemon::launch(&file, Run::with_arguments(&[])).run.wait_for_end().expect_exit_code(125);
    refused.expect_stderr_contains(&[
        "hurry.little names CPUs 7000, but this machine has CPUs 0-",
        "hurry.log is /nonexistent, but there is no such directory; make it, or name another",
    ]);
}
