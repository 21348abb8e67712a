//! The guardian's own program.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::procfs;

use super::Told;
use crate::undo::change::set_freezer;
use crate::undo::list::{Ticket, UndoList};

/// How soon a stopped agent is noticed.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Keeps the list that it is told over standard input until that closes. Whatever it is
/// told or not: what it knows then it undoes.
pub fn main(agent_pid: u32) -> io::Result<()> {
    let mut known = Known::default();
    let heard = known.listen(agent_pid);
    known.undo_all().and(heard)
}

/// What the guardian knows.
#[derive(Default)]
struct Known {
    list: UndoList,
    /// Groups that it has frozen and the agent has not taken over, each with the line that said so.
    frozen: BTreeMap<PathBuf, u64>,
    /// Lines that it has said.
    lines: u64,
}

impl Known {
    /// Keeps the list, and looks whether the agent is stopped.
    fn listen(&mut self, agent_pid: u32) -> io::Result<()> {
        let stdin = io::stdin();
        let mut lines = BufReader::new(stdin.lock());
        let mut heard = Ok(());
        loop {
            if !lines.buffer().contains(&b'\n') && !input_within(&LOOK_EVERY)? {
                if is_stopped(agent_pid) {
                    self.freeze_all();
                }
                continue;
            }
            let mut line = Vec::new();
            // A change is made only after its whole line was written.
            if lines.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
                return heard;
            }
            heard = heard.and(self.hear(&line));
        }
    }

    fn hear(&mut self, line: &[u8]) -> io::Result<()> {
        match serde_json::from_slice(line)? {
            Told::Add(ticket, undo) => self.list.insert(ticket, undo),
            Told::Withdraw(ticket) => self.list.withdraw(ticket),
            Told::Heard(up_to) => self.frozen.retain(|_, line| *line > up_to),
        }
        Ok(())
    }

    /// Freezes every group of the list that can be frozen and is not. A thread of the agent may have thawed one on its
    /// way to a stop, so this is done at each look.
    fn freeze_all(&mut self) {
        let freezers = self.list.iter().filter_map(|(ticket, undo)| Some((ticket, undo.freezer()?)));
        let running = freezers.filter(|(_, freezer)| freezer.is_frozen().is_ok_and(|frozen| !frozen));
        for (ticket, freezer) in running.collect::<Vec<_>>() {
            // Said before, too, in case that this process is killed in between; and after, since the agent may have gone
            // on and thawed it before.
            self.say(ticket);
            if freezer.set(true).is_ok() {
                self.say(ticket);
                self.frozen.insert(freezer.into_dir(), self.lines);
            }
        }
    }

    fn say(&mut self, ticket: Ticket) {
        self.lines += 1;
        let _ = rustix::io::write(io::stdout(), format!("{}\n", ticket.0).as_bytes());
    }

    /// Undoes all that is left on the list, and thaws what it has frozen and nobody looks after.
    fn undo_all(&self) -> io::Result<()> {
        let undone = self.list.carry_out(|_, _| true).1;
        let thaw = |dir: &PathBuf| set_freezer(dir, false);
        self.frozen.keys().map(thaw).fold(undone, |all, thawed| all.and(thawed))
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

pub(super) fn is_stopped(pid: u32) -> bool {
    matches!(procfs::state(&format!("/proc/{pid}/stat")), Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use sidelane_host::freezer::Freezer;

    use super::*;
    use crate::undo::Undo;

    #[test]
    fn what_the_guardian_froze_is_thawed_at_its_end_unless_the_agent_looks_after_it() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = |number: usize| dirs[number].path().to_owned();
        let is_frozen = |number: usize| Freezer::of(&path(number)).unwrap().is_frozen().unwrap();
        for dir in &dirs {
            std::fs::write(dir.path().join("cgroup.freeze"), "0").unwrap();
        }
        let owners = tempfile::tempdir().unwrap();
        std::fs::write(owners.path().join("cgroup.freeze"), "1").unwrap();
        let mut known = Known::default();
        for dir in [path(0), path(1), owners.path().to_owned()] {
            known.list.add(Undo::MayFreeze { dir });
        }
        known.freeze_all();
        assert!(is_frozen(0) && is_frozen(1));
        // Two lines a group.
        known.hear(b"{\"Heard\":2}").unwrap();
        known.undo_all().unwrap();
        assert_eq!([is_frozen(0), is_frozen(1)], [true, false], "the agent looks after the first one");
        assert!(Freezer::of(owners.path()).unwrap().is_frozen().unwrap(), "its owner has frozen it");
    }
}
