//! Programs that act as a latency-critical service, with different busy and idle times.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use tempfile::TempDir;

use super::lanes::REQUEST_LANE;
use super::{SPIN, process};

/// Script with some milliseconds of work, then 20 ms of sleep.
const BURSTS: &str = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02; done";
const REST: &str = "exec sleep 1000";

/// Script that reads file names, and works until a file of that name exists.
pub const ON_COMMAND: &str = "while read -r end; do while [ ! -e \"$end\" ]; do :; done; done";

/// Running service. Dropping it ends it.
pub struct Service {
    child: Child,
}

impl Service {
    /// Starts a service that never runs.
    pub fn idle() -> Self {
        Self::start_script_on(REQUEST_LANE, REST, Stdio::null())
    }

    /// Starts a service that runs without a pause.
    pub fn busy() -> Self {
        Self::start_script_on(REQUEST_LANE, SPIN, Stdio::null())
    }

    /// Starts a service that repeatedly runs for some milliseconds.
    pub fn start_bursty() -> Self {
        Self::start_script_on(REQUEST_LANE, BURSTS, Stdio::null())
    }

    /// Starts a service like [`Service::in_bursts`] that listens on a TCP port.
    pub fn start_bursty_at(listener: TcpListener) -> Self {
        Self::start_bursty_on(REQUEST_LANE, listener)
    }

    /// Starts a service like [`Service::start_bursty_at`], on other CPUs.
    pub fn start_bursty_on(cpus: &str, listener: TcpListener) -> Self {
        Self::start_script_on(cpus, BURSTS, OwnedFd::from(listener).into())
    }

    /// Starts a service that waits for [`Service::start_work`], runs for `work_s` seconds without a pause, and then
    /// rests.
    pub fn start_busy_once(work_s: u32) -> Self {
        let script = format!("read go; timeout --foreground {work_s} sh -c '{SPIN}'; {REST}");
        Self::start_script_on(REQUEST_LANE, &script, Stdio::piped())
    }

    /// Starts a service that works and rests on command.
    pub fn on_command() -> ServiceOnCommand {
        ServiceOnCommand::new(Self::start_script_on(REQUEST_LANE, ON_COMMAND, Stdio::piped()))
    }

    /// Starts a service from a command that reads file names, and works until a file of that name exists.
    pub fn start_program_on_command(program: &str, arguments: &[&str]) -> ServiceOnCommand {
        let mut command = Command::new("taskset");
        command.args(["-c", REQUEST_LANE, program]).args(arguments);
        ServiceOnCommand::new(Self::start(&mut command, Stdio::piped()))
    }

    /// Starts a service that may run on both lanes, but always sleeps.
    pub fn start_sleeping_on_both_lanes() -> Self {
        Self::start_script_on("0,1", REST, Stdio::null())
    }

    /// Starts a service that runs 300 µs of each millisecond.
    pub fn pulsing(lab: &Path) -> Self {
        let lab = lab.to_str().expect("a readable path");
        let pulse = ["pulse", "--cpu", REQUEST_LANE, "--busy-us", "300", "--idle-us", "700", "--count", "1000000"];
        Self::of_command(lab, &pulse)
    }

    /// Starts any command as a service on the request lane.
    pub fn of_command(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("taskset");
        command.args(["-c", REQUEST_LANE, program]).args(arguments);
        Self::start(&mut command, Stdio::null())
    }

    fn start_script_on(cpus: &str, script: &str, input: Stdio) -> Self {
        Self::start(Command::new("taskset").args(["-c", cpus, "sh", "-c", script]), input)
    }

    fn start(command: &mut Command, input: Stdio) -> Self {
        // The service has a process group of its own, so that its children end with it.
        let command = process::kill_with_test(command).stdin(input).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().expect("the service starts");
        let service = Self { child };
        super::wait_until("the service runs its own program", || {
            process::program(service.pid())
                .is_some_and(|program| !program.ends_with("taskset") && is_other_than_test_program(&program))
        });
        service
    }

    /// Returns the process id of the service.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the service's name for `--service`.
    pub fn target(&self) -> String {
        format!("pid:{}", self.pid())
    }

    /// Returns the CPUs on which the service may run.
    pub fn allowed_cpus(&self) -> String {
        process::allowed_cpus(self.pid()).expect("the service runs")
    }

    /// Starts the work of a service that waits for it.
    pub fn start_work(&mut self) {
        drop(self.child.stdin.take().expect("the service waits to be started"));
    }

    /// Restricts the service to other CPUs.
    pub fn set_affinity(&self, cpus: &str) {
        process::set_process_affinity(self.pid(), cpus);
    }

    /// Kills the service and leaves it in the process table as a zombie.
    pub fn kill_without_reaping(&self) {
        self.kill();
        super::wait_until("the service was dead", || !process::is_alive(self.pid()));
    }

    /// Ends the service, even while it is busy.
    pub fn end(self) {
        drop(self);
    }

    fn kill(&self) {
        // SAFETY: plain system call; the child is not reaped yet, so the group is its own.
        unsafe { libc::killpg(self.pid() as libc::pid_t, libc::SIGKILL) };
    }

    /// Fails unless the service runs, with unchanged affinity.
    #[track_caller]
    pub fn must_be_unharmed(&self, allowed_cpus: &str) {
        assert!(process::is_alive(self.pid()), "the service has ended");
        assert_eq!(self.allowed_cpus(), allowed_cpus, "the service was moved");
    }
}

/// Service whose turn lasts until the test has seen the awaited event. So no event in a turn can be too late, and the
/// tests need no time limits.
pub struct ServiceOnCommand {
    service: Service,
    input: ChildStdin,
    dir: TempDir,
    turns: usize,
}

impl ServiceOnCommand {
    fn new(mut service: Service) -> Self {
        let input = service.child.stdin.take().expect("its input is a pipe");
        Self { service, input, dir: tempfile::tempdir().expect("a temporary directory can be made"), turns: 0 }
    }

    /// Returns the service's name for `--service`.
    pub fn target(&self) -> String {
        self.service.target()
    }

    /// Returns the process id of the service.
    pub fn pid(&self) -> u32 {
        self.service.pid()
    }

    /// Restricts the service to other CPUs.
    pub fn set_affinity(&self, cpus: &str) {
        self.service.set_affinity(cpus);
    }

    /// Wakes the service, which works until [`Self::rest`]. The CPU that wakes a thread runs the kernel program for the
    /// wakeup, so that program has run when this function returns.
    pub fn work(&mut self) {
        self.turns += 1;
        // The line is sent in one write, since half a line would be a turn of its own.
        let line = format!("{}\n", self.end_of_turn());
        self.input.write_all(line.as_bytes()).expect("the service reads");
    }

    /// Ends the service's turn.
    pub fn rest(&self) {
        File::create(self.end_of_turn()).expect("a file can be made in a temporary directory");
    }

    fn end_of_turn(&self) -> String {
        self.dir.path().join(self.turns.to_string()).display().to_string()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether `program` is another program than this test. Between fork and exec, a child still executes the
/// test's program.
fn is_other_than_test_program(program: &Path) -> bool {
    std::env::current_exe().is_ok_and(|own| own != program)
}
