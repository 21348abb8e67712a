//! Processes of a server: whether they exist, and whether they are stopped.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::procfs::{family, state};
use sidelane_host::thread::Thread;

/// Processes that listen for a server, and their children.
pub(super) struct Processes {
    members: Vec<Thread>,
    /// Pidfds of the processes that listen. Children are left out, because they may end after each request.
    ends: Vec<OwnedFd>,
    /// Files that tell whether the cgroups of the processes are frozen.
    freezers: Vec<std::path::PathBuf>,
}

impl Processes {
    /// Opens the processes that listen, and their children. Returns `None` if all that listen have ended in between.
    pub(super) fn of(listeners: &BTreeSet<u32>) -> Option<Self> {
        let end = |pid: &u32| pidfd_open(Pid::from_raw(i32::try_from(*pid).ok()?)?, PidfdFlags::empty()).ok();
        let ends: Vec<OwnedFd> = listeners.iter().filter_map(end).collect();
        let pids = family(listeners);
        let freezers = freezers(&pids);
        let members = pids.into_iter().filter_map(Thread::of).collect();
        (!ends.is_empty()).then_some(Self { members, ends, freezers })
    }

    pub(super) fn pids(&self) -> BTreeSet<u32> {
        self.members.iter().map(|process| process.tid).collect()
    }

    /// Waits until a process that listens ends, or the time is over.
    pub(super) fn wait(&self, time: Duration) {
        self.ended(time);
    }

    /// Removes the listening processes that have ended. Returns whether there were any.
    pub(super) fn forget_ended(&mut self) -> bool {
        let ended = self.ended(Duration::ZERO);
        let mut ends = ended.iter();
        self.ends.retain(|_| !ends.next().is_some_and(|has_ended| *has_ended));
        ended.contains(&true)
    }

    /// Returns whether all processes that listened have ended.
    pub(super) fn are_over(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns for each listening process whether it has ended. Returns an empty list if none ends within `time`.
    fn ended(&self, time: Duration) -> Vec<bool> {
        let mut ends: Vec<PollFd<'_>> = self.ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut ends, Some(&time)) {
            Ok(1..) => ends.iter().map(|end| !end.revents().is_empty()).collect(),
            Ok(0) | Err(_) => Vec::new(),
        }
    }

    /// Returns whether any of the processes is stopped or frozen.
    pub(super) fn are_stopped(&self) -> bool {
        let is_stopped = |process: &Thread| {
            let is_so = matches!(state(&format!("/proc/{}/stat", process.tid)), Some('T' | 't'));
            // Check the start time too, because another process may have the id of one that has ended.
            is_so && Thread::of(process.tid).as_ref() == Some(process)
        };
        self.members.iter().any(is_stopped) || self.freezers.iter().any(|file| is_frozen(file))
    }
}

/// Returns the files that tell whether the cgroups of the processes are frozen: cgroup.events in v2, freezer.state in
/// v1. The state of a v1 group includes the groups above it.
fn freezers(pids: &BTreeSet<u32>) -> Vec<std::path::PathBuf> {
    let hierarchies =
        Hierarchy::all().into_iter().filter(|hierarchy| hierarchy.is_v2() || hierarchy.controls("freezer"));
    let mut files = BTreeSet::new();
    for hierarchy in hierarchies {
        let file = if hierarchy.is_v2() { "cgroup.events" } else { "freezer.state" };
        let dirs = pids.iter().filter_map(|pid| hierarchy.dir_of(*pid));
        files.extend(dirs.map(|dir| dir.join(file)).filter(|file| file.exists()));
    }
    files.into_iter().collect()
}

fn is_frozen(file: &std::path::Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().any(|line| line == "frozen 1" || line == "FROZEN")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Signal, WaitOptions};

    use super::*;

    fn child() -> Child {
        Command::new("sleep").arg("100").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn process_with_a_reused_pid_is_not_the_server() {
        let server = child();
        let mut processes = Processes::of(&BTreeSet::from([server.id()])).unwrap();
        let pid = Pid::from_child(&server);
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let status = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(status.is_some_and(|(_, status)| status.stopped()) && processes.are_stopped());
        processes.members.iter_mut().for_each(|process| process.started -= 1);
        assert!(!processes.are_stopped());
        end(server);
    }

    #[test]
    fn a_server_is_there_as_long_as_one_of_its_processes_listens() {
        let (one, two, gone) = (child(), child(), child());
        let listeners = BTreeSet::from([one.id(), two.id(), gone.id()]);
        // This process ends after it was listed, and before it is opened.
        end(gone);
        let mut processes = Processes::of(&listeners).expect("two are there");
        assert!(!processes.forget_ended() && !processes.are_over() && !processes.are_stopped());
        end(one);
        assert!(processes.forget_ended() && !processes.are_over());
        assert!(!processes.forget_ended());
        end(two);
        assert!(processes.forget_ended() && processes.are_over());
        assert!(Processes::of(&listeners).is_none());
    }
}
