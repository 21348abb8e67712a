//! Kinds of change that are made to the machine, and how each is undone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cpuset::{self, CpuListSnapshot};
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::ThreadClass;
use sidelane_host::procfs;
use sidelane_host::thread::Thread;
use sidelane_host::topology::online_cpus;

use super::groups::{self, Fate};
use super::newcomers::Newcomers;
use super::{agent_check, command_socket};

/// A change to the machine, with what is needed to undo it. A second undo has no further effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    /// A thread was put on other CPUs.
    Affinity {
        /// Thread that was put on other CPUs.
        thread: Thread,
        /// Affinity that the thread had before.
        affinity: Affinity,
    },
    /// A thread existed before any thread was changed, and is not changed itself.
    Known {
        /// Thread that is not changed.
        thread: Thread,
    },
    /// The kernel may have forgotten the CPUs that a thread had chosen, when the CPU list of its group was written.
    Forgotten {
        /// Thread whose CPUs the kernel may have forgotten.
        thread: Thread,
        /// Affinity that the thread had before.
        affinity: Affinity,
    },
    /// A thread was put into another scheduling class.
    Class {
        /// Thread that was put into another class.
        thread: Thread,
        /// Scheduling class that the thread had before.
        class: ThreadClass,
    },
    /// A control group that Sidelane did not create may be frozen or thawed.
    Freezer {
        /// Directory of the group.
        dir: PathBuf,
        /// Whether the group was frozen before.
        frozen: bool,
    },
    /// The guardian may freeze a control group that Sidelane did not create, while the agent is stopped. It thaws only
    /// groups that it froze itself.
    MayFreeze {
        /// Directory of the group.
        dir: PathBuf,
    },
    /// A control group that Sidelane did not create, or a tree of such groups, was put on other CPUs.
    Cpusets(CpuListSnapshot),
    /// A control group was created.
    Group {
        /// Directory of the group.
        dir: PathBuf,
        /// Fate of the processes in the group.
        fate: Fate,
    },
    /// A process was moved into a group that was created.
    Member {
        /// Process that was moved.
        process: Thread,
        /// Directory of the group that was created.
        group: PathBuf,
        /// Directory of the group that the process was in before.
        from: PathBuf,
    },
    /// Changed threads create other threads, which inherit the change.
    Newcomers(Newcomers),
    /// A process was started. Undo ends it, with its descendants.
    Family {
        /// Process that was started.
        process: Thread,
    },
    /// A command changed another program, which takes commands at a Unix socket. The undo is another command.
    Command {
        /// Path of the socket.
        socket: PathBuf,
        /// Command that undoes the change, without the end of its line.
        line: String,
    },
    /// Servers may have got less than their full weight by answers to agent checks of HAProxy.
    AgentCheck {
        /// Address of the agent.
        address: SocketAddr,
        /// Number of servers for which it answered.
        servers: usize,
    },
    /// A claim file was created. A living agent removes its own file, last of all.
    Claim {
        /// Path of the claim file.
        file: PathBuf,
        /// Inode number of the claim file; `None` if no other process can have created a file of the same name since.
        inode: Option<u64>,
    },
}

impl Undo {
    /// Ends the processes that this change has started, so that their groups can be removed.
    pub fn end_processes(&self) {
        match self {
            Undo::Family { process } if process.is_alive() => kill_process_tree(process.tid),
            Undo::Group { dir, fate: Fate::Ended } => groups::kill_group(dir),
            _ => {}
        }
    }

    /// Undoes the change. Threads in `known_threads` have an undo of their own, so an undo for newcomers (threads
    /// created by changed threads) leaves them alone.
    pub fn carry_out(&self, known_threads: &BTreeSet<Thread>) -> io::Result<()> {
        match self {
            Undo::Affinity { thread, affinity } => affinity.apply_to(thread),
            Undo::Forgotten { thread, affinity } => match Affinity::of_thread(thread, &Cpusets::find()) {
                Some(now) if now.follows_group => affinity.apply_to(thread),
                // The thread has ended, or has chosen its CPUs itself since the group's list was written.
                _ => Ok(()),
            },
            Undo::Class { thread, class } => set_thread_class(thread, *class),
            Undo::Freezer { dir, frozen } => set_freezer(dir, *frozen),
            Undo::Cpusets(found) => {
                ignore_missing_path(&found.root, || cpuset::restore_cpu_lists(found, &online_cpus()?))
            }
            Undo::Group { dir, fate } => groups::remove_group(dir, fate),
            Undo::Member { process, group, from } => {
                ignore_missing_path(from, || groups::move_back(process, group, from))
            }
            Undo::Newcomers(newcomers) => {
                newcomers.restore_all(known_threads);
                Ok(())
            }
            // A program that has ended has lost the change with its memory.
            Undo::Command { socket, line } => match command_socket::exchange(socket, line) {
                Err(error) if command_socket::is_without_listener(&error) => Ok(()),
                answered => answered.map(drop),
            },
            Undo::AgentCheck { address, servers } => agent_check::restore_weights(*address, *servers),
            Undo::Family { .. } | Undo::MayFreeze { .. } | Undo::Known { .. } => Ok(()),
            Undo::Claim { file, inode } => ignore_missing_path(file, || {
                let found = fs::metadata(file)?.ino();
                if inode.is_none_or(|made| made == found) { fs::remove_file(file) } else { Ok(()) }
            }),
        }
    }

    /// Returns the thread that the change concerns; `None` if it concerns no single thread.
    pub fn thread(&self) -> Option<Thread> {
        match self {
            Undo::Affinity { thread, .. } | Undo::Class { thread, .. } | Undo::Known { thread } => Some(*thread),
            _ => None,
        }
    }

    /// Returns whether the change bound each thread to one CPU. Threads that a bound thread creates then have one CPU,
    /// too.
    pub fn binds_threads_to_single_cpus(&self) -> bool {
        matches!(self, Undo::Newcomers(newcomers) if newcomers.alone)
    }

    /// Returns whether the undo puts threads into a real-time class.
    pub fn gives_realtime_class(&self) -> bool {
        let class = match self {
            Undo::Class { class, .. } => Some(class),
            Undo::Newcomers(newcomers) => newcomers.class.as_ref(),
            _ => None,
        };
        class.is_some_and(ThreadClass::is_realtime)
    }

    /// Returns the freezer of the group that the change concerns, if it has one.
    pub fn freezer(&self) -> Option<Freezer> {
        match self {
            Undo::Freezer { dir, .. } | Undo::MayFreeze { dir } | Undo::Group { dir, .. } => {
                Freezer::find_in_group(dir)
            }
            _ => None,
        }
    }
}

pub(super) fn set_thread_class(thread: &Thread, class: ThreadClass) -> io::Result<()> {
    if !thread.try_is_alive()? || ThreadClass::of_thread(thread.tid) == Some(class) {
        return Ok(());
    }
    ignore_ended_thread(class.apply_to_thread(thread.tid))
}

/// Freezes or thaws a group, if it still exists.
pub(super) fn set_freezer(dir: &Path, frozen: bool) -> io::Result<()> {
    ignore_missing_path(dir, || Freezer::find_in_group(dir).map_or(Ok(()), |freezer| freezer.set_frozen(frozen)))
}

/// Ignores an error because the thread has ended: an ended thread has no settings to restore.
fn ignore_ended_thread(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) })
}

/// Ignores an error if the group or file is gone: its owner may remove it at any time.
fn ignore_missing_path(path: &Path, undo: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    undo().or_else(|error| if path.exists() { Err(error) } else { Ok(()) })
}

/// Kills a command and its descendants. Without control groups, no other processes of the command are known.
fn kill_process_tree(pid: u32) {
    for member in procfs::with_descendants(&BTreeSet::from([pid])) {
        // SAFETY: plain system call. The agent reaps the command only after it has withdrawn the change, so the process
        // id still belongs to the command.
        unsafe { libc::kill(member as libc::pid_t, libc::SIGKILL) };
    }
}

/// Returns the undo of every group with the name `group_name` that may be created below the group of this process.
pub fn undos_of_own_groups(group_name: &str) -> Vec<Undo> {
    let dirs = groups::own_group_dirs(group_name).into_iter();
    dirs.map(|dir| Undo::Group { dir, fate: Fate::Ended }).collect()
}
