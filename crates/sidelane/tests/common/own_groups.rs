//! Cgroups for Sidelane itself, or for one of its threads: one that can be frozen, and one with little CPU time. Each
//! is removed at the end of the test.

use std::thread;

use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::freezer::Freezer;

/// Creates a cgroup of the calling test.
fn make(hierarchy: &Hierarchy, name: &str) -> Option<BatchGroup> {
    let name = format!("{name}-{}-{:?}", std::process::id(), thread::current().id());
    BatchGroup::create(hierarchy, &name.replace(['(', ')'], "")).ok()
}

/// Returns a shell command that enters the cgroup, and then executes the command in its arguments.
fn enter_cgroup_command(leaf: &BatchGroup) -> String {
    format!("echo $$ >{}/cgroup.procs; exec \"$0\" \"$@\"", leaf.dir.display())
}

/// Cgroup that can be frozen.
pub struct FreezableGroup(pub BatchGroup);

impl FreezableGroup {
    /// Creates the cgroup; `None` if the hierarchy has no freezer.
    pub fn make(hierarchy: &Hierarchy, name: &str) -> Option<Self> {
        let group = make(hierarchy, &format!("halts-{name}")).map(Self);
        group.filter(|group| Freezer::find_in_group(&group.0.dir).is_some())
    }

    /// Returns the hierarchies whose cgroups can be frozen.
    pub fn hierarchies() -> Vec<Hierarchy> {
        let can = |found: &Hierarchy| Self::make(found, "probe").is_some();
        Hierarchy::all()
            .into_iter()
            .filter(|found| found.is_v2() || found.has_controller("freezer"))
            .filter(can)
            .collect()
    }

    /// Freezes or thaws the cgroup.
    pub fn freeze(&self, frozen: bool) {
        Freezer::find_in_group(&self.0.dir).unwrap().set_frozen(frozen).unwrap();
    }

    /// Returns a shell command that enters the cgroup.
    pub fn enter_command(&self) -> String {
        enter_cgroup_command(&self.0)
    }

    /// Returns the cgroup's name for `--adopt`.
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

/// Cgroup with a quota of CPU time.
pub struct ThrottledGroup(pub BatchGroup);

impl ThrottledGroup {
    /// Creates the cgroup. If that is impossible here, prints a message and returns `None`.
    pub fn make() -> Option<Self> {
        let hierarchies = Hierarchy::all().into_iter().filter(|found| found.is_v2() || found.has_controller("cpu"));
        let mut leaves = hierarchies.filter_map(|found| make(&found, "throttled"));
        let has_quota =
            |leaf: &BatchGroup| leaf.has_control_file("cpu.cfs_quota_us") || leaf.has_control_file("cpu.max");
        let found = leaves.find_map(|leaf| if has_quota(&leaf) { Some(leaf) } else { leaf.remove().ok().and(None) });
        if found.is_none() {
            sidelane_testing::skip("needs a group with a quota of CPU time");
        }
        let found = found.map(Self)?;
        found.set_rt_runtime("500000");
        Some(found)
    }

    /// Returns a shell command that enters the cgroup.
    pub fn enter_command(&self) -> String {
        enter_cgroup_command(&self.0)
    }

    /// Sets the time per second for real-time threads of the cgroup. Returns false if cgroups have no such time of
    /// their own.
    pub fn set_rt_runtime(&self, runtime_us: &str) -> bool {
        let has = self.0.has_control_file("cpu.rt_runtime_us");
        if has {
            self.0.write("cpu.rt_runtime_us", runtime_us).unwrap();
        }
        has
    }

    /// Moves one thread into the cgroup, or back into the parent cgroup (cgroup v1).
    pub fn move_thread(&self, tid: u32, into_group: bool) {
        let above = BatchGroup { dir: self.0.dir.parent().unwrap().to_owned() };
        let leaf = if into_group { &self.0 } else { &above };
        leaf.write("tasks", &tid.to_string()).unwrap();
    }

    /// Limits threads of the ordinary class to a hundredth of a CPU, or removes the limit.
    pub fn throttle(&self, is_throttled: bool) {
        let (file, all, little) = match self.0.has_control_file("cpu.max") {
            true => ("cpu.max", "max 100000", "1000 100000"),
            false => ("cpu.cfs_quota_us", "-1", "1000"),
        };
        self.0.write(file, if is_throttled { little } else { all }).unwrap();
    }
}

impl Drop for ThrottledGroup {
    fn drop(&mut self) {
        // The kernel still counts the real-time share of a removed cgroup for a while, so the share is set to 0 first.
        let _ = self.0.write("cpu.rt_runtime_us", "0");
        let _ = self.0.remove();
    }
}
