//! Tests of the watchdog of batch lanes: batch that no summons can move still leaves its lane, and a note reports it.

mod common;

use std::process::{Command, Stdio};
use std::time::Instant;

use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::process::{class_priority_and_nice, scheduling_class, threads_named, wants_cpu};
use common::{Footprint, Job, Run, Running, SPIN, Service, TIMEOUT, ThrottledGroup, Words, lock_lanes, wait_until};
use serde_json::Value;
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::freezer::Freezer;
use sidelane_policy::borrow::LaneState;

/// Value of SCHED_IDLE in /proc.
const IDLE: Option<&str> = Some("5");
/// Values of SCHED_FIFO with priority 10 in /proc.
const HOLDERS_CLASS: [&str; 2] = ["1", "10"];

/// Returns whether a thread can be real-time in the cgroup of this test.
fn may_be_real_time() -> bool {
    let tried = Command::new("chrt").args(["-f", "10", "true"]).stderr(Stdio::null()).status();
    let may = tried.is_ok_and(|tried| tried.success());
    if !may {
        sidelane_testing::skip("needs a group that allows real-time threads (cpu.rt_runtime_us)");
    }
    may
}

fn chrt(class: [&str; 2], pid: u32) {
    let given = Command::new("chrt").args([class[0], "-p", class[1], &pid.to_string()]).status();
    assert!(given.is_ok_and(|given| given.success()), "chrt {class:?} works from outside of batch");
}

/// Returns the watchdog's steps in the audit log, each with its reason.
fn watchdog_steps(run: &[Value]) -> Vec<(String, String)> {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let steps = run.iter().map(|entry| (text(entry, "action"), text(entry, "why")));
    steps.filter(|(action, _)| ["demote", "put_back", "stop", "go_on"].contains(&action.as_str())).collect()
}

fn end(run: Running) -> common::Finished {
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGTERM)
}

/// Batch is busy when it gets a class above the holder's, so it makes no context switch that the kernel program could
/// notice. The service then starts beside it.
#[test]
fn batch_that_outranks_the_holder_leaves_the_lane() {
    let Some(_turn) = lock_lanes() else { return };
    if !may_be_real_time() {
        return;
    }
    let before = Footprint::capture();
    for class in [["-f", "10"], ["-f", "99"], ["-r", "10"]] {
        let mut service = Service::on_command();
        let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
        let batch = run.batch_pid();
        let lane = Words::wait_and_map(&mut run);
        run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
        chrt(class, batch);
        service.work();
        run.wait_until("batch was demoted", |run| {
            run.has_audited("demote", 0) && scheduling_class(batch).as_deref() == IDLE
        });
        run.wait_until("the lane was kept", |_| lane.is_kept_free() && !lane.is_batch_on_lane());
        service.rest();
        let name = if class[0] == "-f" { "SCHED_FIFO" } else { "SCHED_RR" };
        let run =
            end(run).expect_stderr_contains(&["the batch thread `sh`", &format!("{name} {}", class[1]), "SCHED_IDLE"]);
        // The watchdog takes stronger steps only if the holder does not get its CPU within 2 ms after the demotion. So
        // the demotion comes first, and such steps may follow.
        assert_eq!(
            watchdog_steps(&run.audit()).first().map(|(action, _)| action.as_str()),
            Some("demote"),
            "{:?}",
            run.audit()
        );
        drop(service);
    }
    before.wait_until_restored();
}

/// An administrator can demote the holder, and so can adopted batch that kept its rights.
#[test]
fn demoted_holder_is_promoted_again() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let lane = Words::wait_and_map(&mut run);
    run.batch_pid();
    run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    let [holder, watchdog] = ["holder-1", "watchdog"].map(|name| threads_named(run.pid(), name)[0]);
    [holder, watchdog].iter().for_each(|tid| chrt(["-i", "0"], *tid));
    service.work();
    run.wait_until("batch was off the lane", |_| lane.is_kept_free() && !lane.is_batch_on_lane());
    run.wait_until("the holder had its class back", |_| {
        class_priority_and_nice(holder)[..2] == HOLDERS_CLASS.map(|word| Some(word.to_owned()))
    });
    service.rest();
    run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    end(run).expect_stderr_contains(&["the scheduling class of the holder of batch lane 1", "the thread that watches"]);
    before.wait_until_restored();
}

/// The quota limits only threads of the ordinary class, so Sidelane's holders still run.
#[test]
fn adopted_batch_leaves_its_lane_though_sidelane_is_throttled() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(group) = ThrottledGroup::make() else { return };
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let job = Job::start_without_cgroup();
    let run = Run::beside_service(service.target()).through_wrapper(&["sh", "-c", &group.enter_command()]);
    let mut run = run.with_more_arguments(&["--adopt", &job.target()]).start_without_batch();
    let lane = Words::wait_and_map(&mut run);
    run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    for _ in 0..5 {
        group.throttle(true);
        service.work();
        run.wait_until("batch was off the lane", |_| lane.is_kept_free() && !lane.is_batch_on_lane());
        lane.check_no_batch_while_held();
        group.throttle(false);
        service.rest();
        run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    }
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(0);
    drop((job, group));
    before.wait_until_restored();
}

/// A holder that gets only a hundredth of its CPU leaves the rest of it to batch. So batch is stopped until the holder
/// can evict it.
#[test]
fn batch_is_stopped_while_the_holder_is_throttled() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(group) = ThrottledGroup::make() else { return };
    if !group.set_rt_runtime("10000") {
        return sidelane_testing::skip(
            "needs groups with a part of real-time for each (cgroup v1, CONFIG_RT_GROUP_SCHED)",
        );
    }
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let lane = Words::wait_and_map(&mut run);
    let batch = run.batch_pid();
    let holder = threads_named(run.pid(), "holder-1")[0];
    group.move_thread(holder, true);
    run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    service.work();
    run.wait_until("batch was sent away", |run| run.has_audited("evict", 0) && !wants_cpu(batch));
    group.move_thread(holder, false);
    service.rest();
    run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    end(run);
    drop(group);
    before.wait_until_restored();
}

/// Program in which the second of two threads raises its class. This thread has its own name.
const CLIMBER: &str = r#"
import os, threading, time
def climb():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name:
        name.write("climber")
    while True:
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
threading.Thread(target=climb, daemon=True).start()
print(os.getpid(), flush=True)
while True:
    time.sleep(1000)
"#;

#[test]
fn thread_that_keeps_promoting_itself_is_stopped() {
    let Some(_turn) = lock_lanes() else { return };
    let python = Command::new("python3").args(["-c", "import os; os.sched_setscheduler"]).status();
    if !may_be_real_time() || !python.is_ok_and(|python| python.success()) {
        return sidelane_testing::skip("needs real-time threads and python3");
    }
    let before = Footprint::capture();
    let service = Service::start_bursty();
    let mut run = Run::beside_service(service.target())
        .with_more_arguments(&["--allow-realtime"])
        .start(&["python3", "-c", CLIMBER]);
    run.wait_until("batch was stopped and went on", |run| run.has_audited("go_on", 0));
    let run = end(run).expect_stderr_contains(&["all batch was stopped: its thread", "climber"]);
    let audit = run.audit();
    let steps = watchdog_steps(&audit);
    let first_ns = |action: &str| audit.iter().find(|entry| entry["action"] == action)?["at_ns"].as_u64();
    let stopped_ns = first_ns("go_on").unwrap().saturating_sub(first_ns("stop").unwrap());
    // The first stop of batch lasts at least 0.1 s. One more second is allowed for noise.
    assert!((100_000_000..1_100_000_000).contains(&stopped_ns), "the first stop lasted {stopped_ns} ns");
    let actions: Vec<&str> = steps.iter().map(|(action, _)| action.as_str()).collect();
    let stop = actions.iter().position(|action| *action == "stop").expect("batch was stopped");
    assert!(actions[..stop].contains(&"demote") && actions[stop..].contains(&"go_on"), "{actions:?}");
    assert!(steps.iter().any(|(action, why)| action == "demote" && why.contains("climber")), "{steps:?}");
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

/// Batch started by root leaves its cgroup all the time, so an eviction does not freeze it.
#[test]
fn batch_that_leaves_its_frozen_cgroup_is_evicted_again() {
    const GROUPS: &str = "/sys/fs/cgroup/unified";
    let Some(_turn) = lock_lanes() else { return };
    if !std::path::Path::new(GROUPS).join("cgroup.procs").exists() {
        return sidelane_testing::skip(format!("needs cgroup v2 at {GROUPS}, to leave a group"));
    }
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let leaves = format!("echo $$; while :; do echo $$ >{GROUPS}/cgroup.procs; done");
    let mut run = Run::beside_service(service.target()).start_script(&leaves);
    let batch = run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    service.work();
    run.wait_until_audited("put_back", 0);
    wait_until("batch stood still", || !wants_cpu(batch) || lane.state() == Some(LaneState::Held));
    run.wait_until("batch was off the lane", |_| lane.is_kept_free() && !lane.is_batch_on_lane());
    service.rest();
    let run = end(run).expect_stderr_contains(&[&format!(
        "the batch thread `sh` stayed on lane {BATCH_LANE} beside the service, or came back"
    )]);
    let order: Vec<String> = run.audit().iter().map(|entry| entry["action"].to_string()).collect();
    let [evict, back] = ["\"evict\"", "\"put_back\""].map(|action| order.iter().position(|found| found == action));
    assert!(evict.is_some() && evict < back, "{order:?}");
    before.wait_until_restored();
}

/// Commands of batch that is in the kernel almost all the time, in calls that no freeze interrupts.
const IN_LONG_SYSTEM_CALLS: [(&str, &str); 3] = [
    // With MAP_POPULATE (0x8000), mmap returns only after the kernel has filled 256 MiB of memory.
    (
        "mmap",
        "import mmap\nwhile True:\n    mmap.mmap(-1, 1 << 28, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000).close()",
    ),
    (
        "write",
        "import os\nzeros = bytes(1 << 26)\nto = os.memfd_create('zeros')\nwhile True:\n    os.pwrite(to, zeros, 0)",
    ),
    // The child process exits for long, because the kernel frees its 256 MiB of memory during the exit.
    (
        "exit",
        "import mmap, os\nwhile True:\n    if os.fork() == 0:\n        mmap.mmap(-1, 1 << 28, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)\n        os._exit(0)\n    os.wait()",
    ),
];

/// Returns the freezer of the cgroup that a batch command is in.
fn freezer_of(batch: u32) -> Option<Freezer> {
    let groups = std::fs::read_to_string(format!("/proc/{batch}/cgroup")).ok()?;
    let paths: Vec<&str> = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let dirs = Hierarchy::all().into_iter().flat_map(|found| paths.iter().map(move |path| found.dir(path)));
    dirs.filter(|dir| dir.join("cgroup.procs").exists())
        .filter(|dir| *dir != *"/")
        .find_map(|dir| Freezer::find_in_group(&dir))
}

/// An eviction lets batch run for 1 ms, in which it can be frozen. If it is not, the lane is held again.
#[test]
fn a_lane_is_held_until_a_long_system_call_is_frozen() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    for (call, program) in IN_LONG_SYSTEM_CALLS {
        let mut service = Service::on_command();
        let mut run = Run::beside_service(service.target()).start(&[
            "python3",
            "-c",
            &format!("import os\nprint(os.getpid(), flush=True)\n{program}"),
        ]);
        let freezer = freezer_of(run.batch_pid()).expect("batch has a group that can be frozen");
        let lane = Words::wait_and_map(&mut run);
        let deadline = Instant::now() + TIMEOUT;
        let mut wait = || run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
        while !{
            wait();
            lane.work_until_frozen_and_check_rehold(&mut service, &freezer)
        } {
            assert!(Instant::now() < deadline, "batch in {call} was never found awake after an eviction");
        }
        end(run);
    }
    before.wait_until_restored();
}
