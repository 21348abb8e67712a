//! The guardian: a second process that restores the machine if the first one dies.
//!
//! Kernel programs, links and holder threads vanish with the process that owns them; processes, groups and affinities
//! do not. So the agent tells its guardian over a pipe how to undo each change *before* it makes the change, and
//! withdraws what it has undone itself. The guardian only waits. When the pipe closes, it undoes what is still on its
//! list, last change first. After a regular end of the agent, the list is empty.
//!
//! While the agent is stopped (SIGSTOP) no lane is held. So the guardian freezes every group on the list that can be
//! frozen, and reports each to the agent. It does not thaw the groups: evicted batch has to stay frozen, and only the
//! agent knows which groups are evicted. So the agent thaws groups when it runs again. At its own end, the guardian
//! thaws groups that the agent has not taken over. Groups that another process froze stay frozen.
//!
//! The guardian runs in a session of its own and in the root groups, and it holds the locks of claims. So it outlives
//! Ctrl-C and the end of the agent's process group, control group or container. A guardian that is dead, stopped or
//! frozen is replaced, and the new guardian receives the whole list.

mod pipe;
mod program;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::change::Undo;
use super::list::{ChangeId, UndoList};
use crate::own_threads::add_child_process;
pub use program::main;
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::halt::HaltWatch;

/// Time between two checks for the guardian's end, without a descriptor of its process.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Hidden verb with which the binary runs as its own guardian.
pub const VERB: &str = "__guardian";

/// Message to the guardian, one JSON object per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    Add(ChangeId, Undo),
    Withdraw(ChangeId),
    /// The agent has taken over the groups that the guardian reported up to the line with this number.
    Heard(u64),
}

/// The agent's end of its connection to the guardian.
pub struct Guardian {
    child: Child,
    list: UndoList,
    /// Bytes read from the guardian after its last complete line.
    unread: Vec<u8>,
    /// Number of lines read from the guardian.
    lines: u64,
    /// Changes for which the guardian acted during a halt, and which the agent has not collected, by their tickets.
    frozen: BTreeSet<ChangeId>,
    is_apart: bool,
    watch: HaltWatch,
    /// Whether the guardian was halted, and was killed for that.
    was_halted: bool,
    /// Ring that is notified when a thread of this process halts.
    halt_events: Option<OwnedFd>,
}

/// Context of an error if a guardian cannot be started.
pub const CANNOT_START: &str = "cannot start the guardian process, which restores the machine if sidelane dies; raise \
                                the limits of processes and open files (ulimit -u, ulimit -n)";
/// Context of an error if a guardian cannot be replaced.
pub const CANNOT_RESTART: &str = "cannot replace the guardian process, which restores the machine if sidelane dies; \
                                  raise the limits of processes and open files (ulimit -u, ulimit -n)";
const CANNOT_UNDO: &str = "the guardian process could not undo all changes either";
/// Context of an error of [`Guardian::replace`].
pub const CANNOT_REPLACE_UNDO: &str = "cannot change an undo in the list of the guardian process, which restores the \
                                       machine if sidelane dies; try again";
/// Context of an error of [`Guardian::withdraw`].
pub const CANNOT_WITHDRAW: &str = "cannot remove an undo from the list of the guardian process, which restores the \
                                   machine if sidelane dies; try again";

impl Guardian {
    /// Starts the guardian. The guardian holds the lock files `locks` as long as it lives. `halt_events` is the
    /// tracker's ring that reports halts of this process; without it the guardian checks for halts every 50 ms.
    pub fn start(locks: &[OwnedFd], halt_events: Option<OwnedFd>) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sidelane-guardian").arg(VERB).arg(std::process::id().to_string());
        Self::spawn(command, locks, halt_events)
    }

    fn spawn(mut command: Command, locks: &[OwnedFd], halt_events: Option<OwnedFd>) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A descriptor keeps its number in the child.
        command.args(halt_events.iter().map(|halt_events| halt_events.as_raw_fd().to_string()));
        let kept: Vec<OwnedFd> = locks.iter().map(|fd| fd.try_clone()).collect::<io::Result<_>>()?;
        let halt_fd = halt_events.as_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for fd in &kept {
                    rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::empty())?;
                }
                // The parent holds the ring's descriptor open until after the spawn.
                if let Some(halt_events) = halt_fd.map(|fd| BorrowedFd::borrow_raw(fd)) {
                    rustix::io::fcntl_setfd(halt_events, rustix::io::FdFlags::empty())?;
                }
                rustix::process::setsid()?;
                Ok(())
            });
        }
        let child = command.spawn()?;
        add_child_process(child.id());
        let is_apart = move_to_root_groups(child.id());
        fcntl_setfl(child.stdin.as_ref().expect("it has a pipe"), OFlags::NONBLOCK)?;
        fcntl_setfl(child.stdout.as_ref().expect("it has a pipe"), OFlags::NONBLOCK)?;
        let (list, unread, frozen) = Default::default();
        let watch = HaltWatch::new(child.id());
        Ok(Self { child, list, unread, lines: 0, frozen, is_apart, watch, was_halted: false, halt_events })
    }

    /// Returns whether the guardian outlives this process's group, if the whole group is ended at once.
    pub fn survives_group_kill(&self) -> bool {
        self.is_apart
    }

    /// Returns the changes for which the guardian has acted since the last call, because this process was halted: it
    /// has frozen their groups, or given bound threads their CPUs back. The caller has to thaw these groups, and then
    /// calls [`Guardian::confirm_frozen_changes`]. Empty while any thread of this process is halted.
    pub fn take_frozen_changes(&mut self) -> BTreeSet<ChangeId> {
        self.read_frozen_changes();
        if !self.frozen.is_empty() && HaltWatch::new(std::process::id()).is_halted() {
            return BTreeSet::new();
        }
        std::mem::take(&mut self.frozen)
    }

    fn read_frozen_changes(&mut self) {
        let (pipe, mut bytes) = (self.child.stdout.as_ref().expect("the pipe is open until the end"), [0; 4096]);
        while let Ok(count @ 1..) = rustix::io::read(pipe, &mut bytes) {
            self.unread.extend_from_slice(&bytes[..count]);
        }
        let end = self.unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole: Vec<u8> = self.unread.drain(..end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            self.lines += 1;
            self.frozen.extend(line.parse().map(ChangeId));
        }
    }

    /// Tells the guardian that the agent has taken over the frozen groups.
    pub fn confirm_frozen_changes(&mut self) -> io::Result<()> {
        ignore_timeout_or_closed_pipe(self.send_messages([Message::Heard(self.lines)]))
    }

    /// Tells the guardian of changes; must be called before they are made. Changes that the guardian did not receive
    /// are not on the list.
    pub fn add(&mut self, changes: impl IntoIterator<Item = Undo>) -> Result<Vec<ChangeId>> {
        let added: Vec<(ChangeId, Undo)> =
            changes.into_iter().map(|undo| (self.list.add(undo.clone()), undo)).collect();
        let change_ids: Vec<ChangeId> = added.iter().map(|(change_id, _)| *change_id).collect();
        let told = self.send_messages(added.into_iter().map(|(change_id, undo)| Message::Add(change_id, undo)));
        let told = told.inspect_err(|_| change_ids.iter().for_each(|change_id| self.list.withdraw(*change_id)));
        told.context(
            "cannot register an undo with the guardian process, which restores the machine if sidelane dies; try again",
        )?;
        Ok(change_ids)
    }

    /// Replaces the undo of a change, which keeps its place in the order of changes.
    pub fn replace(&mut self, change_id: ChangeId, undo: Undo) -> io::Result<()> {
        self.list.insert(change_id, undo.clone());
        ignore_closed_pipe(self.send_messages([Message::Add(change_id, undo)]))
    }

    /// Tells the guardian that changes were undone.
    pub fn withdraw(&mut self, change_ids: impl IntoIterator<Item = ChangeId>) -> io::Result<()> {
        let change_ids: Vec<ChangeId> = change_ids.into_iter().collect();
        change_ids.iter().for_each(|change_id| self.list.withdraw(*change_id));
        ignore_timeout_or_closed_pipe(self.send_messages(change_ids.into_iter().map(Message::Withdraw)))
    }

    /// Undoes these changes, last to first, and withdraws them.
    pub fn undo_and_withdraw(&mut self, change_ids: &[ChangeId]) -> io::Result<()> {
        let (undone, outcome) = self.list.undo_matching(|change_id, _| change_ids.contains(&change_id));
        self.withdraw(undone).and(outcome)
    }

    /// Returns the changes that are still to be undone.
    pub fn list(&self) -> &UndoList {
        &self.list
    }

    /// Sends the list of another guardian to this one.
    fn take_over_list(&mut self, list: &UndoList) -> io::Result<()> {
        self.send_messages(list.iter().map(|(change_id, undo)| Message::Add(change_id, undo.clone())))?;
        self.list = list.clone();
        Ok(())
    }

    /// Sends messages to the guardian. Ends a guardian that does not read: it may have read a part of a message, and
    /// the rest could not reach it.
    fn send_messages(&mut self, messages: impl IntoIterator<Item = Message>) -> io::Result<()> {
        let mut lines = Vec::new();
        for told in messages {
            serde_json::to_writer(&mut lines, &told)?;
            lines.push(b'\n');
        }
        let pipe = self.child.stdin.as_ref().expect("the pipe is open until the end");
        pipe::write_all(pipe, &lines).inspect_err(|_| drop(self.child.kill()))
    }

    /// Starts another guardian, which holds the lock files `locks`, and transfers the whole list to it.
    pub fn restart(&mut self, locks: &[OwnedFd]) -> io::Result<()> {
        let halt_events = self.halt_events.as_ref().map(OwnedFd::try_clone).transpose()?;
        self.hand_over_to(Self::start(locks, halt_events)?)
    }

    /// Transfers the list to the guardian `new`, whose own list is empty. The old guardian may have ended.
    fn hand_over_to(&mut self, mut new: Self) -> io::Result<()> {
        new.take_over_list(&self.list)?;
        let change_ids: Vec<ChangeId> = self.list.iter().map(|(change_id, _)| change_id).collect();
        std::mem::swap(self, &mut new);
        let mut old = new;
        // A guardian that was killed because it was halted receives no messages.
        if !old.was_halted {
            let _ = old.withdraw(change_ids);
        }
        let _ = old.close_and_wait();
        old.read_frozen_changes();
        self.frozen = old.frozen;
        Ok(())
    }

    /// Returns whether the guardian still watches. A halted guardian does not: it is killed, so that it cannot act when
    /// it continues.
    pub fn is_alive(&mut self) -> bool {
        if !self.was_halted && !self.has_ended() && self.watch.is_halted() {
            self.was_halted = self.child.kill().is_ok();
        }
        !self.was_halted && !self.has_ended()
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Undoes all changes except claims, which last as long as anything is left to undo.
    pub fn undo_all(&mut self) -> io::Result<()> {
        let (undone, outcome) = self.list.undo_matching(|_, undo| !matches!(undo, Undo::Claim { .. }));
        self.withdraw(undone).and(outcome)
    }

    /// Ends the guardian, which first undoes the changes that are still on its list.
    ///
    /// # Errors
    /// If the guardian could not undo all of them.
    pub fn dismiss(mut self) -> io::Result<()> {
        self.close_and_wait()?;
        let failed = matches!(self.child.try_wait(), Ok(Some(status)) if status.code().is_some_and(|code| code != 0));
        let has_rest = self.list.iter().next().is_some();
        if failed && has_rest { Err(io::Error::other(CANNOT_UNDO)) } else { Ok(()) }
    }

    fn close_and_wait(&mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        let ended = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty());
        while !self.has_ended() {
            match &ended {
                Ok(ended) => _ = poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&pipe::WRITE_TIMEOUT)),
                // This process has no free descriptor.
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
            // A halted guardian would never end. This process or its next guardian undoes all changes that the halted
            // one could undo. A guardian that a v1 freezer halts dies when it is thawed, and undoes nothing then.
            if !self.is_alive() && !self.has_ended() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Undoes everything, and ends the guardian.
    pub fn undo_all_and_end(mut self) -> io::Result<()> {
        let outcome = self.undo_all();
        self.dismiss().and(outcome)
    }
}

/// Ignores a timeout or a closed pipe: the replacement guardian receives the whole remaining list.
fn ignore_timeout_or_closed_pipe(result: io::Result<()>) -> io::Result<()> {
    ignore_closed_pipe(
        result.or_else(|error| if error.kind() == io::ErrorKind::TimedOut { Ok(()) } else { Err(error) }),
    )
}

/// Ignores a closed pipe: a guardian that has ended needs no message. If the guardian was ended because it did not
/// read, nothing is undone if the agent dies before the next guardian exists.
fn ignore_closed_pipe(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Hierarchies of version 1 by which service managers and container runtimes end or freeze a whole group.
const ENDED_BY: [&str; 4] = ["devices", "freezer", "pids", "name=systemd"];

/// Moves a process to the root groups, because this process's group may be ended as a whole. That happens when it is
/// out of memory (memory.oom.group), by a service manager or container runtime, or by `cgroup.kill`. Returns whether
/// the process is then in other groups than this one, or no other groups exist.
fn move_to_root_groups(pid: u32) -> bool {
    let ends = |found: &Hierarchy| found.is_v2() || ENDED_BY.iter().any(|name| found.has_controller(name));
    let stands_apart = |found: Hierarchy| {
        let uppermost = BatchGroup { dir: found.mount.clone() };
        found.own_dir().is_none_or(|own| own == uppermost.dir) || uppermost.move_process_in(pid).is_ok()
    };
    // Every hierarchy is tried, even after the move has failed in another one.
    Hierarchy::all().into_iter().filter(ends).map(stands_apart).fold(true, |all, one| all & one)
}

#[cfg(any(test, feature = "stand-in"))]
pub mod stand_in {
    //! Stand-ins for guardians in unit tests, whose program does not have the guardian's verb.
    use super::*;

    /// Returns a guardian that has ended, with a pipe without a reader: the child of another test's thread holds a copy
    /// of the reading end until it executes its program.
    pub fn ended_guardian() -> Guardian {
        let mut guardian = Guardian::start(&[], None).unwrap();
        while guardian.is_alive() {
            std::thread::yield_now();
        }
        let pipe = guardian.child.stdin.as_ref().unwrap();
        let mut without_reader = [PollFd::new(pipe, PollFlags::empty())];
        while poll(&mut without_reader, None) == Err(rustix::io::Errno::INTR) {}
        assert_eq!(without_reader[0].revents(), PollFlags::ERR);
        guardian
    }

    /// Returns a guardian that reads everything and does nothing.
    pub fn reading_guardian() -> Guardian {
        let mut command = Command::new("sh");
        command.args(["-c", "cat >/dev/null"]);
        Guardian::spawn(command, &[], None).unwrap()
    }

    /// Returns a guardian that reads nothing.
    pub fn guardian_that_reads_nothing() -> Guardian {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Guardian::spawn(command, &[], None).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use sidelane_host::freezer::Freezer;

    use super::stand_in::{ended_guardian, guardian_that_reads_nothing, reading_guardian};
    use super::*;

    #[test]
    fn change_the_guardian_did_not_receive_is_not_listed() {
        let mut guardian = ended_guardian();
        assert!(guardian.add([Undo::MayFreeze { dir: "/nowhere".into() }]).is_err());
        assert!(guardian.list().iter().next().is_none());
    }

    fn numbered_undo(number: u64) -> Undo {
        Undo::Claim { file: format!("/nowhere/{number}").into(), inode: None }
    }

    /// Adds changes until the guardian refuses one. Returns the error, and the number of changes that the guardian
    /// received.
    fn add_until_refused(guardian: &mut Guardian) -> (String, usize) {
        let refused = (0..).find_map(|number| Some((guardian.add([numbered_undo(number)]).err()?, number as usize)));
        let (error, told) = refused.unwrap();
        (format!("{error:#}"), told)
    }

    #[test]
    fn unresponsive_guardian_is_ended_and_keeps_only_its_list() {
        let mut guardian = guardian_that_reads_nothing();
        let (why, told) = add_until_refused(&mut guardian);
        let expected = "cannot register an undo with the guardian process, which restores the machine if sidelane \
                        dies; try again: the guardian process read nothing for half a second, as if it were stopped, \
                        and was ended";
        assert_eq!((why.as_str(), guardian.list().iter().count()), (expected, told));
        while guardian.is_alive() {
            std::thread::yield_now();
        }
        guardian.withdraw([ChangeId(0)]).unwrap();
        assert_eq!(guardian.list().iter().count(), told - 1);
        guardian.dismiss().unwrap();
    }

    #[test]
    fn guardian_keeps_its_list_if_the_new_one_reads_nothing() {
        let mut guardian = reading_guardian();
        let more_than_fits: Vec<Undo> = (0..3000).map(numbered_undo).collect();
        guardian.add(more_than_fits).unwrap();
        guardian.hand_over_to(guardian_that_reads_nothing()).unwrap_err();
        assert_eq!((guardian.list().iter().count(), guardian.is_alive()), (3000, true));
        guardian.dismiss().unwrap();
    }

    #[test]
    fn stopped_guardian_does_not_delay_its_dismissal() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -STOP $$; cat >/dev/null"]);
        let guardian = Guardian::spawn(command, &[], None).unwrap();
        while !HaltWatch::new(guardian.child.id()).is_halted() {
            std::thread::yield_now();
        }
        guardian.dismiss().unwrap();
    }

    /// A frozen guardian dies only when it is thawed; its dismissal does not wait for that.
    #[test]
    fn frozen_v1_guardian_does_not_delay_its_dismissal() {
        let v1 = Hierarchy::all().into_iter().find(|found| found.has_controller("freezer"));
        let leaf =
            v1.and_then(|found| BatchGroup::create(&found, &format!("guardian-test-{}", std::process::id())).ok());
        let Some(leaf) = leaf else { return sidelane_testing::skip("needs a v1 freezer".to_owned()) };
        let freezer = Freezer::find_in_group(&leaf.dir).unwrap();
        let mut guardian = reading_guardian();
        let pid = guardian.child.id();
        leaf.move_process_in(pid).unwrap();
        freezer.set_frozen(true).unwrap();
        assert!(!guardian.is_alive());
        guardian.dismiss().unwrap();
        freezer.set_frozen(false).unwrap();
        while sidelane_host::procfs::is_alive(pid) {
            std::thread::yield_now();
        }
        leaf.remove().unwrap();
    }

    #[test]
    fn stopped_guardian_is_killed() {
        let mut guardian = reading_guardian();
        assert!(guardian.is_alive());
        // SAFETY: plain system call, on a child that is not reaped yet.
        unsafe { libc::kill(guardian.child.id() as libc::pid_t, libc::SIGSTOP) };
        while guardian.is_alive() {
            std::thread::yield_now();
        }
        while !guardian.has_ended() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn lines_of_the_guardian_are_read_one_by_one() {
        let mut guardian = reading_guardian();
        guardian.unread = b"3\n5\n1".to_vec();
        assert_eq!(guardian.take_frozen_changes(), [ChangeId(3), ChangeId(5)].into());
        guardian.unread.extend(b"7\n");
        assert_eq!((guardian.take_frozen_changes(), guardian.lines), ([ChangeId(17)].into(), 3));
    }

    #[test]
    fn undo_works_after_the_guardian_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("claim");
        std::fs::write(&file, "").unwrap();
        let mut guardian = ended_guardian();
        let change_id = guardian.list.add(Undo::Claim { file: file.clone(), inode: None });
        guardian.replace(change_id, Undo::Claim { file: file.clone(), inode: None }).unwrap();
        guardian.undo_and_withdraw(&[change_id]).unwrap();
        assert!(!file.exists() && guardian.list().iter().next().is_none());
        guardian.dismiss().unwrap();
    }

    #[test]
    fn fuzzed_lines_are_changes_or_refused() {
        sidelane_testing::fuzz("guardian-lines", |bytes| {
            for line in bytes.split(|byte| *byte == b'\n') {
                if let Ok(told) = serde_json::from_slice::<Message>(line) {
                    let line = serde_json::to_vec(&told).unwrap();
                    assert_eq!(serde_json::from_slice::<Message>(&line).unwrap(), told);
                }
            }
        });
    }
}
