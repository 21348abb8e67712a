//! Tests of corner cases that could break a run: cgroups below cgroups, batch that leaves its own cgroup, and threads
//! created during a run. Further cases are lanes that cross, a lane that goes away, and a cgroup that is ended as a
//! whole.

mod common;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::agent::{SIDELANE, batch_processes};
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::process::{allowed_cpus, is_alive, marked_pids, threads_named, wants_cpu};
use common::{Footprint, Run, SPIN, Service, UNTIL_END_OF_INPUT, Words, lock_lanes, wait_until};
use sidelane_host::cgroup::{BatchGroup, Hierarchy, processes_in_tree};
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::with_descendants;
use sidelane_policy::borrow::LaneState;

/// Exit code of `sidelane run` for its own errors.
const EXIT_OWN_FAILURE: i32 = 125;

/// Cgroup of the test in each hierarchy in which one can be created; removed with the test.
struct Groups(Vec<BatchGroup>);

impl Groups {
    fn make(wanted: impl Fn(&Hierarchy) -> bool) -> Self {
        let name = format!("corner-{}-{:?}", std::process::id(), std::thread::current().id()).replace(['(', ')'], "");
        let hierarchies = Hierarchy::all().into_iter().filter(wanted);
        Self(hierarchies.filter_map(|found| BatchGroup::create(&found, &name).ok()).collect())
    }

    /// Returns a shell command that enters all cgroups.
    fn enter_command(&self) -> String {
        self.0.iter().map(|leaf| format!("echo $$ >{}/cgroup.procs; ", leaf.dir.display())).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.0.iter().for_each(|leaf| drop(leaf.remove()));
    }
}

/// Script of a service that forks on command.
const FORKS: &str = "read -r _; sleep 300 & exec sleep 1000";

#[test]
fn child_of_a_pinned_service_gets_its_cpus_back() {
    let Some(_turn) = lock_lanes() else { return };
    for kill in [false, true] {
        let mut service = Command::new("sh");
        let service = common::process::kill_with_test(&mut service).args(["-c", FORKS]);
        let mut service = service.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let both = allowed_cpus(service.id());
        let beside = Run::beside_service(format!("pid:{}", service.id())).with_more_arguments(&["--pin-service"]);
        let mut run = beside.start_script(UNTIL_END_OF_INPUT);
        run.first_line();
        service.stdin.take().unwrap().write_all(b"fork\n").unwrap();
        let newborn = || with_descendants(&[service.id()].into()).into_iter().find(|pid| *pid != service.id());
        wait_until("a child was born to the service", || newborn().is_some());
        let child = newborn().unwrap();
        assert_eq!(allowed_cpus(child).as_deref(), Some(REQUEST_LANE));
        if kill {
            run.kill();
            wait_until("the child had its CPUs", || allowed_cpus(child) == both);
        } else {
            run.wait_for_end().expect_exit_code(0);
            assert_eq!(allowed_cpus(child), both);
        }
        wait_until("the service had its CPUs", || allowed_cpus(service.id()) == both);
        common::process::kill(child);
        service.kill().unwrap();
        service.wait().unwrap();
    }
}

#[test]
fn batch_that_leaves_its_group_is_returned_and_ended() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let groups = Groups::make(|_| true);
    let service = Service::idle();
    let script = format!("(setsid sh -c '{SPIN}' &) & {} echo $$; {SPIN}", groups.enter_command());
    let mut run = Run::beside_service(service.target()).start_script(&script);
    let batch = run.batch_pid();
    let batch_group = format!("sidelane-{}", run.pid());
    let batch_groups = Hierarchy::all().into_iter().filter_map(|found| Some(found.own_dir()?.join(&batch_group)));
    let batch_groups: Vec<PathBuf> = batch_groups.filter(|dir| dir.exists()).collect();
    let is_home = || batch_groups.iter().all(|dir| processes_in_tree(dir).contains(&batch));
    run.wait_until("batch was back in its group", |_| is_home());
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGTERM).expect_stderr_contains(&["batch left the cgroup"]);
    drop(groups);
    before.wait_until_restored();
}

/// The process ends before a regular check has seen that it left the cgroup.
#[test]
fn batch_that_has_just_left_its_group_ends_with_the_run() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let groups = Groups::make(|_| true);
    let service = Service::idle();
    let script =
        format!("{} setsid sh -c '{SPIN}' & while [ \"$(ls /proc/$!/exe)\" = '' ]; do :; done", groups.enter_command());
    let run = Run::beside_service(service.target()).start_script(&script);
    run.wait_for_end().expect_exit_code(0);
    assert_eq!(batch_processes(), Vec::<u32>::new());
    drop(groups);
    before.wait_until_restored();
}

#[test]
fn batch_outside_its_group_is_evicted_too() {
    let Some(_turn) = lock_lanes() else { return };
    let groups = Groups::make(|_| true);
    let mut service = Service::on_command();
    let mut run =
        Run::beside_service(service.target()).start_script(&format!("{} echo $$; {SPIN}", groups.enter_command()));
    let batch = run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    service.work();
    run.wait_until("batch was away", |_| lane.state() == Some(LaneState::Evicted) && !wants_cpu(batch));
    service.rest();
    run.wait_until("batch was back", |_| lane.has_batch_in_state(LaneState::Released));
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
}

#[test]
fn groups_made_by_batch_are_removed_and_its_exit_code_kept() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let service = Service::idle();
    let above: Vec<PathBuf> = Hierarchy::all().iter().filter_map(Hierarchy::own_dir).collect();
    let mkdir = |dir: &PathBuf| {
        let own = format!("{}/sidelane-$PPID", dir.display());
        format!("[ ! -d {own} ] || mkdir -p {own}/one/two {own}/other; ")
    };
    let script: String = above.iter().map(mkdir).collect();
    let run = Run::beside_service(service.target()).run_to_end(&["sh", "-c", &format!("{script} exit 7")]);
    run.expect_exit_code(7).figure("wall_s");
    before.wait_until_restored();
}

/// The holder of one run would be on a lane of the other run's service.
#[test]
fn the_request_lane_of_a_run_is_no_batch_lane_of_another() {
    let Some(_turn) = lock_lanes() else { return };
    let (service, other) = (Service::idle(), Service::idle());
    other.set_affinity(BATCH_LANE);
    let mut run = Run::beside_service(service.target()).start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    let crossed =
        Run::with_arguments(&["run", "--lanes", "1:0", "--service", &other.target()]).run_to_end(&["echo", "ran"]);
    let owner = format!("process {}", run.pid());
    let crossed = crossed.expect_exit_code(EXIT_OWN_FAILURE);
    let crossed =
        crossed.expect_stderr_contains(&["batch lane 0: it is a request lane of another sidelane", &owner, "--lanes"]);
    assert_eq!(crossed.stdout, "");
    run.wait_for_end().expect_exit_code(0);
}

/// When the lane goes offline, the kernel itself moves each thread off it.
#[test]
fn holder_moved_off_its_lane_ends_the_run() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let mut service = Service::on_command();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    run.batch_pid();
    let lane = Words::wait_and_map(&mut run);
    service.work();
    run.wait_until("the lane was kept", |_| lane.is_kept_free());
    let holder = threads_named(run.pid(), "holder-1")[0];
    pin_thread(holder, &[REQUEST_LANE.parse().unwrap()]).unwrap();
    let ended = run.wait_for_end().expect_exit_code(EXIT_OWN_FAILURE);
    ended.expect_stderr_contains(&[&format!("batch lane {BATCH_LANE} went offline"), "--lanes"]);
    assert!(is_alive(service.pid()));
    before.wait_until_restored();
}

/// The input is longer than a pipe can hold, with an empty line and one that was not written to its end.
#[test]
fn guardian_undoes_its_list_after_malformed_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = |number: usize| dir.path().join(format!("claim-{number}"));
    let told = |number: usize| {
        fs::write(file(number), "").unwrap();
        let path = file(number).display().to_string();
        format!("{{\"Add\":[{number},{{\"Claim\":{{\"file\":\"{path}\",\"inode\":null}}}}]}}\n")
    };
    let mut guardian = Command::new(SIDELANE);
    let guardian = guardian.arg(sidelane_rollback::guardian::VERB).arg(std::process::id().to_string());
    let mut guardian = guardian.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = guardian.stdin.take().unwrap();
    let lines: String = (0..1000).map(told).collect();
    assert!(lines.len() > 64 * 1024);
    pipe.write_all(lines.as_bytes()).unwrap();
    pipe.write_all(b"{\"Unheard\":1}\n").unwrap();
    pipe.write_all(told(1000).as_bytes()).unwrap();
    pipe.write_all("{\"Add\":[1001,{\"Claim\":{\"file\":\"/büro".as_bytes().split_last_chunk::<3>().unwrap().0)
        .unwrap();
    drop(pipe);
    guardian.wait().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_guardian_outlives_the_group_of_its_agent() {
    let Some(_turn) = lock_lanes() else { return };
    let groups = Groups::make(Hierarchy::is_v2);
    let Some(group) = groups.0.first().filter(|group| group.has_control_file("cgroup.kill")) else {
        return sidelane_testing::skip("needs a v2 group with cgroup.kill (Linux 5.14)".to_owned());
    };
    let before = Footprint::capture();
    let service = Service::start_sleeping_on_both_lanes();
    let both = service.allowed_cpus();
    let beside = Run::beside_service(service.target()).with_more_arguments(&["--pin-service"]);
    let beside = beside.through_wrapper(&["sh", "-c", &format!("{} exec \"$0\" \"$@\"", groups.enter_command())]);
    let mut run = beside.start_script(&format!("echo $$; {SPIN}"));
    run.batch_pid();
    assert_eq!(service.allowed_cpus(), REQUEST_LANE);
    group.write("cgroup.kill", "1").unwrap();
    wait_until("the agent was gone", || !is_alive(run.pid()));
    wait_until("the service had its CPUs", || service.allowed_cpus() == both);
    wait_until("all were gone", || marked_pids().into_iter().all(|pid| !is_alive(pid)));
    run.kill_if_there();
    before.wait_until_restored();
}
