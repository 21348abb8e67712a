//! Traces of a run on the machine: cgroups, kernel programs, claims, processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_rs::query::ProgInfoIter;

use super::deadline::TIMEOUT;
use super::{holds_within, process};

/// All traces of Sidelane on the machine, each as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint(BTreeSet<String>);

impl Footprint {
    /// Returns the present traces of Sidelane.
    pub fn capture() -> Self {
        let groups =
            groups_below(Path::new("/sys/fs/cgroup")).into_iter().map(|dir| format!("group {}", dir.display()));
        let claims = claims().into_iter().map(|file| format!("claim {}", file.display()));
        let processes = process::marked_pids().into_iter().map(describe_process);
        Self(groups.chain(claims).chain(processes).chain(kernel_programs()).collect())
    }

    /// Waits until all traces that are not in `self` are gone. The kernel frees a program a moment
    /// after its last user has ended.
    #[track_caller]
    pub fn wait_until_restored(&self) {
        let clean = holds_within(TIMEOUT, || self.added_since().is_empty());
        assert!(clean, "left behind for {TIMEOUT:?}: {:#?}", self.added_since());
    }

    /// Returns the traces that are not in `self`.
    pub fn added_since(&self) -> Vec<String> {
        Self::capture().0.difference(&self.0).cloned().collect()
    }
}

fn describe_process(pid: u32) -> String {
    format!("process {pid}: {}", process::command_line(pid).join(" "))
}

/// Returns every kernel program of the tracker, found by the common prefixes of their names.
fn kernel_programs() -> impl Iterator<Item = String> {
    let names = ProgInfoIter::default().map(|program| (program.name.to_string_lossy().into_owned(), program.id));
    let is_ours = |name: &str| ["lane_", "request_", "trace_"].iter().any(|prefix| name.starts_with(prefix));
    names.filter(move |(name, _)| is_ours(name)).map(|(name, id)| format!("kernel program {name} {id}"))
}

fn claims() -> Vec<PathBuf> {
    children(Path::new("/run")).into_iter().filter(|path| is_of_sidelane(path)).collect()
}

/// Returns every cgroup of a run below `dir`, in any hierarchy.
fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let groups = children(dir).into_iter().filter(|path| path.is_dir() && !path.is_symlink());
    groups.flat_map(|group| if is_of_sidelane(&group) { vec![group] } else { groups_below(&group) }).collect()
}

fn is_of_sidelane(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sidelane-"))
}

fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
