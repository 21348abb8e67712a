//! Whether a server's processes are there, and run.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::procfs::state;
use sidelane_host::service::Target;

/// The processes that listen at a port, and their children.
pub(super) struct Processes {
    pids: BTreeSet<u32>,
    ends: Vec<OwnedFd>,
    /// Files that say whether their groups are frozen.
    freezers: Vec<std::path::PathBuf>,
}

impl Processes {
    pub(super) fn find(port: u16) -> Option<Self> {
        let pids = Target::Port(port).find().ok()?.pids;
        let end = |pid: &u32| pidfd_open(Pid::from_raw(i32::try_from(*pid).ok()?)?, PidfdFlags::empty()).ok();
        let ends: Vec<OwnedFd> = pids.iter().filter_map(end).collect();
        if ends.len() < pids.len() {
            // One of them has just ended: whoever is left is looked for anew.
            return None;
        }
        let freezers = freezers(&pids);
        Some(Self { pids, ends, freezers })
    }

    pub(super) fn pids(&self) -> &BTreeSet<u32> {
        &self.pids
    }

    /// Waits, until one of them ends.
    pub(super) fn wait(&self, time: Duration) {
        self.poll(time);
    }

    /// Whether one of them has ended.
    pub(super) fn have_ended(&self) -> bool {
        self.poll(Duration::ZERO)
    }

    fn poll(&self, time: Duration) -> bool {
        let mut ends: Vec<PollFd<'_>> = self.ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        poll(&mut ends, Some(&time)).is_ok_and(|ended| ended > 0)
    }

    /// Whether one of them is stopped or frozen.
    pub(super) fn are_stopped(&self) -> bool {
        let is_stopped = |pid: &u32| matches!(state(&format!("/proc/{pid}/stat")), Some('T' | 't'));
        self.pids.iter().any(is_stopped) || self.freezers.iter().any(|file| is_frozen(file))
    }
}

/// Of both versions: `frozen 1` in cgroup.events, or the state of a v1 group and those above it.
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
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_is_found_and_nobody_at_a_port_where_nobody_does() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let processes = Processes::find(port).unwrap();
        assert!(processes.pids().contains(&std::process::id()));
        assert!(!processes.are_stopped());
        drop(listener);
        assert!(Processes::find(port).is_none());
    }
}
