//! The guardian: a second process that puts the machine right if the first one dies.
//!
//! Kernel programs, links and holder threads vanish with the process that owns them; processes,
//! groups and affinities do not. So the agent tells its guardian how to undo each change *before*
//! it makes it, over a pipe, and withdraws what it has undone itself. The guardian does nothing else
//! but wait: when the pipe closes, it undoes what is still on its list, last change first. Of an agent that
//! ended well, that is nothing. While the agent is stopped (SIGSTOP) nobody holds lanes, so the guardian freezes every
//! group on the list that can be frozen, and says so. It thaws none: what was sent away from its lane has to stay
//! frozen, and only the agent knows that. So the agent alone thaws, when it runs again and hears of it.
//!
//! It runs in a session of its own, so that neither Ctrl-C nor a kill of the agent's process
//! group reaches it.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use serde::{Deserialize, Serialize};

use super::change::Undo;
use super::list::{Ticket, UndoList};
use sidelane_host::cgroup::{Hierarchy, Leaf};
use sidelane_host::procfs;

/// The hidden verb under which the binary is its own guardian.
pub const VERB: &str = "__guardian";
/// How soon a stopped agent is noticed.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What the guardian is told, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Told {
    Add(Ticket, Undo),
    Withdraw(Ticket),
}

/// The agent's end.
pub struct Guardian {
    child: Child,
    list: UndoList,
    /// Freezers of others that were given back.
    given_back: Vec<Undo>,
    is_apart: bool,
}

impl Guardian {
    /// Starts the guardian. `keep` are open files (locks) that it holds as long as it lives.
    pub fn start(keep: &[OwnedFd]) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sidelane-guardian").arg(VERB).arg(std::process::id().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
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
        let child = command.spawn()?;
        let is_apart = stands_apart(child.id());
        let mut guardian = Self { child, list: UndoList::default(), given_back: Vec::new(), is_apart };
        fcntl_setfl(guardian.says(), OFlags::NONBLOCK)?;
        Ok(guardian)
    }

    /// Whether it outlives this process's group, if all that is in that is ended at once.
    pub fn is_apart(&self) -> bool {
        self.is_apart
    }

    fn says(&mut self) -> &ChildStdout {
        self.child.stdout.as_ref().expect("the pipe is open until the end")
    }

    /// Whether it has frozen groups since this was asked last, because this process was stopped. What may run is to be
    /// thawed.
    pub fn has_frozen(&mut self) -> bool {
        rustix::io::read(self.says(), &mut [0; 64]).is_ok_and(|bytes| bytes > 0)
    }

    /// Tells of changes; call it before they are made.
    pub fn add(&mut self, changes: impl IntoIterator<Item = Undo>) -> Result<Vec<Ticket>> {
        let added: Vec<(Ticket, Undo)> = changes.into_iter().map(|undo| (self.list.add(undo.clone()), undo)).collect();
        let tickets = added.iter().map(|(ticket, _)| *ticket).collect();
        let told = self.tell(added.into_iter().map(|(ticket, undo)| Told::Add(ticket, undo)));
        told.context("cannot tell the guardian what to undo")?;
        Ok(tickets)
    }

    /// Tells that it takes something else to undo a change. It stays where it is in the order of changes.
    pub fn replace(&mut self, ticket: Ticket, undo: Undo) -> io::Result<()> {
        self.list.insert(ticket, undo.clone());
        unless_ended(self.tell([Told::Add(ticket, undo)]))
    }

    /// Tells that changes were undone.
    pub fn withdraw(&mut self, tickets: impl IntoIterator<Item = Ticket>) -> io::Result<()> {
        let tickets: Vec<Ticket> = tickets.into_iter().collect();
        tickets.iter().for_each(|ticket| self.list.withdraw(*ticket));
        unless_ended(self.tell(tickets.into_iter().map(Told::Withdraw)))
    }

    /// Undoes these changes, last to first, and withdraws them.
    pub fn undo_these(&mut self, wanted: &[Ticket]) -> io::Result<()> {
        let (undone, outcome) = self.list.carry_out(|ticket, _| wanted.contains(&ticket));
        self.withdraw(undone).and(outcome)
    }

    /// What there is to undo now.
    pub fn list(&self) -> &UndoList {
        &self.list
    }

    /// Tells all that another guardian was told, who is there no more.
    pub fn succeed(&mut self, list: UndoList) -> io::Result<()> {
        let all = list.iter().map(|(ticket, undo)| Told::Add(ticket, undo.clone()));
        self.tell(all.collect::<Vec<_>>())?;
        self.list = list;
        Ok(())
    }

    fn tell(&mut self, all: impl IntoIterator<Item = Told>) -> io::Result<()> {
        let mut lines = Vec::new();
        for told in all {
            serde_json::to_writer(&mut lines, &told)?;
            lines.push(b'\n');
        }
        let pipe = self.child.stdin.as_mut().expect("the pipe is open until the end");
        pipe.write_all(&lines)
    }

    /// Another guardian, who was told nothing yet, takes over all that is to be undone, also from one that has ended.
    pub fn hand_over_to(&mut self, mut new: Self) -> io::Result<()> {
        let list = std::mem::take(&mut self.list);
        let tickets: Vec<Ticket> = list.iter().map(|(ticket, _)| ticket).collect();
        new.succeed(list)?;
        std::mem::swap(self, &mut new);
        // One that has ended hears nothing.
        let _ = new.withdraw(tickets);
        let _ = new.dismiss();
        Ok(())
    }

    /// Whether it still watches.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Undoes everything here but claims, which stand as long as anything is left to do.
    pub fn undo_all(&mut self) -> io::Result<()> {
        let is_freezer = |undo: &&Undo| matches!(undo, Undo::Freezer { .. });
        self.given_back = self.list.iter().map(|(_, undo)| undo).filter(is_freezer).cloned().collect();
        let (undone, outcome) = self.list.carry_out(|_, undo| !matches!(undo, Undo::Claim { .. }));
        self.withdraw(undone).and(outcome)
    }

    /// Sends the guardian home. What is still on the list, and still there, it undoes.
    pub fn dismiss(mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        // It may have found this process stopped just before a group was given back, and frozen that just after.
        let given_back = if self.has_frozen() { std::mem::take(&mut self.given_back) } else { Vec::new() };
        given_back.iter().try_for_each(|undo| undo.carry_out(&BTreeSet::new()))
    }

    /// Undoes everything and sends the guardian home.
    pub fn finish(mut self) -> io::Result<()> {
        let outcome = self.undo_all();
        self.dismiss().and(outcome)
    }
}

/// A guardian that has ended needs not be told what there is to undo no more, or otherwise: the next one is told all
/// that is left.
fn unless_ended(told: io::Result<()>) -> io::Result<()> {
    told.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Puts a process into the uppermost group: this process's group may be ended as a whole, when it is out of memory
/// (memory.oom.group), by a service manager, or by `cgroup.kill`. Whether the process is in another group than this one
/// then, or there is no other.
fn stands_apart(pid: u32) -> bool {
    let Some(unified) = Hierarchy::all().into_iter().find(Hierarchy::is_v2) else { return true };
    let uppermost = Leaf { dir: unified.mount.clone() };
    unified.own_dir().is_none_or(|own| own == uppermost.dir) || uppermost.admit(pid).is_ok()
}

/// The guardian's own program: keeps the list that it is told over standard input until that closes. Whatever it is
/// told or not: what it knows then it undoes.
pub fn main(agent_pid: u32) -> io::Result<()> {
    let mut list = UndoList::default();
    let heard = listen(agent_pid, &mut list);
    list.carry_out(|_, _| true).1.and(heard)
}

/// Keeps the list, and looks whether the agent is stopped.
fn listen(agent_pid: u32, list: &mut UndoList) -> io::Result<()> {
    let stdin = io::stdin();
    let mut lines = BufReader::new(stdin.lock());
    let mut heard = Ok(());
    loop {
        if !lines.buffer().contains(&b'\n') && !input_within(&LOOK_EVERY)? {
            // Told after the last write to a freezer, so that no group stays frozen that the agent does not hear of.
            if is_stopped(agent_pid) && freeze_all(list) {
                let _ = rustix::io::write(io::stdout(), b".");
            }
            continue;
        }
        let mut line = Vec::new();
        // A change is made only after its whole line was written.
        if lines.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
            return heard;
        }
        match serde_json::from_slice(&line) {
            Ok(Told::Add(ticket, undo)) => list.insert(ticket, undo),
            Ok(Told::Withdraw(ticket)) => list.withdraw(ticket),
            Err(error) => heard = heard.and(Err(error.into())),
        }
    }
}

/// Freezes every group of the list that can be frozen and is not. Whether there was one. A thread of the agent may have
/// thawed one on its way to a stop, so this is done at each look.
fn freeze_all(list: &UndoList) -> bool {
    let freezers = list.iter().filter_map(|(_, undo)| undo.freezer());
    let running = freezers.filter(|freezer| freezer.is_frozen().is_ok_and(|frozen| !frozen));
    running.map(|freezer| freezer.set(true)).filter(Result::is_ok).count() > 0
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The program of this test knows no guardian's verb, and ends.
    fn one_that_has_ended() -> Guardian {
        let mut guardian = Guardian::start(&[]).unwrap();
        while guardian.is_alive() {
            std::thread::yield_now();
        }
        guardian
    }

    #[test]
    fn what_is_undone_is_undone_though_the_guardian_has_just_ended() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("claim");
        std::fs::write(&file, "").unwrap();
        let mut guardian = one_that_has_ended();
        let ticket = guardian.list.add(Undo::Claim { file: file.clone(), inode: None });
        guardian.replace(ticket, Undo::Claim { file: file.clone(), inode: None }).unwrap();
        guardian.undo_these(&[ticket]).unwrap();
        assert!(!file.exists() && guardian.list().iter().next().is_none());
        guardian.dismiss().unwrap();
    }

    #[test]
    fn fuzzed_lines_are_changes_or_refused() {
        sidelane_fuzz::fuzz("guardian-lines", |bytes| {
            for line in bytes.split(|byte| *byte == b'\n') {
                if let Ok(told) = serde_json::from_slice::<Told>(line) {
                    let line = serde_json::to_vec(&told).unwrap();
                    assert_eq!(serde_json::from_slice::<Told>(&line).unwrap(), told);
                }
            }
        });
    }
}
