//! Freezer of a control group, of version 2 or 1.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const V2: &str = "cgroup.freeze";
const V1: &str = "freezer.state";
/// File of version 1 that says whether the group itself was frozen; `freezer.state` also shows the groups above it.
const V1_ITSELF: &str = "freezer.self_freezing";

/// Freezer of a control group: it stops and resumes all tasks in the group and below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freezer {
    dir: PathBuf,
    file: &'static str,
}

impl Freezer {
    /// Returns the freezer of the group `group_dir`, if it has one.
    pub fn find_in_group(group_dir: &Path) -> Option<Self> {
        let file = [V2, V1].into_iter().find(|file| group_dir.join(file).exists())?;
        Some(Self { dir: group_dir.to_owned(), file })
    }

    /// Whether the freezer is of cgroup version 2.
    pub fn is_v2(&self) -> bool {
        self.file == V2
    }

    /// Returns the directory of the group.
    pub fn into_dir(self) -> PathBuf {
        self.dir
    }

    /// Whether the group itself is frozen, or was asked to freeze.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let file = if self.file == V1 { V1_ITSELF } else { V2 };
        Ok(fs::read_to_string(self.dir.join(file))?.trim() == "1")
    }

    /// Whether all tasks of the group are stopped. A task in a long system call, or one that is exiting, runs on for
    /// a while after [`Freezer::set_frozen`].
    pub fn are_all_tasks_stopped(&self) -> bool {
        let (file, word) = if self.file == V1 { (V1, "FROZEN") } else { ("cgroup.events", "frozen 1") };
        fs::read_to_string(self.dir.join(file)).is_ok_and(|text| text.lines().any(|line| line == word))
    }

    /// Freezes or resumes the group.
    pub fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        let value = match (self.file, frozen) {
            (V1, true) => "FROZEN",
            (V1, false) => "THAWED",
            (_, true) => "1",
            (_, false) => "0",
        };
        fs::write(self.dir.join(self.file), value)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::cgroup::{BatchGroup, Hierarchy};
    use crate::procfs::is_killed;

    #[test]
    fn killed_process_of_a_frozen_group_is_seen() {
        let name = format!("sidelane-test-killed-{}", std::process::id());
        let v1 = Hierarchy::all().into_iter().filter(|found| !found.is_v2());
        let leaf = v1.filter_map(|found| BatchGroup::create(&found, &name).ok()).find_map(|leaf| {
            let freezer = Freezer::find_in_group(&leaf.dir);
            freezer.is_none().then(|| leaf.remove());
            Some((freezer?, leaf))
        });
        let Some((freezer, leaf)) = leaf else {
            return sidelane_testing::skip("needs the right to make a group with a freezer of version 1");
        };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        leaf.move_process_in(child.id()).unwrap();
        freezer.set_frozen(true).unwrap();
        let before = is_killed(child.id());
        child.kill().unwrap();
        let after = is_killed(child.id());
        freezer.set_frozen(false).unwrap();
        child.wait().unwrap();
        leaf.remove().unwrap();
        assert_eq!((before, after), (false, true));
    }
}
