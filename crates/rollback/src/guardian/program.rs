//! Program of the guardian process.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setpriority_process};
use sidelane_host::halt::HaltWatch;
use sidelane_tracker::summons::SummonsRing;

use super::Message;
use crate::Undo;
use crate::change::set_freezer;
use crate::list::{ChangeId, UndoList, raise_open_files_limit};

/// Time between two checks whether the agent lives or is halted, when there is no ring of halt events.
const LOOK_EVERY: Timespec = milliseconds(50);
/// Time between two checks of the agent when there is a ring of halt events. A check finds only a halt whose event was
/// lost.
const LOOK_EVERY_WITH_EVENTS: Timespec = milliseconds(500);
/// Time between two checks while the agent is halted: one of its threads may have thawed a group just before its stop.
const LOOK_EVERY_HALTED: Timespec = milliseconds(10);
/// Number of checks in a halt that give bound threads their CPUs back. The second check finds a thread that the agent
/// bound while it was being stopped.
const GIVES_A_HALT: u32 = 2;

/// Nice value of the guardian: the highest share of a CPU.
const NICE: i32 = -20;

/// Longest wait for the end of all threads of a killed agent. A thread in an uninterruptible system call may end later.
const AGENT_GONE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for which undos that failed are repeated, and the time between two attempts. The agent waits for the
/// guardian's end, if it lives.
const RETRY_FOR: Duration = Duration::from_secs(5);
const RETRY_EVERY: Duration = Duration::from_millis(50);

const fn milliseconds(count: i64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: count * 1_000_000 }
}

/// Runs the guardian: it keeps the list that it receives on standard input until that closes. Then it undoes what is
/// on the list, also after malformed input. `halt_fd` is an inherited ring that reports halts of the agent.
pub fn main(agent_pid: u32, halt_fd: Option<RawFd>) -> io::Result<()> {
    let mut known = GuardianState::default();
    // The guardian runs rarely and briefly, and batch that it has to freeze may compete with it. Without the
    // privilege it runs at ordinary priority.
    let _ = setpriority_process(None, NICE);
    // SAFETY: the agent left this descriptor open for this process, which uses it nowhere else. A descriptor that is
    // no ring cannot be mapped; then the agent is checked without halt events.
    let halt_events = halt_fd.and_then(|fd| SummonsRing::new(unsafe { OwnedFd::from_raw_fd(fd) }).ok());
    // The descriptor refers to the agent also after its end, which no reading of /proc has to find.
    let agent_end = Pid::from_raw(agent_pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let heard = known.run_until_closed(&mut Agent { watch: HaltWatch::new(agent_pid), halt_events });
    if let Some(agent_end) = agent_end.filter(|_| known.list.iter().any(|(_, undo)| undo.gives_realtime_class())) {
        wait_until_agent_is_gone(&agent_end);
    }
    known.undo_all_repeatedly(RETRY_FOR).and(heard)
}

/// Waits until all threads of the agent have ended. A holder's thread of a killed agent needs its lane to end. Batch
/// that got a higher real-time class back would never let it run, and the kernel would wait for it in each process that
/// reads its folder in `/proc`.
fn wait_until_agent_is_gone(agent_end: &OwnedFd) {
    let deadline = Instant::now() + AGENT_GONE_TIMEOUT;
    let wait = || {
        let rest = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).expect("a few seconds fit");
        poll(&mut [PollFd::new(agent_end, PollFlags::IN)], Some(&rest))
    };
    while wait() == Err(rustix::io::Errno::INTR) {}
}

/// The agent, as the guardian observes it.
struct Agent {
    watch: HaltWatch,
    halt_events: Option<SummonsRing>,
}

/// Events that ended a wait.
struct Woken {
    by_input: bool,
    by_halt_event: bool,
}

impl Agent {
    /// Waits for input, for a halt event, or until the next check is due.
    fn wait(&self, timeout: Option<&Timespec>) -> io::Result<Woken> {
        let stdin = io::stdin();
        let halt_events =
            self.halt_events.as_ref().map(|halt_events| PollFd::from_borrowed_fd(halt_events.fd(), PollFlags::IN));
        let mut poll_fds: Vec<PollFd<'_>> =
            [PollFd::new(&stdin, PollFlags::IN)].into_iter().chain(halt_events).collect();
        match poll(&mut poll_fds, timeout) {
            Ok(_) => {}
            // More descriptors than the limit of open files, which another process has lowered.
            Err(rustix::io::Errno::INVAL) => {
                raise_open_files_limit()?;
                return Ok(Woken { by_input: false, by_halt_event: false });
            }
            Err(rustix::io::Errno::INTR) => return Ok(Woken { by_input: false, by_halt_event: false }),
            Err(error) => return Err(error.into()),
        }
        let by_input = !poll_fds[0].revents().is_empty();
        Ok(Woken { by_input, by_halt_event: self.halt_events.as_ref().is_some_and(SummonsRing::take) })
    }
}

/// State of the guardian.
#[derive(Default)]
struct GuardianState {
    list: UndoList,
    /// Groups that the guardian has frozen and the agent has not taken over, each with the number of the line that
    /// reported it.
    frozen: BTreeMap<PathBuf, u64>,
    /// Number of lines written to the agent.
    lines: u64,
    /// Number of checks since the agent was halted; 0 while it runs.
    looks_halted: u32,
}

impl GuardianState {
    /// Keeps the list, and acts for the agent while the agent is halted.
    fn run_until_closed(&mut self, agent: &mut Agent) -> io::Result<()> {
        let stdin = io::stdin();
        let mut lines = BufReader::new(stdin.lock());
        let mut heard = Ok(());
        loop {
            if !lines.buffer().contains(&b'\n') {
                let woken = agent.wait(self.time_until_check(agent).as_ref())?;
                if woken.by_halt_event || !woken.by_input {
                    self.check_agent(&mut agent.watch);
                }
                if !woken.by_input {
                    continue;
                }
            }
            let mut line = Vec::new();
            // An incomplete line is ignored: a change is made only after its whole line was written.
            if lines.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
                return heard;
            }
            heard = heard.and(self.receive_message(&line));
        }
    }

    /// Returns the time until the next check of the agent; `None` if a halt needs no action.
    fn time_until_check(&self, agent: &Agent) -> Option<Timespec> {
        let acts = |(_, undo): (_, &Undo)| undo.freezer().is_some() || undo.binds_threads_to_single_cpus();
        if self.looks_halted > 0 || agent.watch.needs_another_check() {
            return Some(LOOK_EVERY_HALTED);
        }
        let every = if agent.halt_events.is_some() { LOOK_EVERY_WITH_EVENTS } else { LOOK_EVERY };
        self.list.iter().any(acts).then_some(every)
    }

    fn receive_message(&mut self, line: &[u8]) -> io::Result<()> {
        match serde_json::from_slice(line)? {
            Message::Add(change_id, undo) => self.list.insert(change_id, undo),
            Message::Withdraw(change_id) => self.list.withdraw(change_id),
            Message::Heard(up_to) => self.frozen.retain(|_, line| *line > up_to),
        }
        Ok(())
    }

    fn check_agent(&mut self, agent: &mut HaltWatch) {
        if !agent.is_halted() {
            self.looks_halted = 0;
            return;
        }
        self.looks_halted = self.looks_halted.saturating_add(1);
        self.freeze_listed_groups();
        if self.looks_halted <= GIVES_A_HALT {
            self.restore_bound_threads();
        }
    }

    /// Freezes every group of the list that can be frozen and is not frozen yet. A thread of the agent may thaw a group
    /// just before its stop, so each check freezes again.
    fn freeze_listed_groups(&mut self) {
        let freezers = self.list.iter().filter_map(|(change_id, undo)| Some((change_id, undo.freezer()?)));
        let running = freezers.filter(|(_, freezer)| freezer.is_frozen().is_ok_and(|frozen| !frozen));
        for (change_id, freezer) in running.collect::<Vec<_>>() {
            // The group is reported before the freeze, in case this process is killed during it. The group is reported
            // again after the freeze, because the agent may have continued and thawed it before.
            self.report_change(change_id);
            if freezer.set_frozen(true).is_ok() {
                self.report_change(change_id);
                self.frozen.insert(freezer.into_dir(), self.lines);
            }
        }
    }

    /// Gives original CPUs back to threads that the agent has bound to one CPU each, and to threads that these threads
    /// created. The changes stay on the list: the agent binds the threads again when it continues.
    fn restore_bound_threads(&mut self) {
        let Some(change_id) =
            self.list.iter().find(|(_, undo)| undo.binds_threads_to_single_cpus()).map(|(change_id, _)| change_id)
        else {
            return;
        };
        self.report_change(change_id);
        let gives = |_, undo: &Undo| matches!(undo, Undo::Affinity { .. } | Undo::Newcomers(_));
        // A thread whose CPUs cannot be changed has ended, or keeps the CPU that it has.
        let _ = self.list.undo_matching(gives);
        self.report_change(change_id);
    }

    fn report_change(&mut self, change_id: ChangeId) {
        self.lines += 1;
        let _ = rustix::io::write(io::stdout(), format!("{}\n", change_id.0).as_bytes());
    }

    /// Undoes all that is left on the list. Repeats what failed for `time`: a process may lack a descriptor or memory
    /// only for a moment.
    fn undo_all_repeatedly(&mut self, time: Duration) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let outcome = self.undo_all();
            if outcome.is_ok() || began.elapsed() >= time {
                return outcome;
            }
            std::thread::sleep(RETRY_EVERY);
        }
    }

    /// Undoes all that is left on the list, and thaws groups that the guardian has frozen and the agent has not taken
    /// over. A change that cannot be undone stays on the list.
    fn undo_all(&mut self) -> io::Result<()> {
        let (change_ids, undone) = self.list.undo_matching(|_, _| true);
        change_ids.into_iter().for_each(|change_id| self.list.withdraw(change_id));
        let thaw = |dir: &PathBuf| set_freezer(dir, false);
        self.frozen.keys().map(thaw).fold(undone, |all, thawed| all.and(thawed))
    }
}

#[cfg(test)]
mod tests {
    use sidelane_host::freezer::Freezer;

    use super::*;

    #[test]
    fn guardian_waits_for_the_end_of_a_dying_agent() {
        let mut agent = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let agent_end = pidfd_open(Pid::from_child(&agent), PidfdFlags::empty()).unwrap();
        let waiting = std::thread::spawn(move || wait_until_agent_is_gone(&agent_end));
        assert!(!waiting.is_finished(), "the agent lives");
        agent.kill().unwrap();
        waiting.join().unwrap();
        assert!(!sidelane_host::procfs::is_alive(agent.id()));
        agent.wait().unwrap();
    }

    #[test]
    fn change_that_cannot_be_undone_stays_on_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let mut known = GuardianState::default();
        // A folder that is not empty cannot be removed.
        std::fs::write(dir.path().join("file"), "").unwrap();
        known.list.add(Undo::Group { dir: dir.path().to_owned(), fate: crate::groups::Fate::MovedTo("/".into()) });
        assert!(known.undo_all().is_err() && known.list.iter().count() == 1);
        std::fs::remove_file(dir.path().join("file")).unwrap();
        known.undo_all_repeatedly(RETRY_FOR).unwrap();
        assert!(!dir.path().exists() && known.list.iter().next().is_none());
    }

    #[test]
    fn groups_frozen_by_the_guardian_are_thawed_at_its_end() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = |number: usize| dirs[number].path().to_owned();
        let is_frozen = |number: usize| Freezer::find_in_group(&path(number)).unwrap().is_frozen().unwrap();
        for dir in &dirs {
            std::fs::write(dir.path().join("cgroup.freeze"), "0").unwrap();
        }
        let owners = tempfile::tempdir().unwrap();
        std::fs::write(owners.path().join("cgroup.freeze"), "1").unwrap();
        let mut known = GuardianState::default();
        for dir in [path(0), path(1), owners.path().to_owned()] {
            known.list.add(Undo::MayFreeze { dir });
        }
        known.freeze_listed_groups();
        assert!(is_frozen(0) && is_frozen(1));
        // Each of the two groups was reported by two lines, before and after its freeze; the agent has read the first
        // two lines.
        known.receive_message(b"{\"Heard\":2}").unwrap();
        known.undo_all().unwrap();
        assert_eq!([is_frozen(0), is_frozen(1)], [true, false], "the agent looks after the first one");
        assert!(Freezer::find_in_group(owners.path()).unwrap().is_frozen().unwrap(), "its owner has frozen it");
    }
}
