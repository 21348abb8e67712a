//! Tests of ways by which batch could preempt the service or leave its lanes: each is refused, or reverted and noted.
//! The table in docs/explanation/security.md lists them.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::c_program::compile_text;
use common::job::is_held_on_lane;
use common::lanes::BATCH_LANE;
use common::process::{allowed_cpus, kill, scheduling_class};
use common::{Job, Run, Running, SPIN, Service, lock_lanes, wait_until};
use sidelane_host::cgroup::{Hierarchy, processes_in_tree};
use sidelane_host::procfs::{thread_cpus, threads};

const EXIT_USAGE: i32 = 2;
/// Number of the class SCHED_IDLE in `ps` and /proc/PID/stat.
const SCHED_IDLE: Option<&str> = Some("5");

/// Returns a script line that reports whether `attempt` succeeds.
fn attempt_line(attempt: &str) -> String {
    format!("({attempt}) >/dev/null 2>&1 && echo 'did: {attempt}' || echo 'could not: {attempt}'; ")
}

/// Attempts that would succeed with CAP_SYS_NICE, as root or another user, and in namespaces.
const ATTEMPTS: [&str; 13] = [
    "chrt -f 1 true",
    "chrt -r 1 true",
    "chrt -o 0 true",
    "chrt -b 0 true",
    "chrt -d --sched-runtime 1000000 --sched-deadline 10000000 --sched-period 10000000 0 true",
    "[ $(nice -n -5 nice) -lt 0 ]",
    "echo -5 >/proc/self/autogroup",
    // The next attempts change the process that keeps batch in its lane.
    "chrt -i -p 0 $PPID",
    "renice 19 $PPID",
    "taskset -c -p 1 $PPID",
    "prlimit --rtprio=50:50 chrt -f 1 true",
    "unshare --user --map-root-user chrt -f 1 true",
    "unshare --user --map-root-user --pid --fork --cgroup --mount chrt -o 0 true",
];

#[test]
fn a_command_can_neither_leave_its_class_nor_raise_itself() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let script: String = ATTEMPTS.iter().map(|attempt| attempt_line(attempt)).collect();
    let run = Run::beside_service(service.target()).run_to_end(&["sh", "-c", &script]).expect_exit_code(0);
    assert!(!run.stdout.contains("did: "), "{run}");
    assert_eq!(run.stdout.matches("could not: ").count(), ATTEMPTS.len(), "{run}");
}

#[test]
fn setuid_and_file_capabilities_do_not_restore_rights() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let chrt = |name: &str, how: &str| {
        let path = dir.path().join(name).display().to_string();
        let made =
            format!("cp \"$(command -v chrt)\" {path} && {how} {path} && chmod a+x {path} {}", dir.path().display());
        let made = Command::new("sh").args(["-c", &made]).stderr(Stdio::null()).status();
        made.is_ok_and(|made| made.success()).then_some(path)
    };
    let [Some(setuid), Some(capable)] = [chrt("setuid", "chmod u+s"), chrt("capable", "setcap cap_sys_nice+ep")] else {
        return sidelane_testing::skip("needs chrt, setcap and a file system with both");
    };
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let attempts = [format!("{nobody} {setuid} -f 1 true"), format!("{nobody} {capable} -f 1 true")];
    let works = |attempt: &String| {
        let shell = Command::new("sh").args(["-c", attempt]).stderr(Stdio::null()).status();
        shell.is_ok_and(|shell| shell.success())
    };
    if !attempts.iter().all(works) {
        return sidelane_testing::skip("needs a temporary directory without nosuid, and setpriv");
    }
    let script: String = attempts.iter().map(|attempt| attempt_line(attempt)).collect();
    let service = Service::idle();
    // A setuid program that attempts nothing forbidden still works, because it has every other right of root.
    let script = format!("{script} {nobody} {setuid} -p $$ >/dev/null && echo runs");
    let run = Run::beside_service(service.target()).run_to_end(&["sh", "-c", &script]).expect_exit_code(0);
    assert!(!run.stdout.contains("did: ") && run.stdout.contains("runs"), "{run}");
}

#[test]
fn limits_that_allow_real_time_are_taken_away() {
    let Some(_turn) = lock_lanes() else { return };
    let limits = [(libc::RLIMIT_RTPRIO, 50), (libc::RLIMIT_NICE, 40)];
    if let Err(error) = common::process::limit(&mut Command::new("true"), limits.to_vec()).status() {
        return sidelane_testing::skip(format!("needs the right to raise limits (CAP_SYS_RESOURCE): {error}"));
    }
    let service = Service::idle();
    let script: String = ["chrt -f 1 true", "chrt -o 0 true"].iter().map(|attempt| attempt_line(attempt)).collect();
    let script = format!("exec setpriv --reuid 65534 --clear-groups sh -c '{}'", script.replace('\'', "\""));
    let run = Run::beside_service(service.target())
        .with_limits(&limits)
        .run_to_end(&["sh", "-c", &script])
        .expect_exit_code(0);
    assert!(!run.stdout.contains("did: ") && run.stdout.contains("could not: "), "{run}");
}

#[test]
fn command_that_may_be_real_time_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let allowed = || Run::beside_service(service.target()).with_more_arguments(&["--allow-realtime"]);
    let run = allowed().run_to_end(&["chrt", "-f", "1", "echo", "real-time"]);
    if run.code != Some(0) {
        return sidelane_testing::skip("needs a group that allows real-time threads (cpu.rt_runtime_us)");
    }
    let run = run.expect_stderr_contains(&["--allow-realtime", "runs beside the service"]);
    assert_eq!(run.stdout, "real-time\n");
    // Adopted batch keeps its rights.
    let adopt = ["--adopt", &format!("pid:{}", service.pid())];
    allowed().with_more_arguments(&adopt).start_without_batch().wait_for_end().expect_exit_code(EXIT_USAGE);
}

/// A daemon that is asked to (rtkit), or an administrator, can make the command real-time.
#[test]
fn batch_made_real_time_by_others_is_demoted() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let batch = run.batch_pid();
    for class in [["-f", "1"], ["-r", "1"], ["-o", "0"], ["-b", "0"]] {
        set_scheduling_class(class, batch);
        run.wait_until("batch was put back", |_| scheduling_class(batch).as_deref() == SCHED_IDLE);
    }
    end(run).expect_stderr_contains(&["the batch thread \"sh\"", "another scheduling class"]);
}

#[test]
fn adopted_batch_that_raises_its_class_is_demoted() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let job = Job::start_without_cgroup();
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--adopt", &job.target()]).start_without_batch();
    run.wait_until("the job was in its lane", |_| job.is_on_lane(BATCH_LANE));
    // The test uses the job's new process, a process like any other, because the job's own script could be stopped.
    let batch = job.fork_long_lived_process();
    for class in [["-f", "1"], ["-o", "0"]] {
        set_scheduling_class(class, batch);
        run.wait_until("batch was put back", |_| scheduling_class(batch).as_deref() == SCHED_IDLE);
    }
    kill(batch);
    run.signal(libc::SIGTERM);
    run.wait_for_end()
        .expect_exit_code(0)
        .expect_stderr_contains(&["the batch thread \"sleep\"", "another scheduling class"]);
}

/// The process sleeps, so no regular check sees it run on another CPU.
#[test]
fn sleeping_adopted_batch_with_other_cpus_is_returned() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let job = Job::start_without_cgroup();
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--adopt", &job.target()]).start_without_batch();
    run.wait_until("the job was in its lane", |_| job.is_on_lane(BATCH_LANE));
    let batch = job.fork_long_lived_process();
    common::process::set_process_affinity(batch, "0-1");
    run.wait_until("batch was put back", |_| is_held_on_lane(batch, BATCH_LANE));
    kill(batch);
    run.signal(libc::SIGTERM);
    run.wait_for_end()
        .expect_exit_code(0)
        .expect_stderr_contains(&["the batch thread \"sleep\"", "other CPUs than the batch lanes"]);
}

/// Program that sets up an io_uring with a kernel thread that polls: such a thread leaves its process's cpuset when it
/// starts.
const SQPOLL: &str = r#"
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct io_uring_params p;
    char go;
    if (read(0, &go, 1) != 1) return 2;
    memset(&p, 0, sizeof p);
    p.flags = IORING_SETUP_SQPOLL;
    p.sq_thread_idle = 600000;
    int ring = syscall(SYS_io_uring_setup, 4, &p);
    puts(ring < 0 ? "none" : "ring");
    fflush(stdout);
    return read(0, &go, 1) != 0;
}
"#;

#[test]
fn io_uring_polling_thread_is_returned_to_its_lane() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile_text("sqpoll", SQPOLL, dir.path()) else { return };
    let Some(job) = Job::start_in_cgroups(|found| found.has_controller("cpuset") || found.is_v2()) else { return };
    let service = Service::idle();
    let mut ring = PromptedProgram::start(&program);
    job.move_process_in(ring.child.id());
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--adopt", &job.target()]).start_without_batch();
    run.wait_until("the job was in its lane", |_| is_held_on_lane(ring.child.id(), BATCH_LANE));
    if ring.prompt_and_read_line() != "ring" {
        return sidelane_testing::skip("needs io_uring");
    }
    // The kernel thread gets its name a moment after its start.
    let pid = ring.child.id();
    let poller = threads(pid).into_iter().find(|tid| *tid != pid).expect("the ring has a thread");
    let cpus = || thread_cpus(ring.child.id(), poller).map(|cpus| cpus.to_string());
    run.wait_until("the polling thread was in its lane", |_| cpus().as_deref() == Some(BATCH_LANE));
    drop(ring);
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(0);
}

/// Program that prints the id of its second thread, and continues.
const TWO_THREADS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *second(void *unused) {
    printf("%d\n%ld\n", getpid(), syscall(SYS_gettid));
    fflush(stdout);
    pause();
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, second, 0);
    pthread_join(thread, 0);
    return 0;
}
"#;

#[test]
fn thread_that_leaves_its_group_is_returned() {
    let Some(_turn) = lock_lanes() else { return };
    let v1: Vec<Hierarchy> = Hierarchy::all()
        .into_iter()
        .filter(|found| found.has_controller("freezer") || found.has_controller("cpuset"))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile_text("two-threads", TWO_THREADS, dir.path()) else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start(&[program.to_str().unwrap()]);
    run.wait_until("batch told its threads", |run| run.output().lines().count() == 2);
    let output = run.output();
    let [pid, tid] = [0, 1].map(|line| output.lines().nth(line).unwrap().parse::<u32>().unwrap());
    let batch_group = format!("sidelane-{}", run.pid());
    let batch_groups = v1
        .iter()
        .filter_map(|found| Some((found, found.own_dir()?.join(&batch_group))))
        .filter(|(_, dir)| dir.exists());
    let batch_groups: Vec<(&Hierarchy, PathBuf)> = batch_groups.collect();
    if batch_groups.is_empty() {
        return sidelane_testing::skip("needs a freezer or a cpuset of cgroup v1: in v2 a group holds whole processes");
    }
    for (hierarchy, dir) in batch_groups {
        let is_home =
            || fs::read_to_string(dir.join("tasks")).unwrap_or_default().lines().any(|line| line == tid.to_string());
        fs::write(hierarchy.own_dir().unwrap().join("tasks"), tid.to_string()).unwrap();
        assert!(processes_in_tree(&dir).contains(&pid), "its process is there by the other thread");
        run.wait_until("the thread was back", |_| is_home());
    }
    end(run).expect_stderr_contains(&["batch left the cgroup"]);
}

#[test]
fn a_cpuset_that_batch_has_widened_is_narrowed_again() {
    let Some(_turn) = lock_lanes() else { return };
    let has_cpuset = |dir: &PathBuf| dir.join("cpuset.cpus").exists();
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let batch = run.batch_pid();
    let batch_group = format!("sidelane-{}", run.pid());
    let batch_groups = Hierarchy::all().into_iter().filter_map(|found| Some(found.own_dir()?.join(&batch_group)));
    let Some(dir) = batch_groups.into_iter().find(has_cpuset) else { return sidelane_testing::skip("needs a cpuset") };
    fs::write(dir.join("cpuset.cpus"), "0-1").unwrap();
    let cpus = || fs::read_to_string(dir.join("cpuset.cpus")).unwrap_or_default();
    run.wait_until("the group was narrow again", |_| cpus().trim() == BATCH_LANE);
    assert_eq!(allowed_cpus(batch).as_deref(), Some(BATCH_LANE));
    end(run).expect_stderr_contains(&["the control group of batch", "other CPUs than the batch lanes"]);
}

/// Program that starts a child in the cgroup that is open as descriptor 3, and prints the child's id.
const INTO_GROUP: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct clone_args args;
    if (count < 2) return 2;
    memset(&args, 0, sizeof args);
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = open(words[1], O_RDONLY | O_DIRECTORY);
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0) for (;;) pause();
    printf("%ld\n", child);
    fflush(stdout);
    pause();
    return 0;
}
"#;

#[test]
fn child_created_in_another_group_is_moved_back() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile_text("into-group", INTO_GROUP, dir.path()) else { return };
    let Some(v2) = Hierarchy::all().into_iter().find(Hierarchy::is_v2) else {
        return sidelane_testing::skip("needs cgroup v2");
    };
    let above = v2.own_dir().unwrap();
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start(&[program.to_str().unwrap(), above.to_str().unwrap()]);
    let line = run.first_line();
    let Some(child) = line.parse::<u32>().ok() else { return sidelane_testing::skip("needs CLONE_INTO_CGROUP") };
    let batch_group = above.join(format!("sidelane-{}", run.pid()));
    if !batch_group.exists() {
        return sidelane_testing::skip("needs a group of cgroup v2 that can be made");
    }
    run.wait_until("the child was in batch's group", |_| processes_in_tree(&batch_group).contains(&child));
    assert_eq!(allowed_cpus(child).as_deref(), Some(BATCH_LANE));
    end(run).expect_stderr_contains(&["batch left the cgroup"]);
}

#[test]
fn batch_in_its_own_namespaces_is_held_and_ended() {
    let Some(_turn) = lock_lanes() else { return };
    let namespaces = "unshare --user --map-root-user --pid --fork --cgroup --mount --net --uts --ipc";
    if !Command::new("sh").args(["-c", &format!("{namespaces} true")]).status().is_ok_and(|status| status.success()) {
        return sidelane_testing::skip("needs namespaces");
    }
    let service = Service::idle();
    let script = format!("{namespaces} sh -c '{SPIN}' & echo $!; wait");
    let mut run = Run::beside_service(service.target()).start_script(&script);
    let outer = run.batch_pid();
    let inner =
        || sidelane_host::procfs::living_with_descendants(&[outer].into()).into_iter().find(|pid| *pid != outer);
    run.wait_until("batch was in its namespaces", |_| inner().is_some());
    let inner = inner().unwrap();
    assert!(is_held_on_lane(inner, BATCH_LANE), "{:?} {:?}", allowed_cpus(inner), scheduling_class(inner));
    set_scheduling_class(["-o", "0"], inner);
    run.wait_until("batch was put back", |_| scheduling_class(inner).as_deref() == SCHED_IDLE);
    end(run);
    wait_until("batch had ended", || !common::process::is_alive(inner));
}

/// The core pattern is changed only for this run.
#[test]
fn a_crash_starts_no_program_for_a_core_dump() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let pattern = tempfile::NamedTempFile::new().unwrap();
    fs::write(pattern.path(), "|/usr/lib/systemd/systemd-coredump %P\n").unwrap();
    let dumps = "ulimit -S -c unlimited && exec \"$0\" \"$@\"";
    let mount = format!("mount --bind {} /proc/sys/kernel/core_pattern && {dumps}", pattern.path().display());
    let dir = tempfile::tempdir().unwrap();
    // The limit is in blocks, so one byte counts as none. The hard limit is unchanged.
    let script = "ulimit -S -c; ulimit -S -c unlimited && echo may; kill -s SEGV $$";
    let crash = |wrapper: &[&str]| {
        let run = Run::beside_service(service.target()).through_wrapper(wrapper).in_dir(dir.path());
        run.run_to_end(&["sh", "-c", script]).expect_exit_code(128 + libc::SIGSEGV)
    };
    let run = crash(&["unshare", "--mount", "sh", "-c", &mount]);
    let run = run.expect_stderr_contains(&["without a core dump", "ulimit -c unlimited"]);
    assert_eq!(run.stdout, "0\nmay\n", "{run}");
    let run = crash(&["sh", "-c", dumps]);
    let is_pipe = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap().starts_with('|');
    assert_eq!(run.stdout, if is_pipe { "0\nmay\n" } else { "unlimited\nmay\n" }, "{run}");
    assert_eq!(run.stderr.contains("without a core dump"), is_pipe, "{run}");
}

#[test]
fn command_that_only_waits_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    const WAITS: &str = "work that a daemon does for it";
    Run::beside_service(service.target())
        .run_to_end(&["sleep", "1.5"])
        .expect_exit_code(0)
        .expect_stderr_contains(&[WAITS, "--adopt"]);
    let run = Run::beside_service(service.target()).run_to_end(&["timeout", "1.5", "sh", "-c", SPIN]);
    assert!(!run.stderr.contains(WAITS), "{run}");
}

#[test]
fn process_that_leaves_an_adopted_group_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let Some(job) = Job::start_in_cgroups(Hierarchy::is_v2) else { return };
    let mut run =
        Run::beside_service(service.target()).with_more_arguments(&["--adopt", &job.target()]).start_without_batch();
    run.wait_until("the job was in its lane", |_| job.is_on_lane(BATCH_LANE));
    let leaver = job.fork_long_lived_process();
    run.wait_until("the newcomer was held", |_| is_held_on_lane(leaver, BATCH_LANE));
    fs::write(job.group().dir.parent().unwrap().join("cgroup.procs"), leaver.to_string()).unwrap();
    run.wait_until("it was given back", |_| !is_held_on_lane(leaver, BATCH_LANE));
    kill(leaver);
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["\"sleep\"", "left the adopted cgroup"]);
}

fn set_scheduling_class([class, priority]: [&str; 2], pid: u32) {
    let given = Command::new("chrt").args([class, "-p", priority, &pid.to_string()]).output().unwrap();
    assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
}

fn end(run: Running) -> common::Finished {
    run.signal(libc::SIGTERM);
    run.wait_for_end().expect_exit_code(128 + libc::SIGTERM)
}

/// Program that performs an action for each byte of its input, and reports it in a line.
struct PromptedProgram {
    child: Child,
}

impl PromptedProgram {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        let command = common::process::kill_with_test(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    fn prompt_and_read_line(&mut self) -> String {
        use std::io::BufRead;
        self.child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        let mut line = String::new();
        std::io::BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for PromptedProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
