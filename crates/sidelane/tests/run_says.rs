//! Tests of the output of `sidelane run`: before a run, during it, at its end, and its exit code.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;

use common::agent::SIDELANE;
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::redis::traceable_redis;
use common::{Finished, Footprint, Run, Running, Service, UNTIL_END_OF_INPUT, lanes_to_ourselves};
use serde_json::Value;
use sidelane_lab::bench::workload::RealServer;

const EXIT_OBJECTIVE_MISSED: i32 = 99;
const EXIT_OWN_FAILURE: i32 = 125;
/// Script of batch that works until its input ends.
const WORK: &str = "while :; do :; done & worker=$!; echo at work; cat >/dev/null; kill $worker";

/// Waits until the run has printed this text.
#[track_caller]
fn wait_for(run: &mut Running, words: &str) {
    run.wait_until(&format!("the run said `{words}`"), |run| run.errors().contains(words));
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let (before, service) = (Footprint::now(), Service::idle());
    let run = Run::beside(service.target()).and(&["--dry-run"]).complete(&["echo", "batch ran"]).must_exit(0);
    for words in [&service.target(), "batch on CPU 1", "on CPU 0", "gate holder", "policy borrow-idle"] {
        assert!(run.stdout.contains(words), "no `{words}` in: {run}");
    }
    assert!(!run.stdout.contains("batch ran"), "{run}");
    before.must_come_back();
}

#[test]
fn all_errors_are_reported_at_once_with_a_working_command() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let service = Service::on_both_lanes();
    let run = Run::with_arguments(&["run", "--lanes", "0:1", "--service", &service.target()]);
    let audit = ["--audit", "/no/such/directory/log", "--max-slowdown", "1%", "--gate", "freezer"];
    let run = run.and(&audit).complete(&["true"]).must_exit(EXIT_OWN_FAILURE);
    run.must_say(&["3 problems:", "1. ", "--pin-service", "2. cannot keep --max-slowdown", "3. cannot write"]);
    let run = Run::with_arguments(&["run", "--lanes", "0:1", "--service", &service.target()]);
    let run = run.complete(&["true"]).must_exit(EXIT_OWN_FAILURE);
    run.must_say(&[&format!("try: {SIDELANE} run --pin-service --lanes 0:1 --service {}", service.target())]);
}

#[test]
fn run_reports_its_start_and_progress_unless_quiet() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let service = Service::idle();
    let mut run = Run::beside(service.target()).and(&["--status", "100ms"]).start_script(WORK);
    wait_for(&mut run, "of CPU in all");
    let said = run.wait_for_end().must_exit(0);
    said.must_say(&[&format!("batch on CPU {BATCH_LANE} beside {}", service.target()), "gate holder"]);
    let quiet = Run::beside(service.target()).and(&["--quiet"]).complete(&["true"]).must_exit(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn service_on_the_batch_lane_is_reported_and_batch_waits() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let service = Service::in_bursts();
    let mut run = Run::beside(service.target()).start_script(WORK);
    run.first_line();
    service.move_to(BATCH_LANE);
    drives_batch_away_until_it_is_gone(run, &service);
}

/// Checks a service on the batch lane: the run says what to do, batch leaves, and returns after the service has left.
#[track_caller]
fn drives_batch_away_until_it_is_gone(mut run: Running, service: &Service) {
    wait_for(
        &mut run,
        &format!(
            "ran on a batch lane; batch leaves that lane until the service has left it; confine the \
             service to its request lanes (taskset -a -c -p {REQUEST_LANE} PID)"
        ),
    );
    run.wait_until_audited("evict", 0);
    service.move_to(REQUEST_LANE);
    run.wait_until_audited("restore", 0);
    run.wait_for_end().must_exit(0);
}

#[test]
fn service_restarted_on_the_batch_lane_evicts_batch() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = Service::in_bursts_at(listener);
    let mut run = Run::beside(format!("port:{}", address.port())).start_script(WORK);
    run.first_line();
    service.end();
    wait_for(&mut run, "has ended");
    let again = Service::in_bursts_on(BATCH_LANE, TcpListener::bind(address).unwrap());
    drives_batch_away_until_it_is_gone(run, &again);
}

#[test]
fn kept_off_batch_is_reported_or_the_run_ends() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let before = Footprint::now();
    let service = Service::busy();
    let blocked = ["--blocked-after", "1s"];
    let mut run = Run::beside(service.target()).and(&blocked).and(&["--grace", "100ms"]).start_script(common::SPIN);
    wait_for(&mut run, "note: batch has been kept off its lanes for 1 s");
    run.signal(libc::SIGTERM);
    run.wait_for_end();
    let failing = Run::beside(service.target()).and(&blocked).and(&["--on-blocked", "fail"]);
    let failed = failing.start_script(common::SPIN).wait_for_end().must_exit(EXIT_OWN_FAILURE);
    failed.must_say(&["batch was kept off its lanes for", "--on-blocked fail"]);
    before.must_come_back();
}

#[test]
fn an_audit_of_events_has_no_holds_and_both_clocks() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let service = Service::in_bursts();
    let run = Run::beside(service.target()).and(&["--audit-level", "events"]);
    let audit = run.complete(&["timeout", "1", "sh", "-c", common::SPIN]).must_exit(124).audit();
    let actions: Vec<&str> = audit.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert!(!actions.contains(&"hold") && actions.contains(&"start") && actions.last() == Some(&"end"), "{audit:?}");
    assert!(audit.iter().all(|line| line["at"].as_str().is_some_and(|at| at.ends_with('Z'))), "{audit:?}");
}

/// Sends requests to a service until `over` returns true.
fn ask_until(server: &RealServer, mut over: impl FnMut() -> bool) {
    let (mut stream, question, answer) = server.ask_on().unwrap();
    while !over() {
        stream.write_all(question).unwrap();
        stream.read_exact(&mut vec![0; answer.len()]).unwrap();
    }
}

/// Runs batch beside this service until it has answered `requests` requests.
fn answer(server: &RealServer, options: &[&str], mut requests: usize) -> Finished {
    let mut run = Run::beside(format!("pid:{}", server.pid())).and(options).start_script(WORK);
    run.first_line();
    ask_until(server, || {
        requests -= 1;
        requests == 0
    });
    run.wait_for_end()
}

#[test]
fn the_end_of_a_run_says_whether_the_objective_was_kept() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let kept = answer(&server, &["--slo", "p99=100s", "--fail-on-slo"], 200);
    let run = kept.must_exit(0).must_say(&["objective  p99=100s ✓ kept: p99 was"]);
    assert!(run.figure("objective_us") > 0.0 && run.figure("objective_missed_s") == 0.0, "{run}");
    let missed = answer(&server, &["--slo", "p99=1ns", "--fail-on-slo"], 200);
    let run = missed.must_exit(EXIT_OBJECTIVE_MISSED).must_say(&["objective  p99=1ns ✗ missed: p99 was"]);
    assert!(run.figure("objective_us") > 0.0, "{run}");
}

#[test]
fn requests_are_compared_with_those_without_batch() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let before = Footprint::now();
    let mut run = Run::beside(format!("pid:{}", server.pid())).start_script(WORK);
    run.first_line();
    // Batch is also evicted for other reasons, for example after the host took the machine's CPU away for long.
    let kept_off = "batch is kept off, to measure requests without it or to keep max_slowdown";
    let evicted = |audit: &[Value]| audit.iter().position(|line| line["action"] == "evict" && line["why"] == kept_off);
    let is_back = |audit: &[Value]| audit.iter().any(|line| line["action"] == "restore");
    ask_until(&server, || {
        let audit = run.audit();
        evicted(&audit).is_some_and(|place| is_back(&audit[place..]))
    });
    run.wait_for_end().must_exit(0).must_say(&["  requests   "]);
    before.must_come_back();
}

#[test]
fn unseen_requests_are_noted_and_batch_runs() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let service = Service::idle();
    let mut run = Run::beside(service.target()).start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    run.wait_for_end().must_exit(0).must_say(&["cannot measure the slowdown of", "listens on no TCP port"]);
    // This service gets no request, so batch is left alone.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = Service::in_bursts_at(listener);
    let run = Run::beside(service.target()).complete(&["timeout", "1", "sh", "-c", common::SPIN]).must_exit(124);
    run.must_say(&["too few to measure the slowdown (0 beside batch, 0 without)"]);
}

#[test]
fn help_has_the_exit_codes() {
    let help = Run::with_arguments(&["run", "--help"]).start_as_is().wait_for_end().must_exit(0);
    for code in ["125", "126", "127", "128", "99"] {
        assert!(help.stdout.contains(code), "{help}");
    }
}
