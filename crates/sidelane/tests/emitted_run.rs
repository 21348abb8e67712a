//! Tests of `sidelane run` with a budget, beside a service that emits its requests.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use common::c_program::compile;
use common::lanes::Turn;
use common::process::cpu_ticks;
use common::{Finished, Run, Running, SPIN, Service, ServiceOnCommand, Words, lock_lanes, wait_until};
use sidelane_host::procfs::with_descendants;
use sidelane_policy::borrow::{ContentionCost, LaneState};
use sidelane_requests::emitted::Emitters;
use tempfile::TempDir;

/// Runs batch for three seconds beside a worker that emits requests; see `runtime/c/tests/emit_worker.c`.
fn run_beside_worker(worker: &[&str], options: &[&str]) -> Option<Finished> {
    let (_turn, _dir, service) = start_emitting_worker(worker)?;
    let run = Run::beside_service(service.target())
        .with_more_arguments(options)
        .run_to_end(&["timeout", "3", "sh", "-c", SPIN]);
    Some(run.expect_exit_code(124))
}

fn start_emitting_worker(arguments: &[&str]) -> Option<(Turn, TempDir, Service)> {
    start_emitting_program("emit_worker", arguments)
}

fn start_emitting_program(program: &str, arguments: &[&str]) -> Option<(Turn, TempDir, Service)> {
    let turn = lock_lanes()?;
    let dir = tempfile::tempdir().unwrap();
    let program = compile("cc", &["-std=gnu99"], program, dir.path())?;
    let service = Service::of_command(program.to_str().unwrap(), arguments);
    let pids = BTreeSet::from([service.pid()]);
    wait_until("the service emits", || Emitters::find(&pids).is_some());
    Some((turn, dir, service))
}

/// Service that emits `at_once` requests in each turn, and a run of batch beside it; see
/// `runtime/c/tests/emit_turns.c`.
struct Turns {
    _turn: Turn,
    _dir: TempDir,
    service: ServiceOnCommand,
    run: Running,
    lane: Words,
}

impl Turns {
    fn start(requests_at_once: &str, budget: &str) -> Option<Self> {
        Self::start_through(&[], requests_at_once, budget)
    }

    /// Starts the service through another command, which executes the command in its arguments.
    fn start_through(wrapper: &[&str], requests_at_once: &str, budget: &str) -> Option<Self> {
        let turn = lock_lanes()?;
        let dir = tempfile::tempdir().unwrap();
        let program = compile("cc", &["-std=gnu99"], "emit_turns", dir.path())?;
        let words = [wrapper, &[program.to_str().unwrap(), requests_at_once]].concat();
        let service = Service::start_program_on_command(words[0], &words[1..]);
        let emits = || Emitters::find(&with_descendants(&BTreeSet::from([service.pid()]))).is_some();
        wait_until("the service emits", emits);
        let options = ["--policy", "fixed-budget", "--budget", budget];
        let mut run = Run::beside_service(service.target())
            .with_more_arguments(&options)
            .start_script(&format!("echo $$; {SPIN}"));
        run.batch_pid();
        let lane = Words::wait_and_map(&mut run);
        Some(Self { _turn: turn, _dir: dir, service, run, lane })
    }

    /// Waits until batch may run beside the next request, and starts that request.
    #[track_caller]
    fn begin_request(&mut self) {
        let lane = self.lane;
        self.run.wait_until("batch had the lane, lent", |_| lane.has_batch_in_state(LaneState::Lent));
        self.service.work();
    }

    /// Waits until the lane is held beside the request, and then finishes the request. A keeper takes the lane for a
    /// moment at each of its checks, so a turn may end without a hold.
    #[track_caller]
    fn end_request_once_held(&mut self) {
        let lane = self.lane;
        self.run.wait_until("the lane was held", |_| lane.is_kept_free());
        lane.check_no_batch_while_held();
        self.service.rest();
    }

    fn end(self) -> Finished {
        self.run.signal(libc::SIGTERM);
        self.run.wait_for_end().expect_exit_code(128 + libc::SIGTERM)
    }
}

/// Returns the time and the reason of each hold.
fn hold_times_and_reasons(run: &Finished) -> Vec<(u64, String)> {
    let audit = run.audit();
    let holds = audit.iter().filter(|entry| entry["action"] == "hold");
    holds.map(|entry| (entry["at_ns"].as_u64().unwrap(), entry["why"].as_str().unwrap().to_owned())).collect()
}

/// The request lasts until the lane is held, however late; the test checks that a hold is never early.
#[test]
fn batch_runs_beside_an_emitted_request_for_its_budget() {
    const TURNS: usize = 10;
    const BUDGET_NS: u64 = 5_000_000;
    let Some(mut turns) = Turns::start("1", "5ms") else { return };
    let mut began_ns = Vec::new();
    for _ in 0..TURNS {
        turns.begin_request();
        began_ns.push(turns.lane.busy_since_ns());
        turns.end_request_once_held();
    }
    let run = turns.end().expect_stderr_contains(&["delay a request by 5.0 ms", "emitted by the service"]);
    let holds = hold_times_and_reasons(&run);
    assert!(!holds.is_empty(), "{:?}", run.audit());
    for began_ns in began_ns {
        let Some((held_ns, why)) = holds.iter().find(|(at_ns, _)| *at_ns >= began_ns) else { continue };
        assert!(*held_ns >= began_ns + BUDGET_NS, "held after {} ns: {why}", held_ns - began_ns);
        assert_eq!(why, "the request's budget is spent");
    }
    assert!(run.figure("lent_overlap_percent") > 0.0, "{:?}", run.figures());
    assert!((1.0..=TURNS as f64).contains(&run.figure("requests_count")), "{:?}", run.figures());
    assert_eq!(run.result().settings["requests"], "emitted by the service");
}

/// The service's threads have other ids in the container than those that the kernel sees on the lane.
#[test]
fn emitted_request_in_a_container_spends_its_budget() {
    if std::process::Command::new("unshare").arg("--version").output().is_err() {
        return sidelane_testing::skip("needs unshare(1)");
    }
    let container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let Some(mut turns) = Turns::start_through(&container, "1", "5ms") else { return };
    (0..3).for_each(|_| {
        turns.begin_request();
        turns.end_request_once_held();
    });
    let run = turns.end().expect_stderr_contains(&["emitted by the service"]);
    let spent = |(_, why): &(u64, String)| why == "the request's budget is spent";
    assert!(hold_times_and_reasons(&run).iter().any(spent), "{:?}", run.audit());
}

/// In each turn two requests arrive together, and the second waits for the first. The budget is longer than this test,
/// so no hold is due to a spent budget.
#[test]
fn lane_is_held_for_an_emitted_request_that_waited() {
    let Some(mut turns) = Turns::start("2", "3600s") else { return };
    for _ in 0..10 {
        turns.begin_request();
        turns.end_request_once_held();
    }
    let run = turns.end();
    let holds = hold_times_and_reasons(&run);
    assert!(!holds.is_empty(), "{:?}", run.audit());
    assert!(holds.iter().all(|(_, why)| why == "the request that runs had to wait"), "{holds:?}");
}

/// Two requests arrive together, and the second waits for the first. Both are younger than the age limit of 60 s, so
/// batch may run beside both.
#[test]
fn by_age_batch_runs_beside_a_request_that_waited() {
    let Some(run) = run_beside_worker(&["4", "8", "2"], &["--policy", "deadline", "--budget", "60s"]) else { return };
    let run = run.expect_stderr_contains(&["until it is 60.0 s old", "requests were delayed by at most"]);
    let spared = |entry: &serde_json::Value| entry["why"] == "the request that runs had to wait";
    assert!(!run.audit().iter().any(spared), "{run}");
    assert!(run.figure("lent_overlap_percent") > 0.0, "{:?}", run.figures());
    assert!(run.figure("delay_bound_max_us") > 0.0, "{:?}", run.figures());
}

/// Two requests arrive together, each takes 4 ms, and the age limit is 6 ms. The second one becomes too old, because it
/// waits for the first.
#[test]
fn by_age_batch_leaves_a_request_that_is_too_old() {
    let Some(run) = run_beside_worker(&["4", "8", "2"], &["--policy", "deadline", "--budget", "6ms"]) else { return };
    let old = |entry: &serde_json::Value| {
        entry["why"]
            == "the request that runs is too old, or too many wait behind \
                                                           it"
    };
    assert!(run.audit().iter().any(old), "{run}");
}

/// CPU time, in clock ticks, in which the worker handles about 3,000 requests. These suffice to estimate the contention
/// cost, unless other virtual machines vary the times of requests: then the estimate stays at its upper limit.
const ENOUGH_TICKS: u64 = 1_500;

/// The run lasts until enough requests are known to compute the contention cost.
#[test]
fn slo_budget_is_computed_from_emitted_requests() {
    let Some((_turn, _dir, service)) = start_emitting_worker(&["5", "5", "1"]) else { return };
    // The objective is long enough that even a machine with ten other tasks keeps it.
    let mut run = Run::beside_service(service.target())
        .with_more_arguments(&["--policy", "dynamic-refresh", "--slo", "p99=5s"])
        .start_script(&format!("echo $$; {SPIN}"));
    run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    run.wait_until("there was a budget", |_| lane.limits().budget_ns.load(Ordering::Acquire) > 0);
    run.wait_until("there were requests enough to know the contention cost", |_| {
        let known = lane.limits().contention_cost_ppm.load(Ordering::Acquire) < ContentionCost::FULL.ppm();
        known || cpu_ticks(service.pid()) >= ENOUGH_TICKS
    });
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
    assert!(run.figure("budget_ms") > 0.0, "{:?}", run.figures());
    // The co-running of each request is known; otherwise no contention cost could be computed.
    run.expect_stderr_contains(&["from p99=5s", "from server times"]);
}

#[test]
fn emitted_requests_have_precedence_over_sockets() {
    let options = ["--policy", "refresh-budget", "--budget", "2ms"];
    let Some(run) = run_beside_worker(&["5", "5", "1", "listen"], &options) else { return };
    assert_eq!(run.result().settings["requests"], "emitted by the service");
    assert!(run.figure("lent_overlap_percent") > 0.0, "{:?}", run.figures());
}

#[test]
fn batch_continues_if_the_service_ends_during_a_request() {
    let Some((_turn, _dir, service)) = start_emitting_worker(&["300", "100", "1"]) else { return };
    let options = ["--policy", "fixed-budget", "--budget", "5ms"];
    let mut run = Run::beside_service(service.target())
        .with_more_arguments(&options)
        .start_script("echo ready; read go; echo went on");
    run.first_line();
    service.end();
    drop(run.input());
    let run = run.wait_for_end();
    assert!(run.stdout.contains("went on"), "{run}");
}

/// Without a budget the kernel program records no turns, so it is unknown which batch ran beside a request.
#[test]
fn run_without_a_budget_reads_emitted_requests() {
    let Some(run) = run_beside_worker(&["4", "8", "2"], &[]) else { return };
    assert!(!run.stderr.contains("panicked"), "{run}");
}

#[test]
fn nonsensical_emitted_requests_end_no_run_without_budget() {
    let Some((_turn, _dir, service)) = start_emitting_program("emit_nonsense", &[]) else { return };
    let run = Run::beside_service(service.target()).run_to_end(&["timeout", "3", "sh", "-c", SPIN]);
    let run = run.expect_exit_code(124);
    assert!(!run.stderr.contains("panicked"), "{run}");
}

#[test]
fn nonsensical_emitted_requests_do_not_harm_batch() {
    let Some((_turn, _dir, service)) = start_emitting_program("emit_nonsense", &[]) else { return };
    let options = ["--policy", "dynamic-refresh", "--slo", "p99=50ms"];
    let run = Run::beside_service(service.target())
        .with_more_arguments(&options)
        .run_to_end(&["timeout", "3", "sh", "-c", SPIN]);
    let run = run.expect_exit_code(124).expect_stderr_contains(&["emitted by the service"]);
    assert!(!run.stderr.contains("panicked"), "{run}");
    assert!(run.figure("batch_cpu_s") > 0.0, "batch still had the idle time: {:?}", run.figures());
}
