//! Control groups that Sidelane has created: how they are emptied and removed.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidelane_host::cgroup::{BatchGroup, Hierarchy, groups_below, processes_in_tree};
use sidelane_host::freezer::Freezer;
use sidelane_host::thread::Thread;

/// Most rounds in which a group is emptied. A process forks more slowly than it is killed or moved, so this limit has
/// never been reached.
const ROUNDS_MAX: usize = 1000;

/// Fate of the processes in a group that Sidelane has created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// The processes are killed, because they were started to be in the group.
    Ended,
    /// The processes are moved into this group, and continue there.
    MovedTo(PathBuf),
}

/// Returns the directories of all groups `name` below the group of this process.
pub fn own_group_dirs(group_name: &str) -> Vec<PathBuf> {
    Hierarchy::all().into_iter().filter_map(|found| Some(found.own_dir()?.join(group_name))).collect()
}

/// Empties and removes the group `dir`. Safe to repeat.
pub fn remove_group(dir: &Path, fate: &Fate) -> io::Result<()> {
    match fate {
        Fate::Ended => kill_group(dir),
        Fate::MovedTo(to) => move_processes(dir, to),
    }
    BatchGroup { dir: dir.to_owned() }.remove()
}

/// Moves a process back from the group that it was moved into, unless it has left that group by itself.
pub fn move_back(process: &Thread, group: &Path, from: &Path) -> io::Result<()> {
    if !process.try_is_alive()? || !processes_in_tree(group).contains(&process.tid) {
        return Ok(());
    }
    let moved = BatchGroup { dir: from.to_owned() }.move_process_in(process.tid);
    if process.is_alive() { moved } else { Ok(()) }
}

fn move_processes(dir: &Path, to: &Path) {
    if let Some(freezer) = Freezer::find_in_group(dir) {
        let _ = freezer.set_frozen(false);
    }
    repeat_until_empty(dir, |pid| drop(BatchGroup { dir: to.to_owned() }.move_process_in(pid)));
}

/// Kills all processes in the group `dir` and below it.
pub fn kill_group(dir: &Path) {
    let leaf = BatchGroup { dir: dir.to_owned() };
    if leaf.has_control_file("cgroup.kill") && leaf.write("cgroup.kill", "1").is_ok() {
        return;
    }
    thaw_v1(dir);
    repeat_until_empty(dir, kill);
}

/// Thaws a version 1 group and all groups below it. A frozen task dies only after it thaws.
fn thaw_v1(dir: &Path) {
    let leaf = BatchGroup { dir: dir.to_owned() };
    if leaf.has_control_file("freezer.state") {
        let _ = leaf.write("freezer.state", "THAWED");
        groups_below(dir).iter().for_each(|below| thaw_v1(below));
    }
}

fn repeat_until_empty(dir: &Path, action: impl Fn(u32)) {
    repeat_until_none_alive(|| processes_in_tree(dir), action);
}

/// Kills processes until none is left. A process may fork while it is killed, so one round may not suffice.
pub fn kill_until_none_alive(alive_pids: impl Fn() -> Vec<u32>) {
    repeat_until_none_alive(alive_pids, kill);
}

fn repeat_until_none_alive(alive_pids: impl Fn() -> Vec<u32>, action: impl Fn(u32)) {
    for _ in 0..ROUNDS_MAX {
        let pids = alive_pids();
        if pids.is_empty() {
            return;
        }
        pids.into_iter().for_each(&action);
        std::thread::yield_now();
    }
}

fn kill(pid: u32) {
    // SAFETY: plain system call; the pid was batch's a moment ago.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
