//! The target of an observation: running processes, or a command that is started for it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use sidelane_host::cpulist::CpuSet;
use sidelane_host::posix_signals::unblock_received_signals;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::procfs::{allowed_cpus, is_alive};
use sidelane_host::service::Target;

/// Time in which a command has to end after a request to end.
const GRACE: Duration = Duration::from_secs(2);

/// Target of an observation.
pub struct ObservedProgram {
    name: String,
    pids: BTreeSet<u32>,
    child: Option<Child>,
}

impl ObservedProgram {
    /// Finds the processes of a target that runs already.
    pub fn find(target: &Target) -> Result<Self> {
        Ok(Self { name: target.to_string(), pids: target.find()?.pids, child: None })
    }

    /// Starts `command` on the CPUs `cpus`.
    pub fn launch(command: &[OsString], cpus: &CpuSet) -> Result<Self> {
        let (program, args) =
            command.split_first().context("cannot observe: no command was given; write it after --")?;
        let cpus: Vec<u32> = cpus.iter().collect();
        let mut start = Command::new(program);
        start.args(args);
        let prepare = move || {
            unblock_received_signals();
            pin_this_thread(&cpus)
        };
        // SAFETY: between fork and exec the closure makes two system calls, on memory it owns.
        unsafe { start.pre_exec(prepare) };
        let child = start.spawn().with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
        let name = program.to_string_lossy().into_owned();
        Ok(Self { name, pids: BTreeSet::from([child.id()]), child: Some(child) })
    }

    /// Returns the name of the target in results.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the target's processes at the start of the observation.
    pub fn pids(&self) -> &BTreeSet<u32> {
        &self.pids
    }

    /// Returns whether the target is a command that this process has started.
    pub fn is_launched(&self) -> bool {
        self.child.is_some()
    }

    /// Returns the CPUs on which the target may run.
    pub fn cpus(&self) -> CpuSet {
        allowed_cpus(&self.pids)
    }

    /// Returns whether any process of the target still runs.
    pub fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => self.pids.iter().any(|pid| is_alive(*pid)),
        }
    }

    /// Ends the target if this process has started it. Returns the exit status if the target had ended before.
    pub fn end_if_launched(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        let pid = Pid::from_child(child);
        let _ = kill_process(pid, Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < GRACE {
            if !matches!(child.try_wait(), Ok(None)) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
        None
    }
}

impl Drop for ObservedProgram {
    fn drop(&mut self) {
        self.end_if_launched();
    }
}
