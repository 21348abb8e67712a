//! Tests of ways out of batch's cgroups: threaded cgroups, threads that leave alone, wider lists of CPUs. The table in
//! docs/explanation/security.md lists them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::c_program::compile_text;
use common::lanes::BATCH_LANE;
use common::process::{allowed_cpus, wants_cpu};
use common::{Footprint, Job, Run, Running, SPIN, Service, Words, lock_lanes, wait_until};
use sidelane_host::cgroup::{BatchGroup, Hierarchy, threads_in_tree};
use sidelane_host::procfs::thread_cpus;
use sidelane_policy::borrow::LaneState;

/// Command prefix that hides the cgroups of version 2.
const WITHOUT_V2: [&str; 4] = ["unshare", "--mount", "sh", "-c"];

/// Program with two busy threads, which prints the ids of the process and of the second thread. The second thread moves
/// itself repeatedly into each cgroup in its arguments.
const LEAVES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static char **groups;
static void spin(void) {
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += end.tv_nsec / 980000000;
    end.tv_nsec = (end.tv_nsec + 20000000) % 1000000000;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}
static void *second(void *unused) {
    char self[16];
    snprintf(self, sizeof self, "%ld", syscall(SYS_gettid));
    printf("%d\n%s\n", getpid(), self);
    fflush(stdout);
    for (;;) {
        for (char **group = groups; *group; group++) {
            int file = open(*group, O_WRONLY);
            if (file >= 0 && write(file, self, strlen(self)) < 0) perror(*group);
            close(file);
        }
        spin();
    }
    return unused;
}
int main(int count, char **words) {
    pthread_t thread;
    groups = words + (count > 0);
    pthread_create(&thread, 0, second, 0);
    for (;;) spin();
}
"#;

fn cgroup_v2_hierarchy() -> Option<Hierarchy> {
    let found = Hierarchy::all().into_iter().find(Hierarchy::is_v2);
    if found.is_none() {
        sidelane_testing::skip("needs cgroup v2");
    }
    found
}

/// Returns the cgroup of the run's batch in this hierarchy, if it has one.
fn batch_group_in(hierarchy: &Hierarchy, run: &Running) -> Option<BatchGroup> {
    let dir = hierarchy.own_dir()?.join(format!("sidelane-{}", run.pid()));
    dir.exists().then_some(BatchGroup { dir })
}

/// Returns the ids of the process and the thread that the program `LEAVES` prints.
fn read_printed_ids(run: &mut Running) -> (u32, u32) {
    run.wait_until("batch told its threads", |run| run.output().lines().count() >= 2);
    let numbers: Vec<u32> = run.output().lines().take(2).map(|line| line.parse().unwrap()).collect();
    (numbers[0], numbers[1])
}

/// Starts a run of the program `LEAVES` beside a service. Returns the run, its lane, and the ids of its process and
/// second thread.
fn start(program: &Path, service: &common::ServiceOnCommand) -> (Running, Words, [u32; 2]) {
    let mut run = Run::beside_service(service.target()).start(&[program.to_str().unwrap()]);
    let lane = Words::wait_and_map(&mut run);
    let (pid, tid) = read_printed_ids(&mut run);
    (run, lane, [pid, tid])
}

fn end(run: Running) -> common::Finished {
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGTERM)
}

/// Makes a cgroup a threaded one, which works only for an empty cgroup. Returns whether the cgroup is threaded now.
fn make_threaded(leaf: &BatchGroup) -> bool {
    let made = leaf.write("cgroup.type", "threaded");
    if let Err(error) = &made {
        sidelane_testing::skip(format!("needs threaded groups: {error}"));
    }
    made.is_ok()
}

/// Makes the service work until all threads of batch are frozen.
fn work_until_batch_frozen(run: &mut Running, service: &mut common::ServiceOnCommand, lane: &Words, threads: &[u32]) {
    service.work();
    run.wait_until("batch was away", |_| {
        lane.state() == Some(LaneState::Evicted)
            && !lane.is_batch_on_lane()
            && threads.iter().all(|tid| !wants_cpu(*tid))
    });
}

#[test]
fn thread_in_a_threaded_subgroup_is_held_and_evicted() {
    let Some(_turn) = lock_lanes() else { return };
    let (Some(v2), dir) = (cgroup_v2_hierarchy(), tempfile::tempdir().unwrap()) else { return };
    let Some(program) = compile_text("leaves", LEAVES, dir.path()) else { return };
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let (mut run, lane, [pid, tid]) = start(&program, &service);
    let Some(batch_group) = batch_group_in(&v2, &run) else {
        return sidelane_testing::skip("needs a group of cgroup v2");
    };
    let below = BatchGroup { dir: batch_group.dir.join("below") };
    fs::create_dir(&below.dir).unwrap();
    if !make_threaded(&below) {
        return;
    }
    below.write("cgroup.threads", &tid.to_string()).unwrap();
    assert_eq!(allowed_cpus(tid).as_deref(), Some(BATCH_LANE));
    work_until_batch_frozen(&mut run, &mut service, &lane, &[pid, tid]);
    service.rest();
    run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    let run = end(run);
    assert!(!run.stderr.contains("left the cgroup"), "it did not leave: {run}");
    before.wait_until_restored();
}

/// The cgroup of batch becomes a threaded one, in which the kernel lists no processes.
#[test]
fn thread_that_leaves_a_threaded_group_is_returned() {
    let Some(_turn) = lock_lanes() else { return };
    let (Some(v2), dir) = (cgroup_v2_hierarchy(), tempfile::tempdir().unwrap()) else { return };
    let Some(program) = compile_text("leaves", LEAVES, dir.path()) else { return };
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let (mut run, lane, [pid, tid]) = start(&program, &service);
    let Some(batch_group) = batch_group_in(&v2, &run) else {
        return sidelane_testing::skip("needs a group of cgroup v2");
    };
    let above = BatchGroup { dir: batch_group.dir.parent().unwrap().to_owned() };
    above.move_process_in(pid).unwrap();
    if !make_threaded(&batch_group) {
        return;
    }
    let are_home = || [pid, tid].iter().all(|tid| threads_in_tree(&batch_group.dir).contains(tid));
    run.wait_until("batch was back in its group", |_| are_home());
    above.write("cgroup.threads", &tid.to_string()).unwrap();
    run.wait_until("the thread was back in its group", |_| are_home());
    work_until_batch_frozen(&mut run, &mut service, &lane, &[pid, tid]);
    service.rest();
    run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    end(run).expect_stderr_contains(&["batch left the cgroup"]);
    before.wait_until_restored();
}

/// In cgroup version 1 each thread has a cgroup. The thread is outside batch's cgroup when batch is frozen.
#[test]
fn thread_outside_its_groups_is_evicted_too() {
    let Some(_turn) = lock_lanes() else { return };
    let v1 = |found: &Hierarchy| found.has_controller("freezer") || found.has_controller("cpuset");
    let above: Vec<PathBuf> =
        Hierarchy::all().iter().filter(|found| v1(found)).filter_map(Hierarchy::own_dir).collect();
    if !Hierarchy::all().iter().any(|found| found.has_controller("freezer")) {
        return sidelane_testing::skip("needs a freezer of cgroup v1: in v2 a group holds whole processes");
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile_text("leaves", LEAVES, dir.path()) else { return };
    let unified = Hierarchy::all().into_iter().find(Hierarchy::is_v2).map(|found| found.mount.display().to_string());
    let unmount = unified.map_or_else(String::new, |mount| format!("umount {mount} && "));
    let mut service = Service::on_command();
    let before = Footprint::capture();
    let through = WITHOUT_V2.map(str::to_owned).into_iter().chain([format!("{unmount}exec \"$0\" \"$@\"")]);
    let run = Run::beside_service(service.target()).through_wrapper(&through.collect::<Vec<_>>());
    let tasks: Vec<String> = above.iter().map(|dir| dir.join("tasks").display().to_string()).collect();
    let words: Vec<&str> = [program.to_str().unwrap()].into_iter().chain(tasks.iter().map(String::as_str)).collect();
    let mut run = run.start(&words);
    let lane = Words::wait_and_map(&mut run);
    let (pid, tid) = read_printed_ids(&mut run);
    run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    let batch_group = format!("sidelane-{}", run.pid());
    let is_home = |line: &str| line.contains("freezer") && line.ends_with(&batch_group);
    let groups = || fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap();
    run.wait_until("the thread had left", |_| !groups().lines().any(is_home));
    work_until_batch_frozen(&mut run, &mut service, &lane, &[pid, tid]);
    lane.check_no_batch_while_held();
    service.rest();
    run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    // The thread is put back by the eviction, which writes no note, by the watchdog, or by the regular check.
    end(run);
    before.wait_until_restored();
}

/// In cgroup version 1 a cgroup cannot have fewer CPUs than the cgroups below it.
#[test]
fn wider_cpuset_of_a_subgroup_of_batch_is_narrowed() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let batch = run.batch_pid();
    let batch_groups = Hierarchy::all().into_iter().filter_map(|found| batch_group_in(&found, &run));
    let Some(batch_group) = batch_groups.into_iter().find(|batch_group| batch_group.has_control_file("cpuset.cpus"))
    else {
        return sidelane_testing::skip("needs a cpuset");
    };
    let below = BatchGroup { dir: batch_group.dir.join("below") };
    fs::create_dir(&below.dir).unwrap();
    batch_group.write("cpuset.cpus", "0-1").unwrap();
    if below.has_control_file("cpuset.cpus") {
        let nodes = batch_group.read("cpuset.mems").unwrap();
        below.write("cpuset.mems", &nodes).unwrap();
        below.write("cpuset.cpus", "0-1").unwrap();
    }
    below.move_process_in(batch).unwrap();
    run.wait_until("batch was narrow again", |_| allowed_cpus(batch).as_deref() == Some(BATCH_LANE));
    run.wait_until("its group was", |_| batch_group.read("cpuset.cpus").is_ok_and(|cpus| cpus == BATCH_LANE));
    end(run).expect_stderr_contains(&["the control group of batch", "other CPUs than the batch lanes"]);
}

/// Widens the CPU list of the job's cgroup, as its owner may, after the run has adopted `target`. Checks that the job
/// stays in its lane.
fn check_widened_cgroup_is_compensated(target: impl Fn(&Job) -> String) -> Option<common::Finished> {
    let has_list = |dir: &Path| dir.join("cpuset.cpus").exists();
    let job = Job::start_in_cgroups(|found| found.own_dir().is_some_and(|dir| has_list(&dir)))?;
    let service = Service::idle();
    let list = || job.group().read("cpuset.cpus").unwrap();
    let found = list();
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--adopt", &target(&job)]).start_without_batch();
    run.wait_until("the job was in its lane", |_| job.is_on_lane(BATCH_LANE));
    let spreads = || job.members().into_iter().any(|pid| thread_cpus(pid, pid).is_some_and(|cpus| cpus.contains(0)));
    for cpus in [BATCH_LANE, "0-1"] {
        // The kernel refuses a list if a process of the job is pinned to other CPUs, so errors are ignored.
        let _ = job.group().write("cpuset.cpus", cpus);
    }
    run.wait_until("the job was in its lane again", |_| job.is_on_lane(BATCH_LANE) && !spreads());
    if target(&job).starts_with("cgroup:") {
        run.wait_until("its group was narrow again", |_| list() == BATCH_LANE);
    }
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(0);
    wait_until("the group was as it was found", || list() == found || list() == "0-1");
    Some(run)
}

#[test]
fn widened_cpuset_of_adopted_batch_is_narrowed_again() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(run) = check_widened_cgroup_is_compensated(Job::target) else { return };
    run.expect_stderr_contains(&["the control group of batch", "other CPUs than the batch lanes"]);
}

/// The job is adopted by its first process, so its threads are confined, not its cgroup.
#[test]
fn adopted_batch_keeps_its_lane_if_a_parent_cpuset_widens() {
    let Some(_turn) = lock_lanes() else { return };
    check_widened_cgroup_is_compensated(|job| format!("pid:{}", job.pid()));
}
