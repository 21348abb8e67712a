//! Services in tests whose program name is unique on the machine.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::common::job::process_settings;
use crate::common::service::ON_COMMAND;
use crate::common::{Service, ServiceOnCommand, process, wait_until};

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Program with a unique name.
pub struct Program {
    comm: String,
    path: PathBuf,
    _dir: TempDir,
}

impl Program {
    /// Creates a copy of `sleep`.
    pub fn new() -> Self {
        Self::copy_of("/bin/sleep")
    }

    /// Creates a copy of a shell that forks repeatedly on command, and so causes page faults. Starts it as a service.
    pub fn start_faulting_on_command() -> (Self, ServiceOnCommand) {
        Self::start_shell_copy("while read -r end; do while [ ! -e \"$end\" ]; do (:); done; done")
    }

    /// Creates a copy of a shell that works on command, and starts it as a service on the request lane.
    pub fn start_working_on_command() -> (Self, ServiceOnCommand) {
        Self::start_shell_copy(ON_COMMAND)
    }

    fn start_shell_copy(script: &str) -> (Self, ServiceOnCommand) {
        let program = Self::copy_of("/bin/sh");
        let path = program.path.to_str().expect("a readable path");
        let service = Service::start_program_on_command(path, &["-c", script]);
        (program, service)
    }

    fn copy_of(original: &str) -> Self {
        // The kernel keeps 15 bytes of a program's name.
        let comm = format!("svc{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join(&comm);
        process::copy_program(original, &path);
        Self { comm, path, _dir: dir }
    }

    /// Returns the line of the agent's file that finds the program.
    pub fn service_match_line(&self) -> String {
        format!("comm = \"{}\"", self.comm)
    }

    /// Returns the path of the program.
    pub fn path(&self) -> &str {
        self.path.to_str().expect("a readable path")
    }

    /// Starts the program on these CPUs.
    pub fn start(&self, cpus: &str) -> Sleeper {
        let mut command = Command::new("taskset");
        let command = process::kill_with_test(&mut command).args(["-c", cpus]).arg(&self.path).arg("1000");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn();
        let mut sleeper = Sleeper { child: child.expect("the service starts"), looked: String::new() };
        let pid = sleeper.pid();
        wait_until("the service ran its own program", || process::program(pid).as_ref() == Some(&self.path));
        sleeper.looked = process_settings(pid);
        sleeper
    }
}

/// Service that sleeps. Dropping it ends it.
pub struct Sleeper {
    child: Child,
    looked: String,
}

impl Sleeper {
    /// Returns the process id of the service.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPUs on which the service may run.
    pub fn cpus(&self) -> String {
        process::allowed_cpus(self.pid()).unwrap_or_default()
    }

    /// Fails unless the service is alive with its original CPUs, class and cgroups.
    #[track_caller]
    pub fn must_be_untouched(&self) {
        assert!(process::is_alive(self.pid()), "the service has ended");
        assert_eq!(process_settings(self.pid()), self.looked);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
