//! The batch command: started behind a barrier, so that it is confined and known to the kernel program before its first
//! instruction.
//!
//! The barrier is this binary with a hidden verb. It waits on a pipe, takes its scheduling class and becomes the
//! command by exec. So the command has the process id, environment, terminal and standard streams that it would have
//! without Sidelane.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{env, fs};

use rustix::fs::{Access, access};
use rustix::pipe::{PipeFlags, pipe_with};

use super::gate::instrumented::{preload_library, remove_gate_from_environment};
use crate::gate::instrumented::GateDescriptors;
use sidelane_host::priority::{self, ThreadClass};
use sidelane_host::{posix_signals, rights};

/// Hidden verb under which this binary is the start barrier.
pub const VERB: &str = "__batch";
/// Exit code of shells for a command that was found but cannot be run; the next constant is for one that was not found.
const EXIT_CANNOT_RUN: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// Scheduling class of the batch command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchClass {
    /// SCHED_IDLE: any other task gets the batch lane at once.
    Idle,
    /// SCHED_EXT: a scheduler of Sidelane decides when batch runs.
    Ext,
    /// SCHED_OTHER, for comparison.
    Ordinary,
}

impl BatchClass {
    /// All scheduling classes of batch.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Ext, Self::Ordinary];

    /// Returns the name of the class on the command line of the start barrier.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ext => "ext",
            Self::Ordinary => "ordinary",
        }
    }

    /// Returns the class with this name; the ordinary class if there is none.
    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|class| class.name() == name).unwrap_or(Self::Ordinary)
    }

    /// Returns the class as the kernel has it; `None` if batch may be in any class.
    fn kernel_class(self) -> Option<ThreadClass> {
        match self {
            Self::Idle => Some(ThreadClass::IDLE),
            Self::Ext => Some(ThreadClass::EXT),
            Self::Ordinary => None,
        }
    }

    /// Returns whether a thread of batch may be in the class `thread_class`. Ordinary classes are allowed under
    /// [`BatchClass::Ext`], because the sched_ext scheduler itself reports threads that leave its class.
    fn allows_class(self, thread_class: ThreadClass) -> bool {
        match self {
            Self::Idle => thread_class.is_idle(),
            Self::Ext => !thread_class.is_realtime(),
            Self::Ordinary => true,
        }
    }

    /// Puts the thread `tid` back into this class, unless batch may be in the thread's present class. Returns whether
    /// it was put back.
    pub fn restore_thread_class(self, tid: u32) -> bool {
        let has_left = ThreadClass::of_thread(tid).is_some_and(|found| !self.allows_class(found));
        has_left && self.kernel_class().is_some_and(|class| class.apply_to_thread(tid).is_ok())
    }

    /// Puts the calling thread, and its future children, into this class.
    pub fn apply_to_this_thread(self) -> io::Result<()> {
        match self {
            Self::Idle => priority::make_this_thread_idle(),
            Self::Ext => priority::make_this_thread_ext(),
            Self::Ordinary => Ok(()),
        }
    }
}

/// Batch command that was started, but may not run yet.
pub struct StartBarrier {
    child: Child,
    barrier: OwnedFd,
}

impl StartBarrier {
    /// Starts `command` behind the barrier. With `quiet`, it has no input and output; with `gate_descriptors`, it can
    /// check its lane itself. Without `has_rights`, it cannot enter a class that preempts the holder ([`rights`]).
    pub fn start(
        command: &[OsString],
        class: BatchClass,
        quiet: bool,
        has_rights: bool,
        gate_descriptors: Option<&GateDescriptors>,
    ) -> io::Result<Self> {
        let (entrance, barrier) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut waiting = Command::new("/proc/self/exe");
        waiting.arg(VERB).arg(entrance.as_raw_fd().to_string());
        waiting.arg(class.name()).args((!has_rights).then_some("--without-rights")).arg("--").args(command);
        if quiet {
            waiting.stdin(Stdio::null()).stdout(Stdio::null());
        }
        match gate_descriptors {
            Some(pass) => pass.add_to_environment(&mut waiting),
            None => remove_gate_from_environment(&mut waiting),
        }
        let passed_on = gate_descriptors.map(GateDescriptors::fd_numbers).unwrap_or_default();
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            waiting.pre_exec(move || {
                posix_signals::unblock_received_signals();
                rustix::io::fcntl_setfd(&entrance, rustix::io::FdFlags::empty())?;
                GateDescriptors::keep_open_on_exec(&passed_on)?;
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                Ok(())
            });
        }
        Ok(Self { child: waiting.spawn()?, barrier })
    }

    /// Returns the process id of the command, which it keeps after the barrier.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens the barrier, so that the command runs.
    pub fn open(self) -> io::Result<Batch> {
        rustix::io::write(&self.barrier, b"!")?;
        Ok(Batch { child: self.child })
    }
}

pub struct Batch {
    child: Child,
}

impl Batch {
    /// Returns the process id of the command.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the command a POSIX signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not reaped before `reap`.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Returns whether the command has ended. It is not reaped yet, so its process id is not reused.
    pub fn has_ended(&self) -> bool {
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&self.child));
        let options = rustix::process::WaitIdOptions::EXITED
            | rustix::process::WaitIdOptions::NOHANG
            | rustix::process::WaitIdOptions::NOWAIT;
        matches!(rustix::process::waitid(id, options), Ok(Some(_)))
    }

    /// Waits for the end of the command and returns its status.
    pub fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// Returns the exit code that a shell would report for this status.
pub fn exit_code(status: ExitStatus) -> i32 {
    const SIGNALLED: i32 = 128;
    status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or(0))
}

/// Gives up rights by which the command could preempt other threads. Also turns off core dumps to a program, because
/// the kernel would start that program. The session has noted already which rights cannot be given up.
fn give_up_rights() {
    if rights::is_core_dump_piped() {
        let _ = rights::disable_piped_core_dumps();
    }
    let _ = rights::drop_priority_rights();
}

/// Runs the barrier process. Returns only if the command cannot be run.
pub fn main(entrance_fd: i32, class: BatchClass, without_rights: bool, command: &[OsString]) -> i32 {
    // SAFETY: the agent passed this descriptor for this process alone.
    let mut entrance = unsafe { std::fs::File::from_raw_fd(entrance_fd) };
    // The class is taken before the barrier opens, so that not even the end of this process runs in another class. An
    // unusual security policy may refuse the class. Then a lane holder still works, but a sched_ext scheduler of batch
    // does not.
    let taken = class.apply_to_this_thread();
    if without_rights {
        give_up_rights();
    }
    let opened = entrance.read(&mut [0]).is_ok_and(|bytes| bytes == 1);
    drop(entrance);
    let Some((program, arguments)) = command.split_first().filter(|_| opened) else {
        return i32::from(EXIT_CANNOT_RUN);
    };
    if let Err(error) = taken
        && class == BatchClass::Ext
    {
        let _ = writeln!(io::stderr(), "sidelane: cannot put batch into SCHED_EXT: {error}; use --gate holder");
        return i32::from(EXIT_CANNOT_RUN);
    }
    let mut becoming = Command::new(program);
    preload_library(&mut becoming);
    let error = becoming.args(arguments).exec();
    let _ = writeln!(io::stderr(), "{}", cannot_run_text(program, &error));
    i32::from(exit_code_of_exec_error(&error))
}

/// Returns the error for a program that cannot be run.
pub fn cannot_run_text(program: &OsStr, error: &io::Error) -> String {
    format!("sidelane: cannot run `{}`: {error}", program.to_string_lossy())
}

/// Returns the exit code that a shell would report for a program that exec refuses with this error.
pub fn exit_code_of_exec_error(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN }
}

/// Checks that exec would find this program, by its path or in the directories of `PATH`.
///
/// # Errors
/// The error of exec, if the program is not there or is no file that may be executed.
pub fn find_program(program: &OsStr) -> io::Result<()> {
    let check = |path: &Path| match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(access(path, Access::EXEC_OK)?),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EACCES)),
        Err(error) => Err(error),
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return check(Path::new(program));
    }
    // Without PATH, exec has directories of its own.
    let Some(dirs) = env::var_os("PATH") else { return Ok(()) };
    let tried: Vec<io::Result<()>> = env::split_paths(&dirs).map(|dir| check(&dir.join(program))).collect();
    if tried.iter().any(Result::is_ok) {
        return Ok(());
    }
    let refused =
        tried.into_iter().find(|one| one.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound));
    refused.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_as_exec_finds_it() {
        let code = |program: &str| find_program(OsStr::new(program)).map_err(|error| exit_code_of_exec_error(&error));
        assert_eq!([code("sh"), code("/bin/sh")], [Ok(()), Ok(())]);
        assert_eq!([code("no-such-command-of-sidelane"), code("/no/such/command")], [Err(127), Err(127)]);
        assert_eq!([code("/etc/passwd"), code("/etc")], [Err(126), Err(126)]);
    }
}
