//! Tests of the overlap promise of `sidelane run`: a broken promise is in the summary's first line, in a field of the
//! result and in the exit code.

mod common;

use std::fs;

use common::{Finished, Run, SPIN, Service, lock_lanes};
use sidelane_report::Verdict;

const EXIT_PROMISE_BROKEN: i32 = 99;
const BROKEN: &str = "sidelane: promise broken: batch ran beside pid:";

/// Runs batch that makes itself real-time and spins for a second, beside a service that is never idle, on a lane
/// without a holder. Batch runs even on a busy machine. Its own exit code is 124.
fn run_batch_on_lane_without_holder(options: &[&str]) -> Finished {
    let service = Service::busy();
    let run = Run::beside_service(service.target())
        .with_more_arguments(&["--gate", "sched-idle", "--allow-realtime"])
        .with_more_arguments(options);
    run.run_to_end(&["chrt", "-r", "1", "timeout", "1", "sh", "-c", SPIN])
}

/// Returns the first line of the summary: lines before it have a time of day.
fn first_line(run: &Finished) -> &str {
    let has_time = |line: &&str| line.as_bytes().get(10).is_some_and(u8::is_ascii_digit);
    run.stderr.lines().find(|line| !has_time(line)).unwrap_or("")
}

#[test]
fn excess_overlap_is_the_first_line_and_in_the_result() {
    let Some(_turn) = lock_lanes() else { return };
    let run = run_batch_on_lane_without_holder(&[]).expect_exit_code(124);
    let line = first_line(&run);
    assert!(line.starts_with(BROKEN) && line.contains("bound 1.0 %): the gate sched-idle is for comparison"), "{run}");
    let result = run.result();
    assert_eq!(result.settings["broken_promise"][0], line["sidelane: ".len()..], "{result:?}");
    let check = &result.checks[0];
    assert_eq!((check.verdict, check.wanted.as_str()), (Verdict::Missed, "≤ 1"), "{result:?}");
    assert_eq!(run.figure("overlap_bound_percent"), 1.0);
}

#[test]
fn fail_on_overlap_makes_the_exit_code_99() {
    let Some(_turn) = lock_lanes() else { return };
    let run = run_batch_on_lane_without_holder(&["--fail-on-overlap", "1%"]).expect_exit_code(EXIT_PROMISE_BROKEN);
    assert!(first_line(&run).starts_with(BROKEN), "{run}");
    let quiet =
        run_batch_on_lane_without_holder(&["--fail-on-overlap", "2%", "--quiet"]).expect_exit_code(EXIT_PROMISE_BROKEN);
    assert!(quiet.stderr.starts_with(BROKEN) && quiet.stderr.contains("bound 2.0 %"), "{quiet}");
    assert_eq!(quiet.stderr.lines().count(), 1, "{quiet}");
}

#[test]
fn overlap_below_the_bound_keeps_the_exit_code() {
    let Some(_turn) = lock_lanes() else { return };
    let allowed = run_batch_on_lane_without_holder(&["--fail-on-overlap", "100%"]).expect_exit_code(124);
    // Batch that mostly sleeps cannot break the promise on any machine.
    let service = Service::start_bursty();
    let run = Run::beside_service(service.target()).with_more_arguments(&["--fail-on-overlap", "1%"]);
    let sleeps = run.run_to_end(&["sh", "-c", "sleep 0.5; exit 7"]).expect_exit_code(7);
    for run in [allowed, sleeps] {
        assert!(!run.stderr.contains("promise broken"), "{run}");
        let result = run.result();
        assert!(!result.settings.contains_key("broken_promise"), "{result:?}");
        assert!(result.checks.len() == 1 && result.checks[0].verdict != Verdict::Missed, "{result:?}");
    }
}

/// File that makes a kworker run on each CPU when it is read.
const WORKS_ON_EACH_CPU: &str = "/proc/sys/vm/stat_refresh";

#[test]
fn kernel_work_on_a_batch_lane_is_reported() {
    const READS: usize = 200;
    let Some(_turn) = lock_lanes() else { return };
    if let Err(error) = fs::read(WORKS_ON_EACH_CPU) {
        return sidelane_testing::skip(format!("cannot read {WORKS_ON_EACH_CPU}: {error}"));
    }
    let mut service = Service::on_command();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    run.batch_pid();
    service.work();
    run.wait_until_audited("evict", 0);
    for _ in 0..READS {
        fs::read(WORKS_ON_EACH_CPU).unwrap();
    }
    service.rest();
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
    let kinds = ["busy_kworkers_percent", "busy_interrupt_threads_percent", "busy_kernel_threads_percent"];
    let [workers, interrupts, others] = kinds.map(|key| run.figure(key));
    let all = run.figure("busy_kernel_percent");
    assert!(workers > 0.0 && all <= 100.0, "{:?}", run.figures());
    assert!((workers + interrupts + others - all).abs() <= 0.01 * all, "{:?}", run.figures());
    assert!(run.result().settings["interrupt_time"].is_string(), "{:?}", run.result());
}
