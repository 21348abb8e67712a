//! Processes of a server: whether they exist, and whether they are stopped.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::procfs::{state, with_descendants};
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
    /// Opens the processes that listen, and their children. Returns `None` if all listening processes have ended before
    /// they could be opened.
    pub(super) fn open(listeners: &BTreeSet<u32>) -> Option<Self> {
        let end = |pid: &u32| pidfd_open(Pid::from_raw(i32::try_from(*pid).ok()?)?, PidfdFlags::empty()).ok();
        let ends: Vec<OwnedFd> = listeners.iter().filter_map(end).collect();
        let pids = with_descendants(listeners);
        let freezers = freezer_files(&pids);
        let members = pids.into_iter().filter_map(Thread::with_tid).collect();
        (!ends.is_empty()).then_some(Self { members, ends, freezers })
    }

    pub(super) fn pids(&self) -> BTreeSet<u32> {
        self.members.iter().map(|process| process.tid).collect()
    }

    /// Waits until a process that listens ends, or the time is over.
    pub(super) fn wait_for_end(&self, time: Duration) {
        self.ended_listeners(time);
    }

    /// Removes the listening processes that have ended. Returns whether any process was removed.
    pub(super) fn remove_ended_listeners(&mut self) -> bool {
        let ended = self.ended_listeners(Duration::ZERO);
        let mut ends = ended.iter();
        self.ends.retain(|_| !ends.next().is_some_and(|has_ended| *has_ended));
        ended.contains(&true)
    }

    /// Returns whether all processes that listened have ended.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns for each listening process whether it has ended. Returns an empty list if none ends within `timeout`.
    fn ended_listeners(&self, timeout: Duration) -> Vec<bool> {
        let mut ends: Vec<PollFd<'_>> = self.ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
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
            is_so && Thread::with_tid(process.tid).as_ref() == Some(process)
        };
        self.members.iter().any(is_stopped) || self.freezers.iter().any(|file| is_frozen(file))
    }
}

/// Returns the files that tell whether the cgroups of the processes are frozen: cgroup.events in v2, freezer.state in
/// v1. The state of a v1 group includes the groups above it.
fn freezer_files(pids: &BTreeSet<u32>) -> Vec<std::path::PathBuf> {
    let hierarchies =
        Hierarchy::all().into_iter().filter(|hierarchy| hierarchy.is_v2() || hierarchy.has_controller("freezer"));
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

    fn spawn_sleeping_child() -> Child {
        Command::new("sleep").arg("100").spawn().unwrap()
    }

    fn kill_child(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn process_with_a_reused_pid_is_not_the_server() {
        let server = spawn_sleeping_child();
        let mut processes = Processes::open(&BTreeSet::from([server.id()])).unwrap();
        let pid = Pid::from_child(&server);
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let status = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(status.is_some_and(|(_, status)| status.stopped()) && processes.are_stopped());
        processes.members.iter_mut().for_each(|process| process.started -= 1);
        assert!(!processes.are_stopped());
        kill_child(server);
    }

    #[test]
    fn server_is_up_while_one_listening_process_lives() {
        let (one, two, gone) = (spawn_sleeping_child(), spawn_sleeping_child(), spawn_sleeping_child());
        let listeners = BTreeSet::from([one.id(), two.id(), gone.id()]);
        // This process ends after it was listed, and before it is opened.
        kill_child(gone);
        let mut processes = Processes::open(&listeners).expect("two are there");
        assert!(!processes.remove_ended_listeners() && !processes.have_all_ended() && !processes.are_stopped());
        kill_child(one);
        assert!(processes.remove_ended_listeners() && !processes.have_all_ended());
        assert!(!processes.remove_ended_listeners());
        kill_child(two);
        assert!(processes.remove_ended_listeners() && processes.have_all_ended());
        assert!(Processes::open(&listeners).is_none());
    }
}
