//! Tests of `sidelane run --adopt`: batch that runs already borrows lanes like a batch command. At any end of the run,
//! batch gets its settings back.

mod common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::job::{SettingsByPid, is_held_on_lane, process_settings};
use common::lanes::{BATCH_LANE, LANES, REQUEST_LANE};
use common::process::{cpu_ticks, kill, wants_cpu};
use common::{Finished, Footprint, Job, Random, Run, Running, SPIN, Service, Words, lock_lanes, process, wait_until};
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::clock::now_ns;
use sidelane_host::procfs::thread_cpus;
use sidelane_policy::borrow::LaneState;

const EXIT_FAILURE: i32 = 125;
const EXIT_USAGE: i32 = 2;
/// Environment variable with the number of times that the agent is killed; more kills hit rarer moments.
const KILLS_VARIABLE: &str = "SIDELANE_ADOPT_KILLS";
const KILLS: u64 = 10;

fn is_v2(hierarchy: &Hierarchy) -> bool {
    hierarchy.is_v2()
}

fn is_v1(hierarchy: &Hierarchy) -> bool {
    hierarchy.has_controller("freezer") || hierarchy.has_controller("cpuset")
}

fn is_v1_cpuset(hierarchy: &Hierarchy) -> bool {
    hierarchy.has_controller("cpuset")
}

fn run_adopting(job: &Job, service: &str) -> Run {
    Run::beside_service(service).with_more_arguments(&["--adopt", &job.target()])
}

/// A busy process in SCHED_DEADLINE, as `chrt` shows it.
struct Deadline(Child);

impl Deadline {
    fn start() -> Option<Self> {
        let class = "-d --sched-runtime 1000000 --sched-deadline 10000000 --sched-period 20000000 0";
        let mut command = Command::new("chrt");
        let command = process::kill_with_test(&mut command).args(class.split(' ')).args(["sh", "-c", SPIN]);
        let started = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
        let mut ends_with = false;
        wait_until("it was in its class, or refused", || {
            ends_with = process::scheduling_class(started.0.id()).as_deref() == Some("6");
            ends_with || !process::is_alive(started.0.id())
        });
        if !ends_with {
            sidelane_testing::skip("needs chrt, and a group that allows SCHED_DEADLINE");
        }
        ends_with.then_some(started)
    }

    fn chrt_output(&self) -> String {
        let told = Command::new("chrt").args(["-p", &self.0.id().to_string()]).output().expect("chrt runs");
        String::from_utf8_lossy(&told.stdout).into_owned()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn batch_in_sched_deadline_is_held_and_given_back() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(batch) = Deadline::start() else { return };
    let (pid, class) = (batch.0.id(), batch.chrt_output());
    assert!(class.contains("1000000/10000000/20000000"), "{class}");
    for kill in [false, true] {
        let mut service = Service::on_command();
        let before = Footprint::capture();
        let mut run = Run::beside_service(service.target())
            .with_more_arguments(&["--adopt", &format!("pid:{pid}")])
            .start_without_batch();
        let lane = Words::wait_and_map(&mut run);
        run.wait_until("batch was in its lane", |_| is_held_on_lane(pid, BATCH_LANE));
        run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
        service.work();
        run.wait_until("batch had left", |_| lane.is_kept_free() && !lane.is_batch_on_lane());
        service.rest();
        if kill {
            run.kill();
        } else {
            run.signal(libc::SIGTERM);
            run.wait_for_end().expect_exit_code(0);
        }
        wait_until("batch had its class back", || batch.chrt_output() == class);
        assert_eq!(process::allowed_cpus(pid).as_deref(), Some("0-1"));
        before.wait_until_restored();
    }
}

/// Settings of a job and of the machine that a run may change.
struct SettingsBefore {
    looks: SettingsByPid,
    groups: Vec<String>,
    footprint: Footprint,
}

impl SettingsBefore {
    fn from_job(job: &Job) -> Self {
        Self { looks: job.settings_by_pid(), groups: job.cgroup_settings(), footprint: Footprint::capture() }
    }

    /// Waits until the job has its settings back, and checks that it runs.
    #[track_caller]
    fn wait_until_restored(&self, job: &Job) {
        wait_until("the job's groups were as before", || job.cgroup_settings() == self.groups);
        let is_back = || job.settings_by_pid() == self.looks;
        let came_back = common::holds_within(common::TIMEOUT, is_back);
        assert!(came_back, "before: {:#?}\nafter: {:#?}", self.looks, job.settings_by_pid());
        self.footprint.wait_until_restored();
        job.check_is_running();
    }
}

/// Returns whether a process created by the job's first process has the settings of that process.
fn has_settings_of_first_process(pid: u32, job: &Job) -> bool {
    let look = |pid| {
        (
            process::allowed_cpus(pid),
            process::class_priority_and_nice(pid),
            std::fs::read(format!("/proc/{pid}/cgroup")).ok(),
        )
    };
    look(pid) == look(job.pid())
}

#[track_caller]
fn start_and_wait_for_hold(run: Run, job: &Job) -> Running {
    let mut run = run.start_without_batch();
    run.wait_until("the job was in its lane", |_| job.is_on_lane(BATCH_LANE));
    run
}

/// Checks that a run holds the job, and restores it if a POSIX signal ends the run. The run also restores a process
/// that the job created during the run. Returns the run that SIGINT ended, after one that SIGTERM ended.
#[track_caller]
fn check_job_restored_after_signal(job: &Job, configure_run: impl Fn(Run) -> Run) -> Finished {
    let before = SettingsBefore::from_job(job);
    let service = Service::start_bursty();
    let ended = [libc::SIGTERM, libc::SIGINT].map(|signal| {
        let mut run = start_and_wait_for_hold(configure_run(run_adopting(job, &service.target())), job);
        run.wait_until_audited("hold", 0);
        let newcomer = job.fork_long_lived_process();
        wait_until("the newcomer was held", || is_held_on_lane(newcomer, BATCH_LANE));
        run.signal(signal);
        let run =
            run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["adopted", &job.target(), "given back"]);
        assert!(run.audit().iter().any(|entry| entry["action"] == "end"), "{:?}", run.audit());
        assert!(
            has_settings_of_first_process(newcomer, job),
            "{} is not like {}",
            process_settings(newcomer),
            process_settings(job.pid())
        );
        kill(newcomer);
        before.wait_until_restored(job);
        run
    });
    service.must_be_unharmed(REQUEST_LANE);
    let [_, last] = ended;
    last
}

/// Checks that a job without a group gets its settings back after a fault of its run and of the run's guardian.
#[track_caller]
fn check_job_restored_after_fault(fault: impl Fn(&mut Running, u32)) {
    let Some(_turn) = lock_lanes() else { return };
    let job = Job::start_without_cgroup();
    let before = SettingsBefore::from_job(&job);
    let service = Service::start_bursty();
    let mut run = start_and_wait_for_hold(run_adopting(&job, &service.target()), &job);
    let guardian = run.wait_for_guardian_other_than(None);
    fault(&mut run, guardian);
    before.wait_until_restored(&job);
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn run_that_can_open_no_file_gives_batch_back() {
    check_job_restored_after_fault(|run, _| {
        process::forbid_open_files(run.pid());
        run.signal(libc::SIGTERM);
        wait_until("the run had ended", || run.has_ended());
    });
}

#[test]
fn guardian_that_can_open_no_file_gives_batch_back() {
    check_job_restored_after_fault(|run, guardian| {
        process::forbid_open_files(guardian);
        run.kill();
    });
}

#[test]
fn run_without_files_and_guardian_gives_batch_back() {
    check_job_restored_after_fault(|run, guardian| {
        process::forbid_open_files(run.pid());
        kill(guardian);
        wait_until("the run had ended, as it cannot start a guardian", || run.has_ended());
    });
}

/// A holder's thread of the killed run needs the lane to end; batch of a higher real-time class would not let it.
#[test]
fn realtime_batch_is_given_back_when_the_killed_run_is_gone() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let mut command = Command::new("chrt");
    let command = process::kill_with_test(&mut command).args(["--fifo", "20", "taskset", "-c", BATCH_LANE]);
    let mut batch = command.args(["sh", "-c", SPIN]).stdin(Stdio::null()).spawn().expect("chrt starts");
    let class = || process::class_priority_and_nice(batch.id())[..2].to_vec();
    let fifo = vec![Some("1".to_owned()), Some("20".to_owned())];
    wait_until("batch was in its class", || class() == fifo && process::command_line(batch.id())[0] == "sh");
    let service = Service::start_bursty();
    let adopt = ["--adopt".to_owned(), format!("pid:{}", batch.id())];
    let mut run = Run::beside_service(service.target()).with_more_arguments(&adopt).start_without_batch();
    run.wait_until("batch was in its lane", |_| is_held_on_lane(batch.id(), BATCH_LANE));
    run.wait_until_lane_is_held();
    run.kill();
    wait_until("batch had its class back", || class() == fifo);
    let _ = batch.kill().and_then(|()| batch.wait());
    before.wait_until_restored();
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn v2_group_is_restored_when_a_signal_ends_the_run() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    check_job_restored_after_signal(&job, |run| run);
}

#[test]
fn v1_group_is_restored_when_a_signal_ends_the_run() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v1) else { return };
    let run = check_job_restored_after_signal(&job, |run| run);
    let both = ["freezer", "cpuset"].map(|name| Hierarchy::all().iter().any(|found| found.has_controller(name)));
    let lacks = ["this process can make no", "has no cpuset"].iter().any(|what| run.stderr.contains(what));
    assert!(both != [true, true] || !lacks, "{run}");
}

/// The job's own cgroup is in a hierarchy without a freezer. So Sidelane creates a cgroup for the job in a hierarchy
/// that has one.
#[test]
fn group_without_freezer_is_restored_after_a_signal() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v1_cpuset) else { return };
    check_job_restored_after_signal(&job, |run| run);
}

#[test]
fn process_tree_is_restored_when_a_signal_ends_the_run() {
    let Some(_turn) = lock_lanes() else { return };
    check_job_restored_after_signal(&Job::start_without_cgroup(), |run| run);
}

#[test]
fn process_tree_is_restored_without_cgroups() {
    let Some(_turn) = lock_lanes() else { return };
    let unmount = ["unshare", "--mount", "sh", "-c", "umount --all --types cgroup,cgroup2 && exec \"$0\" \"$@\""];
    let run = check_job_restored_after_signal(&Job::start_without_cgroup(), |run| run.through_wrapper(&unmount));
    run.expect_stderr_contains(&[
        "no cgroup with a freezer",
        "has no cpuset that sidelane can change alone",
        "can make no cgroups",
    ]);
}

/// The run has changed some settings of batch before the refusal.
#[test]
fn batch_that_cannot_use_its_lane_is_refused_and_restored() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v1_cpuset) else { return };
    job.group().write("cpuset.cpus", REQUEST_LANE).unwrap();
    let before = SettingsBefore::from_job(&job);
    let service = Service::idle();
    let run = Run::beside_service(service.target()).with_more_arguments(&["--adopt", &format!("pid:{}", job.pid())]);
    run.start_without_batch().wait_for_end().expect_exit_code(EXIT_FAILURE).expect_stderr_contains(&[
        "a group above it may not have these CPUs; \
                                                                         give that group these CPUs, or choose other \
                                                                         lanes with --lanes",
    ]);
    before.wait_until_restored(&job);
}

#[test]
fn a_run_ends_with_the_batch_that_it_adopted() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(group) = Job::start_in_cgroups(is_v2) else { return };
    for mut job in [group, Job::start_without_cgroup()] {
        let (groups, footprint) = (job.cgroup_settings(), Footprint::capture());
        let service = Service::idle();
        let run = start_and_wait_for_hold(run_adopting(&job, &service.target()), &job);
        job.end();
        run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["adopted"]);
        assert_eq!(job.cgroup_settings(), groups);
        footprint.wait_until_restored();
    }
}

/// During each turn of the service the lane is held and adopted batch is off it, just like a batch command.
#[test]
fn adopted_batch_leaves_at_each_turn_of_the_service() {
    const TURNS: usize = 10;
    let Some(_turn) = lock_lanes() else { return };
    let job = Job::start_without_cgroup();
    let before = SettingsBefore::from_job(&job);
    let mut service = Service::on_command();
    let mut run = start_and_wait_for_hold(run_adopting(&job, &service.target()), &job);
    let lane = Words::wait_and_map(&mut run);
    for _ in 0..TURNS {
        run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
        let summons = lane.summons();
        service.work();
        assert!(lane.busy(), "{:?}", lane.state());
        lane.check_summoned_since(summons);
        run.wait_until("the lane was held", |_| lane.is_kept_free());
        lane.check_no_batch_while_held();
        service.rest();
    }
    run.wait_until("batch had the lane at last", |_| lane.has_batch_in_state(LaneState::Released));
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(0);
    assert_eq!(run.figure("holds_count") as usize, TURNS, "{:?}", run.audit());
    assert!(!run.stderr.contains("on a lane that was held"), "{run}");
    before.wait_until_restored(&job);
}

/// Checks that a run restores batch even if the run ends while batch is evicted. The service works without a break.
#[track_caller]
fn check_evicted_job_restored(job: &Job, end_run: impl Fn(Running)) {
    let before = SettingsBefore::from_job(job);
    let mut service = Service::start_busy_once(20);
    let mut run = start_and_wait_for_hold(run_adopting(job, &service.target()), job);
    service.start_work();
    run.wait_until_audited("evict", 0);
    let spinners = || job.long_lived_pids().into_iter().filter(|pid| wants_cpu(*pid)).count();
    wait_until("the job was frozen", || spinners() == 0);
    end_run(run);
    before.wait_until_restored(job);
    service.must_be_unharmed(REQUEST_LANE);
}

fn end_by_signal(run: Running) {
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(0);
}

fn end_by_kill(mut run: Running) {
    run.kill();
}

#[test]
fn group_frozen_by_an_eviction_is_thawed_at_the_end() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    check_evicted_job_restored(&job, end_by_signal);
    check_evicted_job_restored(&job, end_by_kill);
}

#[test]
fn tree_frozen_by_an_eviction_is_thawed_at_the_end() {
    let Some(_turn) = lock_lanes() else { return };
    let job = Job::start_without_cgroup();
    check_evicted_job_restored(&job, end_by_signal);
    check_evicted_job_restored(&job, end_by_kill);
}

/// Starts a run beside a service that works all the time, and waits until the run has evicted the job by freezing it. A
/// frozen job causes no summons: the lane is held because the service already works at the start of the run. If the
/// kernel hides the service's context switches from the run, the run is ended and started again.
fn start_run_that_evicts(job: &Job, service: &str, end_run: impl Fn(Running)) -> Running {
    const TRIES: usize = 10;
    const LONG: Duration = Duration::from_secs(15);
    for _ in 0..TRIES {
        let run = start_and_wait_for_hold(run_adopting(job, service).with_more_arguments(&["--gate", "freezer"]), job);
        if common::holds_within(LONG, || run.has_audited("evict", 0)) {
            return run;
        }
        end_run(run);
    }
    panic!("the service was not seen at work in {TRIES} runs");
}

#[test]
fn a_group_that_was_found_frozen_stays_frozen() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    job.group().write("cgroup.freeze", "1").unwrap();
    let (looks, groups) = (job.settings_by_pid(), job.cgroup_settings());
    let spinner = job.long_lived_pids().into_iter().max_by_key(|pid| cpu_ticks(*pid)).unwrap();
    wait_until("the job was frozen", || !wants_cpu(spinner));
    let ticks = cpu_ticks(spinner);
    let mut service = Service::on_command();
    for end in [end_by_signal, end_by_kill] {
        let end = |run| {
            end(run);
            wait_until("the job was as before", || job.settings_by_pid() == looks && job.cgroup_settings() == groups);
        };
        service.work();
        let mut run = start_run_that_evicts(&job, &service.target(), end);
        service.rest();
        run.wait_until_audited("restore", 0);
        end(run);
        assert_eq!(cpu_ticks(spinner), ticks, "the job ran");
    }
}

#[test]
fn a_group_that_its_owner_thaws_runs_on() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    let before = SettingsBefore::from_job(&job);
    let mut service = Service::on_command();
    job.group().write("cgroup.freeze", "1").unwrap();
    let mut run = start_and_wait_for_hold(
        run_adopting(&job, &service.target()).with_more_arguments(&["--gate", "freezer"]),
        &job,
    );
    job.group().write("cgroup.freeze", "0").unwrap();
    service.work();
    run.wait_until("the group was frozen by Sidelane", |_| job.group().read("cgroup.freeze").unwrap() == "1");
    service.rest();
    run.wait_until("the group was thawed", |_| job.group().read("cgroup.freeze").unwrap() == "0");
    job.check_is_running();
    end_by_signal(run);
    before.wait_until_restored(&job);
}

#[test]
fn adopted_batch_is_stopped_while_the_agent_is_stopped() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    let before = SettingsBefore::from_job(&job);
    let service = Service::idle();
    let run = start_and_wait_for_hold(run_adopting(&job, &service.target()), &job);
    run.signal(libc::SIGSTOP);
    wait_until("the job was frozen", || job.group().read("cgroup.freeze").unwrap() == "1");
    run.signal(libc::SIGCONT);
    wait_until("the job went on", || job.group().read("cgroup.freeze").unwrap() == "0");
    job.check_is_running();
    end_by_signal(run);
    before.wait_until_restored(&job);
}

#[test]
fn process_that_joins_is_held_and_one_that_leaves_is_restored() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    let before = SettingsBefore::from_job(&job);
    let above = BatchGroup { dir: job.group().dir.parent().unwrap().to_owned() };
    let mut command = Command::new("taskset");
    command.args(["-c", REQUEST_LANE, "sleep", "3000"]).stdin(Stdio::null());
    let mut stranger = process::kill_with_test(&mut command).spawn().unwrap();
    wait_until("the stranger was there", || process::command_line(stranger.id()) == ["sleep", "3000", ""]);
    let looks = process_settings(stranger.id());
    let service = Service::idle();
    let run = start_and_wait_for_hold(run_adopting(&job, &service.target()), &job);
    for _ in 0..2 {
        job.group().move_process_in(stranger.id()).unwrap();
        wait_until("the stranger was held", || is_held_on_lane(stranger.id(), BATCH_LANE));
        above.move_process_in(stranger.id()).unwrap();
        wait_until("the stranger was given back", || process_settings(stranger.id()) == looks);
    }
    let born = job.fork_long_lived_process();
    wait_until("the newcomer was held", || is_held_on_lane(born, BATCH_LANE));
    above.move_process_in(born).unwrap();
    let like_root = |pid| (process::allowed_cpus(pid), process::class_priority_and_nice(pid));
    let root = (Some("0-1".to_owned()), process::class_priority_and_nice(std::process::id()));
    wait_until("the newcomer was given back", || like_root(born) == root);
    job.group().move_process_in(stranger.id()).unwrap();
    wait_until("the stranger was held", || is_held_on_lane(stranger.id(), BATCH_LANE));
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["3 joined later", "3 left"]);
    above.move_process_in(stranger.id()).unwrap();
    assert_eq!(process_settings(stranger.id()), looks);
    [stranger.id(), born].into_iter().for_each(kill);
    let _ = stranger.wait();
    before.wait_until_restored(&job);
}

/// Kills the agent at any moment: before its first change, while it changes, freezes or thaws the job, and while it
/// gives the job back.
#[track_caller]
fn check_job_restored_after_kills_of_the_agent(job: &Job) {
    let before = SettingsBefore::from_job(job);
    let service = Service::start_bursty();
    let seed = now_ns();
    let mut random = Random::from_seed(seed);
    let kills = std::env::var(KILLS_VARIABLE).ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    for number in 0..kills {
        let gate = ["holder", "freezer"][random.next_below(2) as usize];
        let run = run_adopting(job, &service.target()).with_more_arguments(&["--gate", gate]);
        let when_ms = match number % 3 {
            // The agent is killed at its start.
            0 => {
                let mut run = run.start_without_batch();
                let when_ms = random.next_below(1200);
                sleep(Duration::from_millis(when_ms));
                run.kill();
                when_ms
            }
            // The agent is killed after its first change.
            1 => {
                let mut run = run.start_without_batch();
                run.wait_until("the first process was held", |_| {
                    job.long_lived_pids().iter().any(|pid| is_held_on_lane(*pid, BATCH_LANE))
                });
                let when_ms = random.next_below(400);
                sleep(Duration::from_millis(when_ms));
                run.kill();
                when_ms
            }
            // The agent is killed while it gives the job back.
            _ => {
                let mut run = start_and_wait_for_hold(run, job);
                run.signal(libc::SIGTERM);
                let when_ms = random.next_below(60);
                sleep(Duration::from_millis(when_ms));
                run.kill_if_there();
                when_ms
            }
        };
        eprintln!("kill {number} of seed {seed}: gate {gate}, {when_ms} ms");
        before.wait_until_restored(job);
    }
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn group_is_restored_after_a_kill_of_the_agent_at_any_moment() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v2) else { return };
    check_job_restored_after_kills_of_the_agent(&job);
}

#[test]
fn v1_group_is_restored_after_a_kill_of_the_agent() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(job) = Job::start_in_cgroups(is_v1) else { return };
    check_job_restored_after_kills_of_the_agent(&job);
}

#[test]
fn tree_is_restored_after_a_kill_of_the_agent_at_any_moment() {
    let Some(_turn) = lock_lanes() else { return };
    check_job_restored_after_kills_of_the_agent(&Job::start_without_cgroup());
}

/// Checks that a run is refused before anything is changed.
#[track_caller]
fn check_run_refused(batch: &str, service: &Service, expected_texts: &[&str]) {
    let footprint = Footprint::capture();
    // Other tests of this process start and end threads at the same time, so only this thread is compared.
    let own_cpus = || thread_cpus(std::process::id(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
    let (of_service, own) = (process_settings(service.pid()), own_cpus());
    Run::beside_service(service.target())
        .with_more_arguments(&["--adopt", batch])
        .start_without_batch()
        .wait_for_end()
        .expect_exit_code(EXIT_FAILURE)
        .expect_stderr_contains(expected_texts);
    footprint.wait_until_restored();
    assert_eq!((process_settings(service.pid()), own_cpus()), (of_service, own));
}

#[test]
fn unsuitable_adoption_targets_are_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    check_run_refused("cgroup:/no/such/group", &service, &["cannot adopt cgroup /no/such/group"]);
    check_run_refused("pid:4194303", &service, &["cannot adopt process 4194303: no such process runs"]);
    check_run_refused(&service.target(), &service, &["of the service"]);
    check_run_refused("cgroup:/", &service, &["of the service"]);
    check_run_refused(&format!("pid:{}", std::process::id()), &service, &["of the service"]);
    check_run_refused("pid:2", &service, &["it is a kernel thread"]);
    let Some(mut job) = Job::start_in_cgroups(is_v2) else { return };
    let other =
        Run::beside_service(service.target()).with_more_arguments(&["--adopt", &job.target(), "--gate", "core-sched"]);
    other
        .start_without_batch()
        .wait_for_end()
        .expect_exit_code(EXIT_FAILURE)
        .expect_stderr_contains(&["--gate holder"]);
    let inside = Run::beside_service(service.target()).with_more_arguments(&["--adopt", &job.target()]);
    let enter = format!("echo $$ >{}/cgroup.procs; exec \"$0\" \"$@\"", job.group().dir.display());
    let inside = inside.through_wrapper(&["sh", "-c", &enter]).start_without_batch().wait_for_end();
    inside.expect_exit_code(EXIT_FAILURE).expect_stderr_contains(&["contains this sidelane itself"]);
    job.end();
    wait_until("the group was empty", || job.members().is_empty());
    check_run_refused(&job.target(), &service, &["it has no process"]);
}

#[test]
fn contradicting_adopt_options_are_a_usage_error() {
    let usage = |arguments: &[&str], words: &[&str]| {
        Run::with_arguments(&["run", "--service", "pid:1", "--lanes", LANES])
            .with_more_arguments(arguments)
            .start_without_batch()
            .wait_for_end()
            .expect_exit_code(EXIT_USAGE)
            .expect_stderr_contains(words);
    };
    usage(&["--adopt", "pid:7", "--", "true"], &["--adopt", "COMMAND"]);
    usage(&["--adopt", "port:80"], &["port:80", "cgroup:/PATH"]);
    usage(&[], &["COMMAND"]);
}
