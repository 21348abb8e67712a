//! The kinds of change that are made to the machine, and how each is undone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cpuset::{self, Found};
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::ThreadClass;
use sidelane_host::procfs;
use sidelane_host::thread::Thread;
use sidelane_host::topology::online_cpus;

use super::groups::{self, Fate};
use super::newcomers::Newcomers;

/// One change to the machine, as what it takes to undo it. To undo it twice does no more than to undo it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undo {
    /// A thread was put on other CPUs.
    Affinity {
        /// The thread.
        thread: Thread,
        /// The affinity that it had.
        affinity: Affinity,
    },
    /// A thread was there before any was changed, and is not changed itself.
    Known {
        /// The thread.
        thread: Thread,
    },
    /// The kernel may have forgotten the CPUs that a thread had chosen, when the list of its group was written.
    Forgotten {
        /// The thread.
        thread: Thread,
        /// The affinity that it had.
        affinity: Affinity,
    },
    /// A thread was put into another scheduling class.
    Class {
        /// The thread.
        thread: Thread,
        /// The class that it had.
        class: ThreadClass,
    },
    /// A foreign group is frozen and thawed.
    Freezer {
        /// The group's directory.
        dir: PathBuf,
        /// How it was found.
        frozen: bool,
    },
    /// The guardian freezes a foreign group while the agent is stopped. It thaws what it has frozen itself.
    MayFreeze {
        /// The group's directory.
        dir: PathBuf,
    },
    /// A foreign group, or a tree of groups, was put on other CPUs.
    Cpusets(Found),
    /// A group was made.
    Group {
        /// Its directory.
        dir: PathBuf,
        /// What becomes of the processes in it.
        fate: Fate,
    },
    /// A process was moved into a group that was made.
    Member {
        /// The process.
        process: Thread,
        /// The directory of the group that was made.
        group: PathBuf,
        /// The directory of the group that the process was in.
        from: PathBuf,
    },
    /// Processes are born to threads that were changed, and inherit the change.
    Newcomers(Newcomers),
    /// A process was started. It is to end, and its descendants with it.
    Family {
        /// The process.
        process: Thread,
    },
    /// A file was made that says who is there. A living agent removes its own, last of all.
    Claim {
        /// The file.
        file: PathBuf,
        /// Its inode, if another process may have created a file of that name since.
        inode: Option<u64>,
    },
}

impl Undo {
    /// Ends the processes that were started, so that what they are in can be removed.
    pub fn end_processes(&self) {
        match self {
            Undo::Family { process } if process.is_there() => kill_family(process.tid),
            Undo::Group { dir, fate: Fate::Ended } => groups::kill_all(dir),
            _ => {}
        }
    }

    /// Undoes it. `known` are the threads that have an undo of their own.
    pub fn carry_out(&self, known: &BTreeSet<Thread>) -> io::Result<()> {
        match self {
            Undo::Affinity { thread, affinity } => affinity.give(thread),
            Undo::Forgotten { thread, affinity } => match Affinity::of(thread, &Cpusets::find()) {
                Some(now) if now.follows_group => affinity.give(thread),
                // It has ended, or has chosen again since.
                _ => Ok(()),
            },
            Undo::Class { thread, class } => give_class(thread, *class),
            Undo::Freezer { dir, frozen } => set_freezer(dir, *frozen),
            Undo::Cpusets(found) => unless_gone(&found.root, || cpuset::give_back(found, &online_cpus()?)),
            Undo::Group { dir, fate } => groups::remove(dir, fate),
            Undo::Member { process, group, from } => unless_gone(from, || groups::move_back(process, group, from)),
            Undo::Newcomers(newcomers) => {
                newcomers.give_back(known);
                Ok(())
            }
            Undo::Family { .. } | Undo::MayFreeze { .. } | Undo::Known { .. } => Ok(()),
            Undo::Claim { file, inode } => unless_gone(file, || {
                let found = fs::metadata(file)?.ino();
                if inode.is_none_or(|made| made == found) { fs::remove_file(file) } else { Ok(()) }
            }),
        }
    }

    /// The thread that it is about, if it is about one.
    pub fn thread(&self) -> Option<Thread> {
        match self {
            Undo::Affinity { thread, .. } | Undo::Class { thread, .. } | Undo::Known { thread } => Some(*thread),
            _ => None,
        }
    }

    /// Whether threads were bound to one CPU each: those born to them have one CPU, too.
    pub fn binds(&self) -> bool {
        matches!(self, Undo::Newcomers(newcomers) if newcomers.alone)
    }

    /// The freezer of the group that it is about.
    pub fn freezer(&self) -> Option<Freezer> {
        match self {
            Undo::Freezer { dir, .. } | Undo::MayFreeze { dir } | Undo::Group { dir, .. } => Freezer::of(dir),
            _ => None,
        }
    }
}

pub(super) fn give_class(thread: &Thread, class: ThreadClass) -> io::Result<()> {
    if !thread.is_there() || ThreadClass::of(thread.tid) == Some(class) {
        return Ok(());
    }
    unless_ended(class.give(thread.tid))
}

/// Freezes or thaws a group, if it is there still.
pub(super) fn set_freezer(dir: &Path, frozen: bool) -> io::Result<()> {
    unless_gone(dir, || Freezer::of(dir).map_or(Ok(()), |freezer| freezer.set(frozen)))
}

/// A thread may end at any time, and then needs nothing back.
fn unless_ended(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) })
}

/// The owner of a group or file may remove it at any time.
fn unless_gone(path: &Path, undo: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    undo().or_else(|error| if path.exists() { Err(error) } else { Ok(()) })
}

/// Where there are no groups, a command's descendants are all that is known of what it started.
fn kill_family(pid: u32) {
    for member in procfs::family(&BTreeSet::from([pid])) {
        // SAFETY: plain system call. The agent reaps the command only after it has withdrawn the change, so the
        // number still means the command.
        unsafe { libc::kill(member as libc::pid_t, libc::SIGKILL) };
    }
}

/// Every group that may be made as `name` below the group that this process is in.
pub fn own_groups(name: &str) -> Vec<Undo> {
    let dirs = groups::own_dirs(name).into_iter();
    dirs.map(|dir| Undo::Group { dir, fate: Fate::Ended }).collect()
}
