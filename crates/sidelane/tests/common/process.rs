//! Facts about a process, read from /proc.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::agent::Limit;
use super::wait_until;

/// Environment variable that marks every `sidelane` that a test starts, and all its descendants.
pub const MARK: &str = "SIDELANE_TEST_RUN";

/// Command prefix that executes a command in SCHED_DEADLINE.
pub const DEADLINE: &str = "chrt -d --sched-runtime 1000000 --sched-deadline 10000000 --sched-period 20000000 0";

/// Returns the value of the environment variable [`MARK`]: the ids of this process and this test's thread.
pub fn mark_of_this_test() -> String {
    format!("{} {:?}", std::process::id(), std::thread::current().id())
}

/// Returns the CPUs on which a process may run, in the kernel's format; `None` if it has ended.
pub fn allowed_cpus(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
}

/// Restricts all threads of a process to other CPUs.
pub fn set_process_affinity(pid: u32, cpus: &str) {
    let moved = Command::new("taskset").args(["-a", "-c", "-p", cpus, &pid.to_string()]).output();
    assert!(moved.is_ok_and(|moved| moved.status.success()), "process {pid} cannot be moved to {cpus}");
}

/// Returns the CPU on which a process runs, or ran last.
pub fn last_cpu(pid: u32) -> Option<String> {
    const PROCESSOR: usize = 39;
    stat_field(&format!("/proc/{pid}/stat"), PROCESSOR)
}

/// Returns the scheduling class of a process, by the kernel's number.
pub fn scheduling_class(pid: u32) -> Option<String> {
    const POLICY: usize = 41;
    stat_field(&format!("/proc/{pid}/stat"), POLICY)
}

/// Returns the scheduling class, real-time priority and nice value of a thread.
pub fn class_priority_and_nice(tid: u32) -> [Option<String>; 3] {
    const NICE: usize = 19;
    const RT_PRIORITY: usize = 40;
    let field = |number| stat_field(&format!("/proc/{tid}/stat"), number);
    [scheduling_class(tid), field(RT_PRIORITY), field(NICE)]
}

/// Returns the CPU time that a process has used, in clock ticks.
pub fn cpu_ticks(pid: u32) -> u64 {
    const UTIME: usize = 14;
    const STIME: usize = 15;
    let ticks = |field| stat_field(&format!("/proc/{pid}/stat"), field)?.parse::<u64>().ok();
    ticks(UTIME).unwrap_or(0) + ticks(STIME).unwrap_or(0)
}

/// Returns whether a process runs or waits to run. A process that computes always does, unless it is frozen.
pub fn wants_cpu(pid: u32) -> bool {
    state(&format!("/proc/{pid}/stat")).as_deref() == Some("R")
}

/// Returns whether a process has not ended yet.
pub fn is_alive(pid: u32) -> bool {
    state(&format!("/proc/{pid}/stat")).is_some_and(|state| state != "Z" && state != "X")
}

/// Returns whether a thread of this name runs, or waits to run, in the process.
pub fn has_running_thread(pid: u32, name: &str) -> bool {
    let mut threads = threads_named(pid, name).into_iter();
    threads.any(|tid| state(&format!("/proc/{pid}/task/{tid}/stat")).as_deref() == Some("R"))
}

/// Returns the threads of this name in the process.
pub fn threads_named(pid: u32, name: &str) -> Vec<u32> {
    let is_named = |tid: &u32| {
        let found = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        found.trim_end() == name
    };
    numbers_in(&format!("/proc/{pid}/task")).into_iter().filter(is_named).collect()
}

/// Returns the program and arguments of a process.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns the process ids of every `sidelane` that this test has started, and of all its descendants, even orphaned
/// ones.
pub fn marked_pids() -> Vec<u32> {
    let mark = format!("{MARK}={}", mark_of_this_test());
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    numbers_in("/proc").into_iter().filter(is_marked).collect()
}

/// Kills a process of a run.
pub fn kill(pid: u32) {
    signal(pid, libc::SIGKILL);
}

/// Sends a process of a run a POSIX signal.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: plain system call.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Copies a program, by another process. If this process wrote the copy, a program started by another thread would
/// inherit the open file for a moment. A file open for writing cannot be executed.
#[track_caller]
pub fn copy_program(from: impl AsRef<OsStr>, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "no program can be made at {}", to.display());
}

/// Returns the path of the program that a process executes.
pub fn program(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn state(stat: &str) -> Option<String> {
    const STATE: usize = 3;
    stat_field(stat, STATE)
}

/// Returns a field of a `stat` file, numbered as in proc(5), at least 3.
fn stat_field(path: &str, number: usize) -> Option<String> {
    let stat = fs::read_to_string(path).ok()?;
    // The name in parentheses may contain any character; the third field follows the last `) `.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_whitespace().nth(number - 3).map(str::to_owned)
}

fn numbers_in(dir: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Makes the processes that `command` starts end with the thread of this test, even if the test is
/// killed.
pub fn kill_with_test(command: &mut Command) -> &mut Command {
    // SAFETY: one async-signal-safe system call between fork and exec.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

/// Gives the processes that `command` starts these limits, soft and hard.
pub fn limit(command: &mut Command, limits: Vec<(Limit, u64)>) -> &mut Command {
    let set = |(resource, value): &(Limit, u64)| {
        let limit = libc::rlimit { rlim_cur: *value, rlim_max: *value };
        // SAFETY: plain system call with a valid limit.
        if unsafe { libc::setrlimit(*resource, &limit) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: system calls alone between fork and exec.
    unsafe { command.pre_exec(move || limits.iter().try_for_each(set)) }
}

/// Takes a running process the right to open files: its soft limit becomes 0. Beyond a hard limit of 0 only
/// CAP_SYS_RESOURCE could raise it again.
pub fn forbid_open_files(pid: u32) {
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let none = rustix::process::Rlimit { current: Some(0), maximum };
    let pid = rustix::process::Pid::from_raw(pid as i32);
    rustix::process::prlimit(pid, rustix::process::Resource::Nofile, none).expect("root may limit any process");
}

/// Stops a guardian, and fills the pipe through which it gets its list of changes.
pub fn stop_and_fill_pipe(guardian: u32) {
    signal(guardian, libc::SIGSTOP);
    wait_until("the guardian was stopped", || state(&format!("/proc/{guardian}/stat")).as_deref() == Some("T"));
    let pipe = fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(format!("/proc/{guardian}/fd/0"));
    let mut pipe = pipe.expect("a pipe can be opened by its other end, too");
    // The last line is empty, so the next text in the pipe begins a new line.
    while pipe.write(b"\n").is_ok() {}
}
