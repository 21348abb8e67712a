//! `sidelane run` on a budget beside a service that says itself what it works on.

mod common;

use std::collections::BTreeSet;

use common::c_program::compile;
use common::lanes::Turn;
use common::{Finished, Run, SPIN, Service, lanes_to_ourselves, wait_until};
use sidelane::request::emitted::Emitters;
use tempfile::TempDir;

/// Runs batch for three seconds beside a worker that emits; see `runtime/c/tests/emit_worker.c`.
fn beside_worker(worker: &[&str], options: &[&str]) -> Option<Finished> {
    let (_turn, _dir, service) = worker_at_work(worker)?;
    let run = Run::beside(service.target()).and(options).complete(&["timeout", "3", "sh", "-c", SPIN]);
    Some(run.must_exit(124))
}

fn worker_at_work(arguments: &[&str]) -> Option<(Turn, TempDir, Service)> {
    at_work("emit_worker", arguments)
}

fn at_work(program: &str, arguments: &[&str]) -> Option<(Turn, TempDir, Service)> {
    let turn = lanes_to_ourselves()?;
    let dir = tempfile::tempdir().unwrap();
    let program = compile("cc", &["-std=gnu99"], program, dir.path())?;
    let service = Service::of_command(program.to_str().unwrap(), arguments);
    let pids = BTreeSet::from([service.pid()]);
    wait_until("the service emits", || Emitters::find(&pids).is_some());
    Some((turn, dir, service))
}

/// Batch's part in the service's time: on the requests' budgets, and without leave.
fn beside_percent(run: &Finished) -> (f64, f64) {
    (run.figure("lent_overlap_percent"), run.figure("overlap_percent"))
}

#[test]
fn batch_runs_beside_an_emitted_request_for_its_budget() {
    let options = ["--policy", "fixed-budget", "--budget", "5ms"];
    let Some(run) = beside_worker(&["20", "20", "1"], &options) else { return };
    let (lent, overlap) = beside_percent(&run);
    // Less where others keep batch off its lane.
    assert!(lent > 0.0 && lent <= 35.0, "5 ms of 20 are 25 %: {:?}", run.figures());
    assert!(overlap <= 5.0, "{:?}", run.figures());
    assert!(run.figure("requests_count") >= 30.0, "{:?}", run.figures());
    assert_eq!(run.result().settings["requests"], "emitted by the service");
    run.must_say(&["5.0 ms a request", "emitted by the service"]);
}

/// The budget would do for both requests of a pair.
#[test]
fn an_emitted_request_that_waited_gets_its_core_back() {
    let options = ["--policy", "fixed-budget", "--budget", "10ms"];
    let Some(run) = beside_worker(&["4", "8", "2"], &options) else { return };
    let (lent, overlap) = beside_percent(&run);
    assert!(lent > 0.0 && lent <= 60.0, "the first of two is 50 %: {:?}", run.figures());
    // A millisecond of eight, unless the keeper itself had to wait for a CPU.
    assert!(overlap <= 20.0, "{:?}", run.figures());
    let waited = |entry: &serde_json::Value| entry["why"] == "a request that had to wait runs";
    assert!(run.audit().iter().any(waited), "{run}");
}

/// Both requests of a pair are young enough, whoever waited.
#[test]
fn by_age_a_request_that_waited_is_lent_beside() {
    let Some(run) = beside_worker(&["4", "8", "2"], &["--policy", "deadline", "--budget", "60s"]) else { return };
    let run = run.must_say(&["60000.0 ms until a request is so old", "requests later by at most"]);
    let spared = |entry: &serde_json::Value| entry["why"] == "a request that had to wait runs";
    assert!(!run.audit().iter().any(spared), "{run}");
    assert!(run.figure("lent_overlap_percent") > 0.0, "{:?}", run.figures());
    assert!(run.figure("delay_bound_max_us") > 0.0, "{:?}", run.figures());
}

/// The second of a pair is older than that when it starts, and the first has it behind it.
#[test]
fn by_age_batch_leaves_a_request_that_is_too_old() {
    let Some(run) = beside_worker(&["4", "8", "2"], &["--policy", "deadline", "--budget", "6ms"]) else { return };
    let old = |entry: &serde_json::Value| entry["why"] == "a request runs that is too old, or has too many behind it";
    assert!(run.audit().iter().any(old), "{run}");
}

#[test]
fn an_objective_is_kept_by_what_is_emitted() {
    // So long that even a machine which does ten other things keeps it.
    let Some(run) = beside_worker(&["5", "5", "1"], &["--policy", "dynamic-refresh", "--slo", "p99=5s"]) else {
        return;
    };
    assert!(run.figure("budget_ms") > 0.0, "{:?}", run.figures());
    let run = run.must_say(&["from p99=5s"]);
    // What ran beside each of them is known, or nothing would be known of harm; a busy machine answers
    // too few for that.
    if run.figure("requests_count") >= 250.0 {
        run.must_say(&["from server times"]);
    }
}

#[test]
fn a_service_that_listens_too_is_believed_in_what_it_emits() {
    let options = ["--policy", "refresh-budget", "--budget", "2ms"];
    let Some(run) = beside_worker(&["5", "5", "1", "listen"], &options) else { return };
    assert_eq!(run.result().settings["requests"], "emitted by the service");
    assert!(run.figure("lent_overlap_percent") > 0.0, "{:?}", run.figures());
}

#[test]
fn batch_goes_on_when_the_service_ends_in_the_middle_of_a_request() {
    let Some((_turn, _dir, service)) = worker_at_work(&["300", "100", "1"]) else { return };
    let options = ["--policy", "fixed-budget", "--budget", "5ms"];
    let mut run = Run::beside(service.target()).and(&options).start_script("echo ready; read go; echo went on");
    run.first_line();
    service.end();
    drop(run.input());
    let run = run.wait_for_end();
    assert!(run.stdout.contains("went on"), "{run}");
}

#[test]
fn a_service_that_emits_nonsense_harms_nobody_but_itself() {
    let Some((_turn, _dir, service)) = at_work("emit_nonsense", &[]) else { return };
    let options = ["--policy", "dynamic-refresh", "--slo", "p99=50ms"];
    let run = Run::beside(service.target()).and(&options).complete(&["timeout", "3", "sh", "-c", SPIN]);
    let run = run.must_exit(124).must_say(&["emitted by the service"]);
    assert!(!run.stderr.contains("panicked"), "{run}");
    assert!(run.figure("batch_cpu_s") > 0.0, "batch still had the idle time: {:?}", run.figures());
}
