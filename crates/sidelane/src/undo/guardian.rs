//! The guardian: a second process that puts the machine right if the first one dies.
//!
//! Kernel programs, links and holder threads vanish with the process that owns them; processes,
//! groups and affinities do not. So the agent tells its guardian what there is to undo *before*
//! it does it, over a pipe. The guardian does nothing else but wait: when the pipe closes
//! without a farewell, the agent is dead, however it died, and the guardian ends the batch
//! command, removes its groups and gives the service its CPUs back. While the agent is stopped
//! (SIGSTOP) nobody holds lanes, so batch stays frozen until it runs again.
//!
//! It runs in a session of its own, so that neither Ctrl-C nor a kill of the agent's process
//! group reaches it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::lane::cage::CagePlan;
use crate::undo::affinity::PinPlan;
use sidelane_host::cgroup::Leaf;
use sidelane_host::procfs;

/// The hidden verb under which the binary is its own guardian.
pub const VERB: &str = "__guardian";
/// How soon a stopped agent is noticed.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// All there is to undo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoPlan {
    /// The batch command's groups.
    pub cage: CagePlan,
    /// The batch command, or 0.
    pub batch_pid: u32,
    /// The service's affinities.
    pub pins: PinPlan,
    /// Files that claim the lanes. A living agent removes them itself, last of all.
    pub claims: Vec<PathBuf>,
}

impl UndoPlan {
    /// Puts the machine right. The agent at its end and the guardian do the same.
    pub fn carry_out(&self) -> io::Result<()> {
        if self.batch_pid != 0 {
            kill_family(self.batch_pid);
        }
        let ended = self.cage.carry_out();
        self.pins.undo();
        ended
    }

    fn freeze(&self, frozen: bool) {
        for dir in &self.cage.dirs {
            let leaf = Leaf { dir: dir.clone() };
            for (file, value) in [
                ("cgroup.freeze", if frozen { "1" } else { "0" }),
                ("freezer.state", if frozen { "FROZEN" } else { "THAWED" }),
            ] {
                if leaf.has(file) {
                    let _ = leaf.write(file, value);
                }
            }
        }
    }
}

/// Where there are no groups, a command's descendants are all that is known of what it started.
fn kill_family(pid: u32) {
    for member in procfs::family(&BTreeSet::from([pid])) {
        // SAFETY: plain system call. The agent reaps the command only after it has withdrawn its
        // pid from the plan, so the number still means the command.
        unsafe { libc::kill(member as libc::pid_t, libc::SIGKILL) };
    }
}

/// The agent's end.
pub struct Guardian {
    child: Child,
    plan: UndoPlan,
}

impl Guardian {
    /// Starts the guardian. `keep` are open files (locks) that it holds as long as it lives.
    pub fn start(keep: &[OwnedFd]) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sidelane-guardian").arg(VERB).arg(std::process::id().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let kept: Vec<OwnedFd> = keep.iter().map(|fd| fd.try_clone()).collect::<io::Result<_>>()?;
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for fd in &kept {
                    rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::empty())?;
                }
                rustix::process::setsid()?;
                Ok(())
            });
        }
        Ok(Self { child: command.spawn()?, plan: UndoPlan::default() })
    }

    /// Changes what there is to undo; call it before doing it.
    pub fn update(&mut self, change: impl FnOnce(&mut UndoPlan)) -> io::Result<()> {
        change(&mut self.plan);
        let line = serde_json::to_string(&self.plan)?;
        let pipe = self.child.stdin.as_mut().expect("the pipe is open until the end");
        writeln!(pipe, "{line}")
    }

    /// What there is to undo now.
    pub fn plan(&self) -> &UndoPlan {
        &self.plan
    }

    /// Whether it still watches.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Undoes everything here and sends the guardian home.
    pub fn finish(mut self) -> io::Result<()> {
        let undone = self.plan.carry_out();
        if undone.is_ok() {
            self.update(|plan| *plan = UndoPlan::default())?;
        }
        drop(self.child.stdin.take());
        self.child.wait()?;
        undone
    }
}

/// The guardian's own program: reads plans from standard input until it closes.
pub fn main(agent_pid: u32) -> io::Result<()> {
    let stdin = io::stdin();
    let mut plans = BufReader::new(stdin.lock());
    let mut plan = UndoPlan::default();
    let mut agent_stopped = false;
    loop {
        if !plans.buffer().contains(&b'\n') && !input_within(&LOOK_EVERY)? {
            let stopped = is_stopped(agent_pid);
            if stopped != agent_stopped {
                plan.freeze(stopped);
                agent_stopped = stopped;
            }
            continue;
        }
        let mut line = String::new();
        if plans.read_line(&mut line)? == 0 {
            let undone = plan.carry_out();
            // The locks are inherited, so these are still ours.
            plan.claims.iter().for_each(|claim| drop(fs::remove_file(claim)));
            return undone;
        }
        plan = serde_json::from_str(&line)?;
    }
}

fn input_within(timeout: &Timespec) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut door = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut door, Some(timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_stopped(pid: u32) -> bool {
    matches!(procfs::state(&format!("/proc/{pid}/stat")), Some('T' | 't'))
}
