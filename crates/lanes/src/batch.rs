//! The batch command: started behind a barrier, so that it is confined and known to the kernel
//! program before its first instruction.
//!
//! The barrier is this binary itself under a hidden verb: it waits on a pipe, takes its scheduling
//! class and becomes the command by exec, so the command's process id, environment,
//! terminal and standard streams are what the user would get without Sidelane.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};

use super::gate::instrumented::{keep_out, preload};
use crate::gate::instrumented::Pass;
use sidelane_host::priority::{self, ThreadClass};
use sidelane_host::{posix_signals, rights};

/// The hidden verb under which the binary is the start barrier.
pub const VERB: &str = "__batch";
/// As shells have it: the command was found but cannot be run, or was not found.
const EXIT_CANNOT_RUN: i32 = 126;
const EXIT_NOT_FOUND: i32 = 127;

/// Which scheduling class the batch command runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchClass {
    /// SCHED_IDLE: any other task that needs the batch lane gets it at once.
    Idle,
    /// SCHED_EXT: a scheduler of ours decides when it runs.
    Ext,
    /// SCHED_OTHER, for comparison.
    Ordinary,
}

impl BatchClass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Ext, Self::Ordinary];

    /// Its name on the command line of the start barrier.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ext => "ext",
            Self::Ordinary => "ordinary",
        }
    }

    /// The class of that name; the ordinary one if there is none.
    pub fn of_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|class| class.name() == name).unwrap_or(Self::Ordinary)
    }

    /// The class for the kernel; `None` where batch may be in any.
    fn for_kernel(self) -> Option<ThreadClass> {
        match self {
            Self::Idle => Some(ThreadClass::IDLE),
            Self::Ext => Some(ThreadClass::EXT),
            Self::Ordinary => None,
        }
    }

    /// Whether a thread of batch may be in the class `found`. What else leaves SCHED_EXT, its scheduler sees.
    fn admits(self, found: ThreadClass) -> bool {
        match self {
            Self::Idle => found.is_idle(),
            Self::Ext => !found.is_realtime(),
            Self::Ordinary => true,
        }
    }

    /// Puts the thread `tid` back into it, unless it is in a class that batch may have. Returns whether it did.
    pub fn put_back(self, tid: u32) -> bool {
        let has_left = ThreadClass::of(tid).is_some_and(|found| !self.admits(found));
        has_left && self.for_kernel().is_some_and(|class| class.give(tid).is_ok())
    }

    /// Puts the calling thread, and its children to come, into it.
    pub fn take(self) -> io::Result<()> {
        match self {
            Self::Idle => priority::make_this_thread_idle(),
            Self::Ext => priority::make_this_thread_ext(),
            Self::Ordinary => Ok(()),
        }
    }
}

/// A batch command that was started, but may not run yet.
pub struct StartBarrier {
    child: Child,
    barrier: OwnedFd,
}

impl StartBarrier {
    /// Starts `command` behind the barrier, without input and output if it is to be quiet; with a pass, so that it can check for itself.
    /// Without rights it cannot enter a class that runs before the holder's ([`rights`]).
    pub fn start(
        command: &[OsString],
        class: BatchClass,
        quiet: bool,
        has_rights: bool,
        pass: Option<&Pass>,
    ) -> io::Result<Self> {
        let (entrance, barrier) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut waiting = Command::new("/proc/self/exe");
        waiting.arg(VERB).arg(entrance.as_raw_fd().to_string());
        waiting.arg(class.name()).args((!has_rights).then_some("--without-rights")).arg("--").args(command);
        if quiet {
            waiting.stdin(Stdio::null()).stdout(Stdio::null());
        }
        match pass {
            Some(pass) => pass.announce(&mut waiting),
            None => keep_out(&mut waiting),
        }
        let passed_on = pass.map(Pass::numbers).unwrap_or_default();
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            waiting.pre_exec(move || {
                posix_signals::unmask();
                rustix::io::fcntl_setfd(&entrance, rustix::io::FdFlags::empty())?;
                Pass::open(&passed_on)?;
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                Ok(())
            });
        }
        Ok(Self { child: waiting.spawn()?, barrier })
    }

    /// The command's process id, now and after it has passed the barrier.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it run.
    pub fn open(self) -> io::Result<Batch> {
        rustix::io::write(&self.barrier, b"!")?;
        Ok(Batch { child: self.child })
    }
}

/// A running batch command.
pub struct Batch {
    child: Child,
}

impl Batch {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not reaped before `reap`.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Whether it has ended. It is not reaped yet, so its process id stays its own.
    pub fn has_ended(&self) -> bool {
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&self.child));
        let options = rustix::process::WaitIdOptions::EXITED
            | rustix::process::WaitIdOptions::NOHANG
            | rustix::process::WaitIdOptions::NOWAIT;
        matches!(rustix::process::waitid(id, options), Ok(Some(_)))
    }

    /// Waits for it to end and takes its status.
    pub fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// The exit code that a shell would report.
pub fn exit_code(status: ExitStatus) -> i32 {
    const SIGNALLED: i32 = 128;
    status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or(0))
}

/// Gives up what lets the command run before others, and the programs that the kernel would start for its core dumps.
/// The session has noted already what cannot be given up here.
fn give_up_rights() {
    if rights::dumps_go_to_a_program() {
        let _ = rights::dump_to_no_program();
    }
    let _ = rights::give_up();
}

/// The barrier's own program. Returns only if the command cannot be run.
pub fn main(entrance_fd: i32, class: BatchClass, without_rights: bool, command: &[OsString]) -> i32 {
    // SAFETY: the agent passed this descriptor for us alone.
    let mut entrance = unsafe { std::fs::File::from_raw_fd(entrance_fd) };
    // Before the barrier opens, so that not even its own end runs in another class. Refused only by unusual
    // security policies, and the lane holder works all the same. A scheduler does not.
    let taken = class.take();
    if without_rights {
        give_up_rights();
    }
    let opened = entrance.read(&mut [0]).is_ok_and(|bytes| bytes == 1);
    drop(entrance);
    let Some((program, arguments)) = command.split_first().filter(|_| opened) else {
        return EXIT_CANNOT_RUN;
    };
    if let Err(error) = taken
        && class == BatchClass::Ext
    {
        let _ = writeln!(io::stderr(), "sidelane: cannot put batch into SCHED_EXT: {error}; use --gate holder");
        return EXIT_CANNOT_RUN;
    }
    let mut becoming = Command::new(program);
    preload(&mut becoming);
    let error = becoming.args(arguments).exec();
    let _ = writeln!(io::stderr(), "sidelane: cannot run `{}`: {error}", program.to_string_lossy());
    if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN }
}
