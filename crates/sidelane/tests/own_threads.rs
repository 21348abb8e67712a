//! Tests that threads of Sidelane keep off the CPUs of the services that a verb observes, and that bulk work is in
//! SCHED_IDLE.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::agent::SIDELANE;
use common::lanes::REQUEST_LANE;
use common::process::{allowed_cpus, scheduling_class, set_process_affinity, threads_named};
use common::redis::{PLACE, RATE_PER_S, traceable_redis};
use common::{Run, Service, UNTIL_END_OF_INPUT, lock_lanes, process, wait_until};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::threads;

const SECONDS: f64 = 1.0;
const SCHED_IDLE: &str = "5";

/// Running process of a verb that observes.
struct RunningVerb {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl RunningVerb {
    fn start_without_waiting(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        Self { said: BufReader::new(child.stderr.take().expect("a pipe")), child }
    }

    /// Starts the verb, and waits until it reports that it observes.
    fn start(command: &mut Command) -> Self {
        let mut looking = Self::start_without_waiting(command);
        looking.wait_for_stderr("Ctrl-C ends it");
        looking
    }

    fn wait_for_stderr(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it ended before it said `{words}`");
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGINT, as Ctrl-C does, waits for the end, and returns the standard output.
    fn stop(mut self) -> String {
        process::signal(self.pid(), libc::SIGINT);
        let (mut told, mut errors) = (String::new(), String::new());
        self.child.stdout.take().expect("a pipe").read_to_string(&mut told).unwrap();
        self.said.read_to_string(&mut errors).unwrap();
        assert!(self.child.wait().unwrap().success(), "{errors}");
        // The output is returned without line breaks, which depend on the width.
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for RunningVerb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn verb(arguments: &[&str]) -> Command {
    let mut command = Command::new(SIDELANE);
    command.args(arguments);
    command
}

fn cpus_of(tid: u32) -> Option<CpuSet> {
    allowed_cpus(tid)?.parse().ok()
}

/// Returns the names of threads that may run on this CPU, except those that begin with a name in `exceptions`.
fn threads_on(pid: u32, cpu: u32, exceptions: &[&str]) -> Vec<String> {
    let is_there = |tid: &u32| cpus_of(*tid).is_some_and(|cpus| cpus.contains(cpu));
    let named = |tid: u32| process_name(pid, tid).unwrap_or_default();
    let names = threads(pid).into_iter().filter(is_there).map(named);
    names.filter(|name| !exceptions.iter().any(|but| name.starts_with(but))).collect()
}

fn process_name(pid: u32, tid: u32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?.trim_end().to_owned())
}

/// Checks repeatedly during `work` that no thread of a process may run on this CPU, except those with names in
/// `exceptions`.
fn check_never_allowed_on(pid: u32, cpu: u32, exceptions: &[&str], work: impl FnOnce()) {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while !ends.load(Ordering::Relaxed) || looks == 0 {
                assert_eq!(threads_on(pid, cpu, exceptions), Vec::<String>::new(), "on CPU {cpu}");
                looks += 1;
            }
        });
        work();
        ends.store(true, Ordering::Relaxed);
        looks.join().expect("no thread is on the service's CPU");
    });
}

#[test]
fn observing_verbs_run_no_thread_on_the_service_cpu() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (service, records) = (format!("pid:{}", server.pid()), dir.path().to_str().unwrap().to_owned());
    let log = dir.path().join("log").to_str().unwrap().to_owned();
    for arguments in [
        &["trace", "--slo", "1ns", "--for", "100s", "--log", &log][..],
        &["trace", "--slo", "1ns", "--record", &records],
        &["requests", "--for", "100s"],
        &["observe", "--for", "100s", "--log", &log],
    ] {
        let looking = RunningVerb::start(verb(arguments).args(["--service", &service]));
        let load = || drop(server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap());
        check_never_allowed_on(looking.pid(), PLACE.server_cpu, &[], load);
        looking.stop();
    }
}

/// Returns whether a process has begun to load a program into the kernel.
fn has_begun_bpf_load(pid: u32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file.to_string_lossy().contains("bpf"))
}

#[test]
fn verbs_leave_the_services_cpu_before_loading_bpf_programs() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (service, file) = (format!("pid:{}", server.pid()), dir.path().join("agent.toml"));
    let rule = format!("[[service]]\nname = \"redis\"\nport = {}\n", server.address().port());
    std::fs::write(&file, rule + "[[batch]]\ncgroup = \"/nobody\"\n").unwrap();
    let (lanes, batch) = (["--lanes", "0:1", "--service", &service], ["--", "sleep", "1000"]);
    for arguments in [
        [&["run"], &lanes[..], &batch].concat(),
        [&["compare"], &lanes[..], &batch].concat(),
        vec!["trace", "--service", &service],
        vec!["requests", "--service", &service],
        vec!["hurry", "--big", "0", "--little", "1", "--service", &service],
        vec!["agent", "--config", file.to_str().unwrap()],
    ] {
        let mut looking = RunningVerb::start_without_waiting(&mut verb(&arguments));
        wait_until("a kernel program was loaded", || {
            assert_eq!(looking.child.try_wait().unwrap(), None, "{arguments:?} ended");
            has_begun_bpf_load(looking.pid())
        });
        assert_eq!(threads_on(looking.pid(), PLACE.server_cpu, &[]), Vec::<String>::new(), "{arguments:?}");
        process::signal(looking.pid(), libc::SIGINT);
        looking.child.wait().unwrap();
    }
}

#[test]
fn records_are_analysed_in_sched_idle() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let tracing =
        RunningVerb::start(&mut verb(&["trace", "--for", "100s", "--service", &format!("pid:{}", server.pid())]));
    let policies =
        || -> Vec<_> { threads_named(tracing.pid(), "sidelane-trace").into_iter().map(scheduling_class).collect() };
    wait_until("the analysis thread was in SCHED_IDLE", || policies() == [Some(SCHED_IDLE.to_owned())]);
    server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    assert_eq!(policies(), [Some(SCHED_IDLE.to_owned())], "its class is never raised while records come");
    let told = tracing.stop();
    assert!(told.contains("; this trace delayed "), "{told}");
}

#[test]
fn threads_leave_the_new_cpu_of_a_moved_service() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let tracing =
        RunningVerb::start(&mut verb(&["trace", "--for", "100s", "--service", &format!("pid:{}", server.pid())]));
    set_process_affinity(server.pid(), &PLACE.client_cpu.to_string());
    wait_until("all had left the service's new CPU", || threads_on(tracing.pid(), PLACE.client_cpu, &[]).is_empty());
    tracing.stop();
}

#[test]
fn affinity_given_by_the_user_is_kept_and_noted() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let mut taskset = Command::new("taskset");
    let service = format!("pid:{}", server.pid());
    taskset.args(["-c", "0", SIDELANE, "trace", "--for", "100s", "--service", &service]);
    let tracing = RunningVerb::start(&mut taskset);
    let tids = threads(tracing.pid());
    assert!(tids.len() > 1, "{tids:?}");
    for tid in tids {
        let (cpus, class) = (allowed_cpus(tid), scheduling_class(tid));
        assert_eq!((cpus.as_deref(), class.as_deref()), (Some("0"), Some(SCHED_IDLE)), "thread {tid}");
    }
    server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    let told = tracing.stop();
    let note = "Note: sidelane's own threads ran on CPUs of the service (0) for ";
    assert!(
        told.contains(note)
            && told.contains("sidelane's CPU affinity allows no other CPUs; start sidelane without taskset"),
        "{told}"
    );
}

#[test]
fn a_proxy_that_traces_keeps_its_other_threads_off_the_servers() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let address = server.address().to_string();
    let arguments = ["proxy", "--listen", "127.0.0.1:0", "--active", &address, "--hazard", "none", "--trace"];
    let mut proxy = RunningVerb::start_without_waiting(&mut verb(&arguments));
    proxy.wait_for_stderr("tracing the requests at");
    let load = || drop(server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap());
    // The thread that forwards requests is excepted: users choose its CPUs themselves.
    check_never_allowed_on(proxy.pid(), PLACE.server_cpu, &["sidelane-proxy"], load);
    proxy.stop();
}

#[test]
fn no_thread_of_a_run_but_holders_is_on_a_request_lane() {
    let Some(_turn) = lock_lanes() else { return };
    let (service, cpu) = (Service::start_bursty(), REQUEST_LANE.parse().unwrap());
    let mut run = Run::beside_service(service.target()).start_script(UNTIL_END_OF_INPUT);
    assert_eq!(run.first_line(), "ready");
    let own = [vec![run.pid()], common::agent::guardians()].concat();
    assert!(own.len() > 1, "a guardian is there: {own:?}");
    for pid in own {
        // If all CPUs are lanes, the watchdog sleeps on a request lane, because batch that it acts against is on the
        // batch lanes.
        assert_eq!(threads_on(pid, cpu, &["holder-", "watchdog"]), Vec::<String>::new(), "of process {pid}");
    }
    drop(run.input());
    run.wait_for_end().expect_exit_code(0);
}
