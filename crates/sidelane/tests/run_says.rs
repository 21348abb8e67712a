//! Tests of the output of `sidelane run`: before a run, during it, at its end, and its exit code.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;

use common::agent::SIDELANE;
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::redis::traceable_redis;
use common::{Finished, Footprint, Run, Running, Service, UNTIL_END_OF_INPUT, lock_lanes};
use serde_json::Value;
use sidelane_lab::bench::workload::RealServer;

const EXIT_OBJECTIVE_MISSED: i32 = 99;
const EXIT_OWN_FAILURE: i32 = 125;
/// Script of batch that works until its input ends.
const WORK: &str = "while :; do :; done & worker=$!; echo at work; cat >/dev/null; kill $worker";

/// Waits until the run has printed this text.
#[track_caller]
fn wait_for_message(run: &mut Running, words: &str) {
    run.wait_until(&format!("the run said `{words}`"), |run| run.errors().contains(words));
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let Some(_turn) = lock_lanes() else { return };
    let (before, service) = (Footprint::capture(), Service::idle());
    let run = Run::beside_service(service.target())
        .with_more_arguments(&["--dry-run"])
        .run_to_end(&["echo", "batch ran"])
        .expect_exit_code(0);
    for words in [&service.target(), "batch on CPU 1", "on CPU 0", "gate holder", "policy borrow-idle"] {
        assert!(run.stdout.contains(words), "no `{words}` in: {run}");
    }
    assert!(!run.stdout.contains("batch ran"), "{run}");
    before.wait_until_restored();
}

#[test]
fn all_errors_are_reported_at_once_with_a_working_command() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_sleeping_on_both_lanes();
    let run = Run::with_arguments(&["run", "--lanes", "0:1", "--service", &service.target()]);
    let audit = ["--audit", "/no/such/directory/log", "--max-slowdown", "1%", "--gate", "freezer"];
    let run = run.with_more_arguments(&audit).run_to_end(&["true"]).expect_exit_code(EXIT_OWN_FAILURE);
    run.expect_stderr_contains(&[
        "3 problems:",
        "1. ",
        "--pin-service",
        "2. cannot keep --max-slowdown",
        "3. cannot write",
    ]);
    let run = Run::with_arguments(&["run", "--lanes", "0:1", "--service", &service.target()]);
    let run = run.run_to_end(&["true"]).expect_exit_code(EXIT_OWN_FAILURE);
    run.expect_stderr_contains(&[&format!(
        "try: {SIDELANE} run --pin-service --lanes 0:1 --service {}",
        service.target()
    )]);
}

#[test]
fn run_reports_its_start_and_progress_unless_quiet() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).with_more_arguments(&["--status", "100ms"]).start_script(WORK);
    wait_for_message(&mut run, "of CPU in all");
    let said = run.wait_for_end().expect_exit_code(0);
    said.expect_stderr_contains(&[&format!("batch on CPU {BATCH_LANE} beside {}", service.target()), "gate holder"]);
    let quiet = Run::beside_service(service.target())
        .with_more_arguments(&["--quiet"])
        .run_to_end(&["true"])
        .expect_exit_code(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn service_on_the_batch_lane_is_reported_and_batch_waits() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    let mut run = Run::beside_service(service.target()).start_script(WORK);
    run.first_line();
    service.set_affinity(BATCH_LANE);
    check_service_on_batch_lane(run, &service);
}

/// Checks a service on the batch lane: the run says what to do, batch leaves, and returns after the service has left.
#[track_caller]
fn check_service_on_batch_lane(mut run: Running, service: &Service) {
    wait_for_message(
        &mut run,
        &format!(
            "ran on a batch lane; batch leaves that lane until the service has left it; confine the \
             service to its request lanes (taskset -a -c -p {REQUEST_LANE} PID)"
        ),
    );
    run.wait_until_audited("evict", 0);
    service.set_affinity(REQUEST_LANE);
    run.wait_until_audited("restore", 0);
    run.wait_for_end().expect_exit_code(0);
}

#[test]
fn service_restarted_on_the_batch_lane_evicts_batch() {
    let Some(_turn) = lock_lanes() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = Service::start_bursty_at(listener);
    let mut run = Run::beside_service(format!("port:{}", address.port())).start_script(WORK);
    run.first_line();
    service.end();
    wait_for_message(&mut run, "has ended");
    let again = Service::start_bursty_on(BATCH_LANE, TcpListener::bind(address).unwrap());
    check_service_on_batch_lane(run, &again);
}

#[test]
fn kept_off_batch_is_reported_or_the_run_ends() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::busy();
    let blocked = ["--blocked-after", "1s"];
    let mut run = Run::beside_service(service.target())
        .with_more_arguments(&blocked)
        .with_more_arguments(&["--grace", "100ms"])
        .start_script(common::SPIN);
    wait_for_message(&mut run, "note: batch has been kept off its lanes for 1 s");
    run.signal(libc::SIGTERM);
    run.wait_for_end();
    let failing = Run::beside_service(service.target())
        .with_more_arguments(&blocked)
        .with_more_arguments(&["--on-blocked", "fail"]);
    let failed = failing.start_script(common::SPIN).wait_for_end().expect_exit_code(EXIT_OWN_FAILURE);
    failed.expect_stderr_contains(&["batch was kept off its lanes for", "--on-blocked fail"]);
    before.wait_until_restored();
}

#[test]
fn audit_level_events_omits_holds_and_has_both_clocks() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    let run = Run::beside_service(service.target()).with_more_arguments(&["--audit-level", "events"]);
    let audit = run.run_to_end(&["timeout", "1", "sh", "-c", common::SPIN]).expect_exit_code(124).audit();
    let actions: Vec<&str> = audit.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert!(!actions.contains(&"hold") && actions.contains(&"start") && actions.last() == Some(&"end"), "{audit:?}");
    assert!(audit.iter().all(|line| line["at"].as_str().is_some_and(|at| at.ends_with('Z'))), "{audit:?}");
}

/// Sends requests to a service until `is_done` returns true.
fn send_requests_until(server: &RealServer, mut is_done: impl FnMut() -> bool) {
    let (mut stream, question, answer) = server.open_connection().unwrap();
    while !is_done() {
        stream.write_all(question).unwrap();
        stream.read_exact(&mut vec![0; answer.len()]).unwrap();
    }
}

/// Runs batch beside this service until the service has answered `request_count` requests.
fn run_until_answered(server: &RealServer, options: &[&str], mut request_count: usize) -> Finished {
    let mut run = Run::beside_service(format!("pid:{}", server.pid())).with_more_arguments(options).start_script(WORK);
    run.first_line();
    send_requests_until(server, || {
        request_count -= 1;
        request_count == 0
    });
    run.wait_for_end()
}

#[test]
fn the_end_of_a_run_says_whether_the_objective_was_kept() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let kept = run_until_answered(&server, &["--slo", "p99=100s", "--fail-on-slo"], 200);
    let run = kept.expect_exit_code(0).expect_stderr_contains(&["objective  p99=100s ✓ kept: p99 was"]);
    assert!(run.figure("objective_us") > 0.0 && run.figure("objective_missed_s") == 0.0, "{run}");
    let missed = run_until_answered(&server, &["--slo", "p99=1ns", "--fail-on-slo"], 200);
    let run = missed
        .expect_exit_code(EXIT_OBJECTIVE_MISSED)
        .expect_stderr_contains(&["objective  p99=1ns ✗ missed: p99 was"]);
    assert!(run.figure("objective_us") > 0.0, "{run}");
}

#[test]
fn requests_are_compared_with_those_without_batch() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let before = Footprint::capture();
    let mut run = Run::beside_service(format!("pid:{}", server.pid())).start_script(WORK);
    run.first_line();
    // Batch is also evicted for other reasons, for example after the host took the machine's CPU away for long.
    let kept_off = "batch is kept off, to measure requests without it or to keep max_slowdown";
    let evicted = |audit: &[Value]| audit.iter().position(|line| line["action"] == "evict" && line["why"] == kept_off);
    let is_back = |audit: &[Value]| audit.iter().any(|line| line["action"] == "restore");
    send_requests_until(&server, || {
        let audit = run.audit();
        evicted(&audit).is_some_and(|place| is_back(&audit[place..]))
    });
    run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["  requests   "]);
    before.wait_until_restored();
}

#[test]
fn unseen_requests_are_noted_and_batch_runs() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    run.wait_for_end()
        .expect_exit_code(0)
        .expect_stderr_contains(&["cannot measure the slowdown of", "listens on no TCP port"]);
    // This service gets no request, so batch is left alone.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = Service::start_bursty_at(listener);
    let run = Run::beside_service(service.target())
        .run_to_end(&["timeout", "1", "sh", "-c", common::SPIN])
        .expect_exit_code(124);
    run.expect_stderr_contains(&["too few to measure the slowdown (0 beside batch, 0 without)"]);
}

#[test]
fn help_has_the_exit_codes() {
    let help = Run::with_arguments(&["run", "--help"]).start_without_batch().wait_for_end().expect_exit_code(0);
    for code in ["125", "126", "127", "128", "99"] {
        assert!(help.stdout.contains(code), "{help}");
    }
}
