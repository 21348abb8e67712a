//! Batch in containers that come and go: groups of their own below one group, as an agent finds them.
//!
//! - `work`: the programs in a container, and the count of their work
//! - `container`: one container, whose command is started again whenever it ends
//! - `churn`: the times at which each container is there

mod churn;
mod container;
mod work;

use anyhow::{Context, Result, ensure};

pub use churn::{Churn, Stay};
use container::Container;
pub use work::{Work, WorkFiles};

use sidelane_host::cgroup::{Hierarchy, Leaf};
use sidelane_host::cpulist::CpuSet;
use sidelane_rollback::change::own_groups;
use sidelane_rollback::guardian::Guardian;

/// The group of all containers, in each hierarchy that this user may manage.
pub struct Containers {
    name: String,
    hierarchies: Vec<Hierarchy>,
    leaves: Vec<Leaf>,
    /// Removes all groups, whatever ends this process.
    guardian: Option<Guardian>,
    there: Vec<Container>,
}

impl Containers {
    /// Makes the group `name` below the one that this process is in. Its processes may use `cpus`. Without a guardian,
    /// groups stay behind if this process is killed.
    pub fn make(name: &str, cpus: &CpuSet, mut guardian: Option<Guardian>) -> Result<Self> {
        let hierarchies: Vec<Hierarchy> = Hierarchy::all().into_iter().filter(is_managed).collect();
        brief(&mut guardian, name)?;
        let leaves = make_leaves(&hierarchies, name)?;
        leaves.iter().for_each(hand_down);
        let confined = leaves.iter().filter(|leaf| leaf.has("cpuset.cpus"));
        let count = confined.map(|leaf| leaf.set_cpus(cpus)).collect::<Result<Vec<_>, _>>();
        let count = count.with_context(|| format!("cannot give the group {name} CPUs {cpus}"))?.len();
        ensure!(count > 0, "there is no cpuset here, neither of cgroup v1 nor of v2: containers cannot be confined");
        Ok(Self { name: name.to_owned(), hierarchies, leaves, guardian, there: Vec::new() })
    }

    /// The kernel's path of the group, in the hierarchy that has its CPUs.
    pub fn path(&self) -> Option<String> {
        let confines = self.leaves.iter().position(|leaf| leaf.has("cpuset.cpus"))?;
        let (hierarchy, leaf) = (&self.hierarchies[confines], &self.leaves[confines]);
        let below = leaf.dir.strip_prefix(&hierarchy.mount).ok()?;
        Some(hierarchy.root.join(below).display().to_string())
    }

    /// Starts a container in which `work` is done again and again.
    pub fn start(&mut self, name: &str, work: &Work, workshop: &WorkFiles) -> Result<()> {
        let group = format!("{}/{name}", self.name);
        brief(&mut self.guardian, &group)?;
        let leaves = make_leaves(&self.hierarchies, &group)?;
        self.there.push(Container::start(name, leaves, work, workshop)?);
        Ok(())
    }

    /// When a container with [`Work::Stamps`] was last at work, by the clock of `sidelane_host::clock`.
    pub fn last_at_work_ns(&self, name: &str) -> Option<u64> {
        self.there.iter().find(|container| container.name() == name)?.last_at_work_ns()
    }

    /// CPU time of all that has ever run in the containers, where the kernel tells.
    pub fn cpu_ns(&self) -> Option<u64> {
        let text = self.leaves.iter().find_map(|leaf| leaf.read("cpu.stat").ok().filter(|text| text.contains(USED)))?;
        let used_us: u64 = text.lines().find_map(|line| line.strip_prefix(USED))?.trim().parse().ok()?;
        Some(used_us * 1_000)
    }

    /// Whether a container has ended by itself, since its command failed. [`Containers::stop`] says why.
    pub fn has_failed(&self, name: &str) -> bool {
        self.there.iter().any(|container| container.name() == name && container.has_failed())
    }

    /// Ends a container, and returns how much work it has done.
    pub fn stop(&mut self, name: &str) -> Result<u64> {
        let place = self.there.iter().position(|container| container.name() == name);
        let place = place.with_context(|| format!("there is no container {name}"))?;
        self.there.remove(place).stop()
    }

    /// How much work each of those that are there has done, in its own units.
    pub fn work_done(&self) -> Vec<(String, u64)> {
        self.there.iter().map(|container| (container.name().to_owned(), container.work_done())).collect()
    }

    /// Ends all, and removes the groups.
    pub fn finish(mut self) -> Result<()> {
        for container in std::mem::take(&mut self.there) {
            container.stop()?;
        }
        for leaf in &self.leaves {
            leaf.remove().with_context(|| format!("cannot remove {}", leaf.dir.display()))?;
        }
        self.guardian.take().map_or(Ok(()), Guardian::finish).context("cannot send the guardian home")
    }
}

impl Drop for Containers {
    /// Ends the containers of an experiment that failed.
    fn drop(&mut self) {
        for container in std::mem::take(&mut self.there) {
            let _ = container.stop();
        }
        for leaf in &self.leaves {
            let _ = leaf.remove();
        }
    }
}

/// A group is about to be made.
fn brief(guardian: &mut Option<Guardian>, group: &str) -> Result<()> {
    guardian.as_mut().map_or(Ok(()), |guardian| guardian.add(own_groups(group)).map(drop))
}

/// In `cpu.stat` of cgroup v2, in microseconds.
const USED: &str = "usage_usec";

/// Returns whether CPUs are assigned, and processes are paused, in this hierarchy.
fn is_managed(hierarchy: &Hierarchy) -> bool {
    hierarchy.is_v2() || hierarchy.controls("cpuset") || hierarchy.controls("freezer")
}

fn make_leaves(hierarchies: &[Hierarchy], name: &str) -> Result<Vec<Leaf>> {
    let make = |hierarchy: &Hierarchy| {
        Leaf::make(hierarchy, name)
            .with_context(|| format!("cannot make the group {name} in {}", hierarchy.mount.display()))
    };
    hierarchies.iter().map(make).collect()
}

/// Lets the groups below use the group's controllers. A group of version 2 passes them on if it is told to. If it has
/// none, the hierarchies of version 1 have them.
fn hand_down(leaf: &Leaf) {
    let offered = leaf.read("cgroup.controllers").unwrap_or_default();
    for controller in offered.split_whitespace().filter(|controller| ["cpu", "cpuset"].contains(controller)) {
        let _ = leaf.write("cgroup.subtree_control", &format!("+{controller}"));
    }
}
