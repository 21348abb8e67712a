//! Control groups for Sidelane itself, or for one of its threads: one that can be frozen, and one that has little CPU
//! time. Each is removed at the end of the test.

use std::thread;

use sidelane_host::cgroup::{Hierarchy, Leaf};
use sidelane_host::freezer::Freezer;

/// Makes a group of the calling test.
fn make(hierarchy: &Hierarchy, name: &str) -> Option<Leaf> {
    let name = format!("{name}-{}-{:?}", std::process::id(), thread::current().id());
    Leaf::make(hierarchy, &name.replace(['(', ')'], "")).ok()
}

/// Returns a shell command that enters the group, and then executes the command in its arguments.
fn enter(leaf: &Leaf) -> String {
    format!("echo $$ >{}/cgroup.procs; exec \"$0\" \"$@\"", leaf.dir.display())
}

/// A group that can be frozen.
pub struct FreezableGroup(pub Leaf);

impl FreezableGroup {
    /// Makes it; `None` if the hierarchy has no freezer.
    pub fn make(hierarchy: &Hierarchy, name: &str) -> Option<Self> {
        let group = make(hierarchy, &format!("halts-{name}")).map(Self);
        group.filter(|group| Freezer::of(&group.0.dir).is_some())
    }

    /// Returns hierarchies with groups that can be frozen.
    pub fn hierarchies() -> Vec<Hierarchy> {
        let can = |found: &Hierarchy| Self::make(found, "probe").is_some();
        Hierarchy::all().into_iter().filter(|found| found.is_v2() || found.controls("freezer")).filter(can).collect()
    }

    /// Freezes or thaws it.
    pub fn freeze(&self, frozen: bool) {
        Freezer::of(&self.0.dir).unwrap().set(frozen).unwrap();
    }

    /// Returns a shell command that enters the group.
    pub fn enter(&self) -> String {
        enter(&self.0)
    }

    /// Returns its name for `--adopt`.
    pub fn target(&self, hierarchy: &Hierarchy) -> String {
        format!("cgroup:/{}", self.0.dir.strip_prefix(&hierarchy.mount).unwrap().display())
    }
}

impl Drop for FreezableGroup {
    fn drop(&mut self) {
        self.freeze(false);
        let _ = self.0.remove();
    }
}

/// A group with a quota of CPU time.
pub struct ThrottledGroup(pub Leaf);

impl ThrottledGroup {
    /// Makes it; `None` if that is impossible here, with a message.
    pub fn make() -> Option<Self> {
        let hierarchies = Hierarchy::all().into_iter().filter(|found| found.is_v2() || found.controls("cpu"));
        let mut leaves = hierarchies.filter_map(|found| make(&found, "throttled"));
        let has_quota = |leaf: &Leaf| leaf.has("cpu.cfs_quota_us") || leaf.has("cpu.max");
        let found = leaves.find_map(|leaf| if has_quota(&leaf) { Some(leaf) } else { leaf.remove().ok().and(None) });
        if found.is_none() {
            sidelane_testing::skip("needs a group with a quota of CPU time");
        }
        let found = found.map(Self)?;
        found.give_real_time("500000");
        Some(found)
    }

    /// Returns a shell command that enters the group.
    pub fn enter(&self) -> String {
        enter(&self.0)
    }

    /// Sets the time that real-time threads of the group have of each second, if each group has its own. Returns
    /// whether it has.
    pub fn give_real_time(&self, runtime_us: &str) -> bool {
        let has = self.0.has("cpu.rt_runtime_us");
        if has {
            self.0.write("cpu.rt_runtime_us", runtime_us).unwrap();
        }
        has
    }

    /// Moves one thread into it, or back into the group above it (cgroup v1).
    pub fn keep_thread(&self, tid: u32, is_in: bool) {
        let above = Leaf { dir: self.0.dir.parent().unwrap().to_owned() };
        let leaf = if is_in { &self.0 } else { &above };
        leaf.write("tasks", &tid.to_string()).unwrap();
    }

    /// Gives threads of the ordinary class a hundredth of a CPU, or as much as they want.
    pub fn throttle(&self, is_throttled: bool) {
        let (file, all, little) = match self.0.has("cpu.max") {
            true => ("cpu.max", "max 100000", "1000 100000"),
            false => ("cpu.cfs_quota_us", "-1", "1000"),
        };
        self.0.write(file, if is_throttled { little } else { all }).unwrap();
    }
}

impl Drop for ThrottledGroup {
    fn drop(&mut self) {
        // The kernel still counts the part of a removed group for a while.
        let _ = self.0.write("cpu.rt_runtime_us", "0");
        let _ = self.0.remove();
    }
}
