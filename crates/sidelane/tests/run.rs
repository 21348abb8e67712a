//! Tests of `sidelane run` when nothing fails: the batch command runs in its lane as without Sidelane, while the
//! service is idle. The run reports its results.

mod common;

use sidelane_policy::borrow::LaneState;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use common::agent::batch_processes;
use common::lanes::BATCH_LANE;
use common::{
    Disk, Footprint, Run, SPIN, Service, UNTIL_END_OF_INPUT, Words, lab_binary_path, lock_lanes, process, wait_until,
};

#[test]
fn the_exit_code_is_the_batch_commands_own() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let code_of = |batch: &[&str]| Run::beside_service(service.target()).run_to_end(batch).code;
    assert_eq!(code_of(&["true"]), Some(0));
    assert_eq!(code_of(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code_of(&["sh", "-c", "kill -TERM $$"]), Some(128 + libc::SIGTERM));
    assert_eq!(code_of(&["no-such-command-of-sidelane"]), Some(127));
    assert_eq!(code_of(&["/etc/passwd"]), Some(126));
}

/// A failure of the audit log does not change the work of a run.
#[test]
fn a_full_disk_under_the_audit_log_leaves_batch_its_exit_code() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let run = |audit: &str| {
        let arguments = ["run", "--lanes", common::lanes::LANES, "--audit", audit, "--service"];
        Run::with_arguments(&arguments).with_more_arguments(&[service.target()]).run_to_end(&[
            "sh",
            "-c",
            "sleep 1; exit 7",
        ])
    };
    run("/dev/full")
        .expect_exit_code(7)
        .expect_stderr_contains(&["cannot be written (No space left", "lines of the log /dev/full"]);
    let Some(disk) = Disk::mount() else { return };
    disk.fill();
    let path = disk.path("audit.jsonl");
    run(path.to_str().unwrap()).expect_exit_code(7).expect_stderr_contains(&["cannot be written (No space left"]);
    let json = disk.path("result.json");
    let figures =
        Run::with_arguments(&["run", "--lanes", common::lanes::LANES, "--json", json.to_str().unwrap(), "--service"]);
    let figures = figures.with_more_arguments(&[service.target()]).run_to_end(&["sh", "-c", "exit 7"]);
    figures.expect_exit_code(7).expect_stderr_contains(&["result.json", "No space left"]);
    run("/nowhere/audit.jsonl").expect_exit_code(125).expect_stderr_contains(&["/nowhere"]);
}

#[test]
fn streams_reach_batch_unchanged() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script("cat; echo to-stderr >&2");
    run.input().write_all(b"in\0and out\n").unwrap();
    let run = run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["to-stderr"]);
    assert_eq!(run.stdout, "in\0and out\n");
}

#[test]
fn arguments_environment_and_directory_reach_batch_unchanged() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let dir = tempfile::tempdir().unwrap();
    let run = Run::beside_service(service.target()).with_variable("WORDS", "two words").in_dir(dir.path());
    let script = r#"printf '[%s]' "$@"; echo " $WORDS $(pwd)""#;
    let run = run.run_to_end(&["sh", "-c", script, "sh", "a b", "", "--json", "--", "*"]).expect_exit_code(0);
    assert_eq!(run.stdout, format!("[a b][][--json][--][*] two words {}\n", dir.path().display()));
}

#[test]
fn the_summary_goes_to_stderr_and_nothing_to_stdout() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let run = Run::beside_service(service.target()).run_to_end(&["true"]).expect_exit_code(0);
    assert_eq!(run.stdout, "");
    run.expect_stderr_contains(&["batch", "service", "cost", "declared pair"]);
}

#[test]
fn the_result_file_holds_the_figures_of_the_run() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    let run =
        Run::beside_service(service.target()).run_to_end(&["timeout", "1", "sh", "-c", SPIN]).expect_exit_code(124);
    let result = run.result();
    assert_eq!(result.rows.len(), 1);
    assert_eq!(result.rows[0].setting(), "borrow_idle");
    assert_eq!(result.settings["batch_lanes"], BATCH_LANE);
    let above_zero =
        ["wall_s", "batch_cpu_s", "service_cpu_s", "batch_share_of_idle_percent", "service_switches_count"];
    for key in above_zero.iter().chain(&["holds_count"]) {
        assert!(run.figure(key) > 0.0, "{key} in {result:?}");
    }
    // All three figures are 0 if batch was off before each request, as is common on a busy machine.
    for key in ["overlap_percent", "reaction_off_p50_ns", "reaction_off_p99_ns"] {
        assert!(run.figure(key) >= 0.0, "{key} in {result:?}");
    }
}

#[test]
fn every_decision_is_in_the_audit_log_with_its_reason() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    let run =
        Run::beside_service(service.target()).run_to_end(&["timeout", "1", "sh", "-c", SPIN]).expect_exit_code(124);
    let audit = run.audit();
    let reasons = |action: &str| {
        let entries = audit.iter().filter(move |entry| entry["action"] == action && entry["lane"] == 1);
        entries.map(|entry| entry["why"].as_str().expect("every entry says why")).collect::<Vec<_>>()
    };
    assert!(!reasons("hold").is_empty() && !reasons("release").is_empty(), "{audit:?}");
    assert!(reasons("hold").iter().all(|why| *why == "the service runs"), "{audit:?}");
    assert!(reasons("release").iter().all(|why| *why == "the service is idle"), "{audit:?}");
    let saw = |action: &str, busy: bool| {
        let mut entries = audit.iter().filter(|entry| entry["action"] == action);
        entries.all(|entry| entry["seen"]["request_busy"] == busy && entry["seen"]["request_since_ns"].is_u64())
    };
    assert!(saw("hold", true) && saw("release", false), "{audit:?}");
    assert_eq!(run.figure("holds_count") as usize, reasons("hold").len());
}

#[test]
fn signals_that_ask_to_end_reach_batch() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let script = format!("trap 'echo asked; exit 3' {signal}; echo ready; while :; do sleep 0.01; done");
        let mut run = Run::beside_service(service.target()).start_script(&script);
        run.first_line();
        run.signal(signal);
        assert_eq!(run.wait_for_end().expect_exit_code(3).stdout, "ready\nasked\n");
    }
}

#[test]
fn batch_that_does_not_end_is_ended_after_the_grace_time() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let run = Run::beside_service(service.target()).with_more_arguments(&["--grace", "500ms"]);
    let mut run = run.start_script(&format!("trap '' TERM; echo ready; {SPIN}"));
    run.first_line();
    let asked = Instant::now();
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGKILL);
    assert!(asked.elapsed() >= Duration::from_millis(500), "ended after {:?}", asked.elapsed());
}

#[test]
fn children_of_batch_stay_in_its_lane_and_end_with_it() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::idle();
    let child = format!("sh -c '{SPIN}' &");
    let grandchild = format!("sh -c 'sh -c \"{SPIN}\" & wait' &");
    let daemon = format!("setsid sh -c '(sh -c \"{SPIN}\" &)' &");
    let script = format!("{child} {grandchild} {daemon} {UNTIL_END_OF_INPUT}");
    let mut run = Run::beside_service(service.target()).start_script(&script);
    run.first_line();
    let spins = |pid: &u32| process::cpu_ticks(*pid) > 0 && process::command_line(*pid) == ["sh", "-c", SPIN, ""];
    wait_until("child, grandchild and daemon run", || batch_processes().iter().filter(|pid| spins(pid)).count() == 3);
    for pid in batch_processes() {
        assert_eq!(process::allowed_cpus(pid).as_deref(), Some(BATCH_LANE), "{:?}", process::command_line(pid));
        assert_eq!(process::last_cpu(pid).as_deref(), Some(BATCH_LANE), "{:?}", process::command_line(pid));
    }
    run.wait_for_end()
        .expect_exit_code(0)
        .expect_stderr_contains(&["background process(es) of the batch command were killed when the \
                                                command ended"]);
    before.wait_until_restored();
}

/// Each turn of the service, and each rest, lasts until the lane has changed its state.
#[test]
fn batch_leaves_its_lane_at_each_turn_of_the_service() {
    const TURNS: usize = 25;
    let Some(_turn) = lock_lanes() else { return };
    let mut service = Service::on_command();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    let batch_has_it = || lane.has_batch_in_state(LaneState::Released);
    for _ in 0..TURNS {
        run.wait_until("batch had the lane", |_| batch_has_it());
        let before = lane.summons();
        service.work();
        // The summons comes at the wakeup, not when batch or the service is switched in next.
        assert!(lane.busy(), "{:?}", lane.state());
        lane.check_summoned_since(before);
        run.wait_until("the lane was held", |_| lane.is_kept_free());
        lane.check_no_batch_while_held();
        service.rest();
    }
    run.wait_until("batch had the lane at last", |_| batch_has_it());
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
    // Each hold began once and lasted to the end of its turn.
    assert_eq!(run.figure("holds_count") as usize, TURNS, "{:?}", run.audit());
    assert!(!run.stderr.contains("on a lane that was held"), "{run}");
    // A holder that naps on the lane is not batch.
    let on_lane_s = run.figure("batch_cpu_s") + run.figure("napped_s");
    assert!(on_lane_s <= run.figure("wall_s"), "{:?}", run.figures());
}

/// The service is already busy when batch wants its lane.
#[test]
fn batch_that_continues_beside_a_busy_service_is_kept_off() {
    let Some(_turn) = lock_lanes() else { return };
    let mut service = Service::on_command();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let batch = run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    for _ in 0..10 {
        run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
        process::signal(batch, libc::SIGSTOP);
        run.wait_until("batch was off", |_| lane.has_batch_left());
        let before = lane.summons();
        service.work();
        assert_eq!(lane.summons(), before, "no batch is to be sent off");
        process::signal(batch, libc::SIGCONT);
        run.wait_until("the lane was held", |_| lane.is_kept_free());
        lane.check_no_batch_while_held();
        service.rest();
    }
}

/// A holder that waits for a page of its code would leave its lane to batch in this time.
#[test]
fn code_of_a_process_that_holds_lanes_is_locked_in_memory() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo started; {UNTIL_END_OF_INPUT}"));
    run.first_line();
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", run.pid())).unwrap();
    run.wait_for_end().expect_exit_code(0);
    let mut code = smaps.lines().skip_while(|line| !(line.contains(" r-xp ") && line.ends_with("/sidelane")));
    let flags = code.find_map(|line| line.strip_prefix("VmFlags: ")).expect(&smaps);
    assert!(flags.split(' ').any(|flag| flag == "lo"), "{flags}");
}

/// The turns of the service take some microseconds, and are not under the test's control. The figures are consistent
/// with each other.
#[test]
fn figures_of_a_run_are_consistent() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let service = Service::pulsing(&lab);
    let run =
        Run::beside_service(service.target()).run_to_end(&["timeout", "3", "sh", "-c", SPIN]).expect_exit_code(124);
    let (figures, at) = (run.figures(), |key: &str| run.figure(key));
    assert!(at("service_switches_count") > 0.0 && at("holds_count") > 0.0, "{figures:?}");
    assert!(at("batch_cpu_s") + at("napped_s") <= at("wall_s"), "{figures:?}");
    assert!(at("service_cpu_s") <= at("wall_s"), "{figures:?}");
    let overlap_s = at("overlap_percent") / 100.0 * at("service_cpu_s");
    assert!(overlap_s <= at("batch_cpu_s") && overlap_s <= at("service_cpu_s"), "{figures:?}");
    assert!(!run.stderr.contains("on a lane that was held"), "{run}");
    let audit = run.audit();
    let count = |action: &str| audit.iter().filter(|entry| entry["action"] == action).count();
    let ends = count("release") + count("evict");
    assert_eq!(at("holds_count") as usize, count("hold"), "{figures:?}");
    assert!(ends == count("hold") || ends + 1 == count("hold"), "a hold ends once: {ends} of {}", count("hold"));
}
