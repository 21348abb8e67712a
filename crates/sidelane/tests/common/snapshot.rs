//! Settings of the whole machine that Sidelane may change, before and after; and their repair by other means than
//! Sidelane's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use rustix::fs::{FlockOperation, flock};
use sidelane_host::cgroup::{BatchGroup, Hierarchy, groups_below, processes_in_group};
use sidelane_host::freezer::Freezer;
use sidelane_host::procfs::{all_pids, start_time_ticks, state, threads};

use super::agent::{SIDELANE, batch_processes};
use super::process::{self, allowed_cpus, class_priority_and_nice};

/// Files of a cgroup that Sidelane may write, or that show what it has done.
const GROUP_FILES: [&str; 8] = [
    "cgroup.freeze",
    "cgroup.subtree_control",
    "cgroup.type",
    "cpuset.cpu_exclusive",
    "cpuset.cpus",
    "cpuset.mems",
    "cpuset.sched_load_balance",
    "freezer.self_freezing",
];

/// Kinds of entries. Threads and processes may end, and kernel programs of others may be unloaded.
const GROUP: &str = "group";
const THREAD: &str = "thread";

/// Settings of the machine as text, by the thing that has them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(BTreeMap<String, String>);

impl Snapshot {
    /// Returns the present settings.
    pub fn capture() -> Self {
        let hierarchies = hierarchies();
        let mut entries = BTreeMap::new();
        for dir in hierarchies.iter().flat_map(|found| tree_of_groups(found.mount.clone())) {
            let read = |file: &&str| Some(format!("{file}={}", fs::read_to_string(dir.join(file)).ok()?.trim()));
            let settings: Vec<String> = GROUP_FILES.iter().filter_map(read).collect();
            entries.insert(format!("{GROUP} {}", dir.display()), settings.join(" "));
        }
        for pid in all_pids().into_iter().filter(|pid| *pid != std::process::id()) {
            entries.extend(entries_of_process(pid, &hierarchies));
        }
        for pid in batch_processes() {
            entries.insert(format!("batch process {pid}"), process::command_line(pid).join(" "));
        }
        let programs = ProgInfoIter::default().map(|it| ("program", it.id, it.name.to_string_lossy().into_owned()));
        let maps = MapInfoIter::default().map(|it| ("map", it.id, it.name.to_string_lossy().into_owned()));
        entries.extend(programs.chain(maps).map(|(kind, id, name)| (format!("BPF {kind} {id}"), name)));
        entries.extend(claims_and_sockets().into_iter().filter(|path| is_in_use(path)).map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            (format!("claim {}", path.display()), text)
        }));
        Self(entries)
    }

    /// Returns what differs now: what was added or changed, and cgroups that are gone.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let added_or_changed = now.0.iter().filter_map(|(key, value)| match self.0.get(key) {
            None if key.starts_with(THREAD) || is_group_of_others(key) => None,
            None => Some(format!("{key} is left: {value}")),
            Some(before) if before != value => Some(format!("{key}\n      was {before}\n      is  {value}")),
            Some(_) => None,
        });
        let gone = self.0.keys().filter(|key| key.starts_with(GROUP) && !now.0.contains_key(*key));
        added_or_changed.chain(gone.map(|key| format!("{key} is gone"))).collect()
    }

    /// Takes over the present settings of a process, which the campaign has just changed itself.
    pub fn refresh_process(&mut self, pid: u32) {
        self.0.extend(entries_of_process(pid, &hierarchies()));
    }

    /// Forgets the settings of a process that the campaign has changed itself while Sidelane confined it.
    pub fn forget_process(&mut self, pid: u32) {
        self.0.retain(|key, _| !key.starts_with(&format!("{THREAD} {pid}/")));
    }

    /// Forgets the cgroups whose path contains this text.
    pub fn forget_groups(&mut self, part: &str) {
        self.0.retain(|key, _| !(key.starts_with(GROUP) && key.contains(part)));
    }

    /// Restores the machine: ends processes of Sidelane, lets stopped processes continue, removes added cgroups,
    /// restores CPU affinities, and removes claims.
    pub fn restore(&self) {
        for pid in all_pids() {
            if is_sidelane(pid) || batch_processes().contains(&pid) {
                process::kill(pid);
            } else if self.0.keys().any(|key| key.starts_with(&format!("{THREAD} {pid}/"))) && is_stopped(pid) {
                process::signal(pid, libc::SIGCONT);
            }
        }
        let now = Self::capture();
        for key in now.0.keys().rev().filter(|key| !self.0.contains_key(*key) && !is_group_of_others(key)) {
            if let Some(dir) = key.strip_prefix(GROUP) {
                remove_group(Path::new(dir.trim()));
            }
        }
        let threads = now.0.iter().filter(|(key, _)| key.starts_with(THREAD));
        for (key, before) in threads.filter_map(|(key, value)| Some((key, self.0.get(key).filter(|it| *it != value)?)))
        {
            let tid = key.split(['/', '@']).nth(1).unwrap_or_default();
            let cpus = before.split_whitespace().find_map(|word| word.strip_prefix("cpus=")).unwrap_or_default();
            let _ = Command::new("taskset").args(["-p", "-c", cpus, tid]).output();
        }
        claims_and_sockets().into_iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// Returns whether the entry is a cgroup that another program of this machine has made: each of Sidelane's has its name.
fn is_group_of_others(key: &str) -> bool {
    key.starts_with(GROUP) && !key.contains("sidelane")
}

/// Returns the cgroups of this name in all hierarchies.
pub fn groups_named(name: &str) -> Vec<PathBuf> {
    let all = Hierarchy::all().into_iter().flat_map(|found| tree_of_groups(found.mount));
    all.filter(|dir| dir.ends_with(name)).collect()
}

/// Returns whether the process executes the binary under test.
pub fn is_sidelane(pid: u32) -> bool {
    process::program(pid).is_some_and(|program| program == Path::new(SIDELANE))
}

/// Returns the hierarchies of cgroups that Sidelane may change.
fn hierarchies() -> Vec<Hierarchy> {
    Hierarchy::all().into_iter().filter(Hierarchy::can_freeze_or_confine).collect()
}

fn tree_of_groups(dir: PathBuf) -> Vec<PathBuf> {
    let below: Vec<PathBuf> = groups_below(&dir).into_iter().flat_map(tree_of_groups).collect();
    [vec![dir], below].concat()
}

/// Returns whether a POSIX signal has stopped the process.
pub fn is_stopped(pid: u32) -> bool {
    matches!(state(&format!("/proc/{pid}/stat")), Some('T' | 't'))
}

/// Returns the entries of one process: one if it is Sidelane, else one for each thread.
fn entries_of_process(pid: u32, hierarchies: &[Hierarchy]) -> Vec<(String, String)> {
    // Kernel threads and processes that have ended have no program.
    let Some(program) = process::program(pid) else { return Vec::new() };
    if program == Path::new(SIDELANE) {
        return vec![(format!("process of Sidelane {pid}"), process::command_line(pid).join(" "))];
    }
    let groups: Vec<String> =
        hierarchies.iter().filter_map(|found| found.dir_of(pid)).map(|dir| dir.display().to_string()).collect();
    let describe = |tid: u32| {
        let start = start_time_ticks(tid)?;
        let stopped = if is_stopped(tid) { " stopped" } else { "" };
        let class: Vec<String> = class_priority_and_nice(tid).into_iter().flatten().collect();
        let (cpus, class) = (allowed_cpus(tid)?, class.join("/"));
        let value = format!("cpus={cpus} class={class}{stopped} groups={}", groups.join(","));
        Some((format!("{THREAD} {pid}/{tid}@{start}"), value))
    };
    threads(pid).into_iter().filter_map(describe).collect()
}

fn claims_and_sockets() -> Vec<PathBuf> {
    let entries = fs::read_dir("/run").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sidelane"));
    entries.filter(is_ours).collect()
}

/// Returns whether a new start cannot take a claim or a socket.
fn is_in_use(path: &Path) -> bool {
    if path.extension().is_some_and(|it| it == "sock") {
        return UnixStream::connect(path).is_ok();
    }
    File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Removes a cgroup. Its processes go on in the cgroup above.
pub fn remove_group(dir: &Path) {
    if let Some(freezer) = Freezer::find_in_group(dir) {
        let _ = freezer.set_frozen(false);
    }
    if let Some(above) = dir.parent() {
        let above = BatchGroup { dir: above.to_owned() };
        processes_in_group(dir).into_iter().for_each(|pid| drop(above.move_process_in(pid)));
    }
    let _ = fs::remove_dir(dir);
}
