//! Tests of `sidelane run` when something fails. If a process dies, is stopped or moves to another lane, the service is
//! not disturbed, and no trace of a dead run remains.

mod common;

use std::net::TcpListener;
use std::path::Path;

use common::agent::batch_processes;
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::process::{allowed_cpus, cpu_ticks, is_alive, kill, wants_cpu};
use common::{Finished, Footprint, Run, Running, SPIN, Service, UNTIL_END_OF_INPUT, Words, lock_lanes, wait_until};
use sidelane_host::clock::now_ns;
use sidelane_policy::borrow::LaneState;

/// Command that unmounts all cgroup hierarchies.
const ALL_GROUPS: &str = "umount --all --types cgroup,cgroup2";

/// Returns a script of batch with a child, a grandchild and a daemon, all of them busy.
fn script_with_child_grandchild_and_daemon() -> String {
    format!("sh -c '{SPIN}' & sh -c 'sh -c \"{SPIN}\" & wait' & setsid sh -c '(sh -c \"{SPIN}\" &)' & echo $$; {SPIN}")
}

/// Returns a script of batch that prints its process id and then computes until it is ended.
fn spin_script() -> String {
    format!("echo $$; {SPIN}")
}

/// Starts a run, and waits until its batch has started all its processes.
fn start_run_with_descendants(service: &Service) -> Running {
    let mut run = Run::beside_service(service.target()).start_script(&script_with_child_grandchild_and_daemon());
    run.wait_until("batch's family was there", |_| batch_processes().len() >= 5);
    run
}

#[test]
fn a_killed_agent_leaves_nothing_behind_when_it_held_the_lane() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::start_bursty();
    let mut run = start_run_with_descendants(&service);
    run.wait_until_lane_is_held();
    run.kill();
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn killed_agent_leaves_nothing_behind_after_an_eviction() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let mut service = Service::start_busy_once(20);
    let mut run = start_run_with_descendants(&service);
    service.start_work();
    run.wait_until_audited("evict", 0);
    run.kill();
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn a_killed_agent_leaves_nothing_behind_when_batch_ran() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::idle();
    let mut run = start_run_with_descendants(&service);
    run.kill();
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn a_killed_guardian_is_replaced() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::start_bursty();
    let mut run =
        Run::beside_service(service.target()).start_script(&format!("echo $$; exec timeout 2 sh -c '{SPIN}'"));
    run.batch_pid();
    let guardian = run.wait_for_guardian_other_than(None);
    kill(guardian);
    run.wait_for_guardian_other_than(Some(guardian));
    run.wait_for_end().expect_exit_code(124).expect_stderr_contains(&["the guardian process was ended"]);
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn a_replaced_guardian_knows_what_to_undo() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::start_sleeping_on_both_lanes();
    let mut run = Run::beside_service(service.target())
        .with_more_arguments(&["--pin-service"])
        .start_script(&script_with_child_grandchild_and_daemon());
    run.wait_until("batch's family was there", |_| batch_processes().len() >= 5);
    let guardian = run.wait_for_guardian_other_than(None);
    let killed_ns = now_ns();
    kill(guardian);
    run.wait_for_guardian_other_than(Some(guardian));
    // The agent writes this note after the new guardian has received the list of changes to undo.
    run.wait_until_audited("note", killed_ns);
    run.kill();
    before.wait_until_restored();
    wait_until("the service had its CPUs back", || service.allowed_cpus() == "0-1");
}

#[test]
fn batch_is_stopped_while_the_agent_is_stopped() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    for stop in [libc::SIGSTOP, libc::SIGTSTP] {
        let mut run = Run::beside_service(service.target()).start_script(&spin_script());
        let batch = run.batch_pid();
        run.signal(stop);
        wait_until("batch was frozen", || !wants_cpu(batch));
        let frozen_at_ticks = cpu_ticks(batch);
        run.signal(libc::SIGCONT);
        wait_until("batch went on", || cpu_ticks(batch) > frozen_at_ticks);
        run.signal(libc::SIGTERM);
        run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
    }
}

#[test]
fn batch_goes_on_when_the_service_ends() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::busy();
    let mut run = Run::beside_service(service.target()).start_script(&format!("{UNTIL_END_OF_INPUT}; echo done"));
    run.wait_until_audited("evict", 0);
    let ended_ns = now_ns();
    service.end();
    run.wait_until_audited("restore", 0);
    run.wait_until_audited("note", ended_ns);
    let run = run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["has ended", "batch went on"]);
    assert_eq!(run.stdout, "ready\ndone\n");
}

/// In a container whose first process does not reap, dead processes stay in the process table.
#[test]
fn unreaped_zombie_service_has_ended() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    let mut run = Run::beside_service(service.target()).start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    let died_ns = now_ns();
    service.kill_without_reaping();
    run.wait_until_audited("note", died_ns);
    run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["has ended"]);
}

#[test]
fn unreaped_zombie_service_is_not_found() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_bursty();
    service.kill_without_reaping();
    Run::beside_service(service.target())
        .run_to_end(&["true"])
        .expect_exit_code(125)
        .expect_stderr_contains(&["cannot find the service"]);
}

#[test]
fn lane_is_held_again_for_a_restarted_service() {
    let Some(_turn) = lock_lanes() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = Service::start_bursty_at(listener);
    let mut run = Run::beside_service(format!("port:{}", address.port())).start_script(&spin_script());
    run.wait_until_audited("hold", 0);
    let ended_ns = now_ns();
    service.end();
    run.wait_until_audited("note", ended_ns);
    let back_ns = now_ns();
    let _service = Service::start_bursty_at(TcpListener::bind(address).unwrap());
    run.wait_until_audited("hold", back_ns);
    run.signal(libc::SIGTERM);
    run.wait_for_end()
        .expect_exit_code(128 + libc::SIGTERM)
        .expect_stderr_contains(&["was restarted; sidelane found its new process"]);
}

#[test]
fn working_service_that_moves_to_the_batch_lane_evicts_batch() {
    let Some(_turn) = lock_lanes() else { return };
    check_batch_follows_service(Service::start_bursty(), |_| ());
}

#[test]
fn resting_service_that_moves_to_the_batch_lane_evicts_batch() {
    let Some(_turn) = lock_lanes() else { return };
    check_batch_follows_service(Service::start_busy_once(2), Service::start_work);
}

#[track_caller]
fn check_batch_follows_service(mut service: Service, once_moved: impl Fn(&mut Service)) {
    let mut run = Run::beside_service(service.target()).start_script(&spin_script());
    let batch = run.batch_pid();
    service.set_affinity(BATCH_LANE);
    once_moved(&mut service);
    run.wait_until_audited("evict", 0);
    wait_until("batch was away", || !wants_cpu(batch));
    service.must_be_unharmed(BATCH_LANE);
    let away_at_ticks = cpu_ticks(batch);
    service.set_affinity(REQUEST_LANE);
    wait_until("batch was back", || cpu_ticks(batch) > away_at_ticks);
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(128 + libc::SIGTERM).expect_stderr_contains(&["ran on a batch lane"]);
    let why = "the service has threads on the batch lane";
    assert!(run.audit().iter().any(|entry| entry["action"] == "evict" && entry["why"] == why), "{:?}", run.audit());
}

#[test]
fn batch_that_forks_all_the_time_is_kept_in_its_lane() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::start_bursty();
    let forks = "i=0; while [ $i -lt 200 ]; do (: & : &) & i=$((i+1)); done; wait";
    let run = Run::beside_service(service.target()).run_to_end(&["sh", "-c", forks]).expect_exit_code(0);
    assert!(run.figure("holds_count") > 0.0, "{:?}", run.figures());
    let strayed = ["outside its lanes", "on a lane that was held"];
    assert!(!strayed.iter().any(|note| run.stderr.contains(note)), "{run}");
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn batch_cannot_leave_its_lane_by_itself() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let script = format!("taskset -c -p {REQUEST_LANE} $$ >/dev/null 2>&1; {}", spin_script());
    let mut run = Run::beside_service(service.target()).start_script(&script);
    let batch = run.batch_pid();
    wait_until("batch was in its lane", || allowed_cpus(batch).as_deref() == Some(BATCH_LANE));
}

#[test]
fn batch_that_leaves_its_lane_is_returned_without_a_cpuset() {
    const CPUSET: &str = "/sys/fs/cgroup/cpuset";
    let Some(_turn) = lock_lanes() else { return };
    if !Path::new(CPUSET).exists() {
        return sidelane_testing::skip(format!("needs a v1 cpuset hierarchy at {CPUSET}, to take it away"));
    }
    check_stray_batch_is_moved_back(&format!("umount {CPUSET}"));
}

#[test]
fn batch_that_leaves_its_lane_is_returned_without_any_group() {
    let Some(_turn) = lock_lanes() else { return };
    check_stray_batch_is_moved_back(ALL_GROUPS);
}

#[test]
fn children_of_batch_end_with_it_without_any_group() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::idle();
    let script = format!("setsid sh -c '(timeout 20 sh -c \"{SPIN}\" &)' & {UNTIL_END_OF_INPUT}");
    let run = Run::beside_service(service.target()).through_wrapper(&unmount_prefix(ALL_GROUPS));
    let mut run = run.start_script(&script);
    run.wait_until("the daemon was there", |_| batch_processes().len() >= 3);
    run.wait_for_end().expect_exit_code(0);
    before.wait_until_restored();
}

#[track_caller]
fn check_stray_batch_is_moved_back(unmount: &str) {
    let service = Service::idle();
    let script = format!("taskset -c -p {REQUEST_LANE} $$ >/dev/null; {}", spin_script());
    let mut run = Run::beside_service(service.target()).through_wrapper(&unmount_prefix(unmount)).start_script(&script);
    let batch = run.batch_pid();
    wait_until("batch was back in its lane", || allowed_cpus(batch).as_deref() == Some(BATCH_LANE));
    run.signal(libc::SIGTERM);
    let run =
        run.wait_for_end().expect_exit_code(128 + libc::SIGTERM).expect_stderr_contains(&["no cgroup with a cpuset"]);
    // Sidelane reports either that batch ran outside its lanes, or only that its affinity was changed. On a busy
    // machine batch may be put back before it runs on the other CPU.
    let told = ["outside its lanes", "was given other CPUs"];
    assert!(told.iter().any(|told| run.stderr.contains(told)), "{run}");
}

#[test]
fn a_pinned_service_gets_its_cpus_back() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_sleeping_on_both_lanes();
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--pin-service"]).start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    assert_eq!(service.allowed_cpus(), REQUEST_LANE);
    run.wait_for_end().expect_exit_code(0);
    assert_eq!(service.allowed_cpus(), "0-1");
}

#[test]
fn a_pinned_service_gets_its_cpus_back_from_a_killed_agent() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_sleeping_on_both_lanes();
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--pin-service"]).start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    assert_eq!(service.allowed_cpus(), REQUEST_LANE);
    run.kill();
    wait_until("the service had its CPUs back", || service.allowed_cpus() == "0-1");
    assert!(is_alive(service.pid()));
}

/// The kernel would give batch 5 % of a lane that a real-time thread keeps for itself. So batch is evicted while the
/// service works.
#[test]
fn evicted_batch_gets_no_cpu_time_during_a_long_hold() {
    let Some(_turn) = lock_lanes() else { return };
    let run = run_until_long_hold(
        LaneState::Evicted,
        |run| run,
        |lane, batch| {
            // A summons sent before the eviction may reach the keeper after it, and the lane is then not kept free for
            // a moment. So the test waits until the lane is kept free.
            wait_until("batch was away, and the lane kept", || !wants_cpu(batch) && lane.is_kept_free());
            let away_at_ticks = cpu_ticks(batch);
            // The lane is held again for a moment if the cgroup was not frozen within 1 ms.
            let is_off =
                || matches!(lane.state(), Some(LaneState::Evicted | LaneState::Held)) && !lane.is_batch_on_lane();
            (0..LOOKS).for_each(|_| assert!(is_off(), "{:?}", lane.state()));
            assert_eq!(cpu_ticks(batch), away_at_ticks, "batch ran on");
        },
    );
    assert_eq!(run.figure("evictions_count"), 1.0, "{:?}", run.figures());
    assert!(!run.stderr.contains("on a lane that was held"), "{run}");
}

/// Time that the kernel still gives batch is outside Sidelane's control.
#[test]
fn lane_stays_held_if_batch_cannot_be_evicted() {
    let Some(_turn) = lock_lanes() else { return };
    let without_groups = |run: Run| run.through_wrapper(&unmount_prefix(ALL_GROUPS));
    let run = run_until_long_hold(LaneState::Held, without_groups, |lane, _| {
        let held_long_at_ns = lane.busy_since_ns() + 1_000_000_000;
        wait_until("the hold was a long one", || now_ns() > held_long_at_ns);
        (0..LOOKS).for_each(|_| assert_eq!(lane.state(), Some(LaneState::Held)));
    });
    run.expect_stderr_contains(&["no cgroup with a freezer", "could not be moved away"]);
}

/// Number of consecutive reads of the lane's state: more than enough to see batch that runs for a scheduler's tick.
const LOOKS: usize = 5_000;

/// Runs batch beside a service that works without a pause. When the lane is in the state `state` and `check` has
/// returned, the service stops. Then the function waits until batch runs again.
#[track_caller]
fn run_until_long_hold(state: LaneState, configure_run: impl Fn(Run) -> Run, check: impl Fn(&Words, u32)) -> Finished {
    let mut service = Service::on_command();
    let mut run = configure_run(Run::beside_service(service.target())).start_script(&spin_script());
    let batch = run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    service.work();
    run.wait_until("the lane was kept", |_| lane.state() == Some(state));
    check(&lane, batch);
    service.rest();
    run.wait_until("batch had the lane again", |_| lane.has_batch_in_state(LaneState::Released));
    let released_at_ticks = cpu_ticks(batch);
    wait_until("batch went on", || cpu_ticks(batch) > released_at_ticks);
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGTERM)
}

/// Returns a command prefix that makes some mounts missing for the command after it.
fn unmount_prefix(unmount: &str) -> [String; 5] {
    ["unshare", "--mount", "sh", "-c", &format!("{unmount} && exec \"$0\" \"$@\"")].map(str::to_owned)
}
