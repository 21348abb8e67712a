//! Batch in containers that come and go: each container has its own cgroups below one common group, in which an agent
//! finds them.
//!
//! - `work`: the programs in a container, and the count of their work
//! - `container`: one container, whose command is started again whenever it ends
//! - `churn`: the times at which each container starts and stops

mod churn;
mod container;
mod work;

use anyhow::{Context, Result, ensure};

pub use churn::{Churn, ContainerSchedule};
use container::Container;
pub use work::{Work, WorkFiles};

use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::cpulist::CpuSet;
use sidelane_rollback::change::undos_of_own_groups;
use sidelane_rollback::guardian::Guardian;

/// The parent group of all containers, in each cgroup hierarchy that this user may manage.
pub struct Containers {
    name: String,
    hierarchies: Vec<Hierarchy>,
    leaves: Vec<BatchGroup>,
    /// Guardian process that removes all groups even if this process is killed.
    guardian: Option<Guardian>,
    there: Vec<Container>,
}

impl Containers {
    /// Makes the group `name` below the group of this process. Processes in it may use `cpus`. Without a guardian,
    /// groups stay behind if this process is killed.
    pub fn make(name: &str, cpus: &CpuSet, mut guardian: Option<Guardian>) -> Result<Self> {
        let hierarchies: Vec<Hierarchy> = Hierarchy::all().into_iter().filter(is_managed).collect();
        announce_cgroup(&mut guardian, name)?;
        let leaves = make_cgroups(&hierarchies, name)?;
        leaves.iter().for_each(enable_child_controllers);
        let confined = leaves.iter().filter(|leaf| leaf.has_control_file("cpuset.cpus"));
        let count = confined.map(|leaf| leaf.set_cpus(cpus)).collect::<Result<Vec<_>, _>>();
        let count = count.with_context(|| format!("cannot give the group {name} CPUs {cpus}"))?.len();
        ensure!(count > 0, "there is no cpuset here, neither of cgroup v1 nor of v2: containers cannot be confined");
        Ok(Self { name: name.to_owned(), hierarchies, leaves, guardian, there: Vec::new() })
    }

    /// Returns the kernel's path of the parent group, in the hierarchy that assigns CPUs; `None` if no hierarchy
    /// assigns CPUs.
    pub fn cgroup_path(&self) -> Option<String> {
        let confines = self.leaves.iter().position(|leaf| leaf.has_control_file("cpuset.cpus"))?;
        let (hierarchy, leaf) = (&self.hierarchies[confines], &self.leaves[confines]);
        let below = leaf.dir.strip_prefix(&hierarchy.mount).ok()?;
        Some(hierarchy.root.join(below).display().to_string())
    }

    /// Starts a container that repeats `work` until it is stopped.
    pub fn start(&mut self, name: &str, work: &Work, work_files: &WorkFiles) -> Result<()> {
        let group = format!("{}/{name}", self.name);
        announce_cgroup(&mut self.guardian, &group)?;
        let leaves = make_cgroups(&self.hierarchies, &group)?;
        self.there.push(Container::start(name, leaves, work, work_files)?);
        Ok(())
    }

    /// Returns when a container with [`Work::Stamps`] was last at work, by the clock of `sidelane_host::clock`.
    pub fn last_work_timestamp_ns(&self, name: &str) -> Option<u64> {
        self.there.iter().find(|container| container.name() == name)?.last_work_timestamp_ns()
    }

    /// Returns the CPU time of all processes that ever ran in the containers; `None` if the kernel does not report it.
    pub fn cpu_ns(&self) -> Option<u64> {
        let text = self.leaves.iter().find_map(|leaf| leaf.read("cpu.stat").ok().filter(|text| text.contains(USED)))?;
        let used_us: u64 = text.lines().find_map(|line| line.strip_prefix(USED))?.trim().parse().ok()?;
        Some(used_us * 1_000)
    }

    /// Returns whether the command of a container has failed; [`Containers::stop`] then returns its error.
    pub fn has_failed(&self, name: &str) -> bool {
        self.there.iter().any(|container| container.name() == name && container.has_failed())
    }

    /// Stops a container, and returns the work that it has done, in the units of that work.
    pub fn stop(&mut self, name: &str) -> Result<u64> {
        let place = self.there.iter().position(|container| container.name() == name);
        let place = place.with_context(|| format!("there is no container {name}"))?;
        self.there.remove(place).stop()
    }

    /// Returns the name of each running container and the work that it has done, in the units of that work.
    pub fn work_done(&self) -> Vec<(String, u64)> {
        self.there.iter().map(|container| (container.name().to_owned(), container.work_done())).collect()
    }

    /// Stops all containers and removes the groups.
    pub fn finish(mut self) -> Result<()> {
        for container in std::mem::take(&mut self.there) {
            container.stop()?;
        }
        for leaf in &self.leaves {
            leaf.remove().with_context(|| format!("cannot remove {}", leaf.dir.display()))?;
        }
        self.guardian
            .take()
            .map_or(Ok(()), Guardian::undo_all_and_end)
            .context("cannot undo all changes to the machine; check CPU affinities (taskset -a -p PID) and cgroups")
    }
}

impl Drop for Containers {
    /// Stops the containers of an experiment that failed.
    fn drop(&mut self) {
        for container in std::mem::take(&mut self.there) {
            let _ = container.stop();
        }
        for leaf in &self.leaves {
            let _ = leaf.remove();
        }
    }
}

/// Tells the guardian about a cgroup before the cgroup is made, so that the guardian can remove it.
fn announce_cgroup(guardian: &mut Option<Guardian>, group: &str) -> Result<()> {
    guardian.as_mut().map_or(Ok(()), |guardian| guardian.add(undos_of_own_groups(group)).map(drop))
}

/// Key of the consumed CPU time in `cpu.stat` of cgroup v2, in microseconds.
const USED: &str = "usage_usec";

/// Returns whether this hierarchy assigns CPUs or freezes processes.
fn is_managed(hierarchy: &Hierarchy) -> bool {
    hierarchy.is_v2() || hierarchy.has_controller("cpuset") || hierarchy.has_controller("freezer")
}

fn make_cgroups(hierarchies: &[Hierarchy], name: &str) -> Result<Vec<BatchGroup>> {
    let make = |hierarchy: &Hierarchy| {
        BatchGroup::create(hierarchy, name)
            .with_context(|| format!("cannot make the group {name} in {}", hierarchy.mount.display()))
    };
    hierarchies.iter().map(make).collect()
}

/// Lets child groups use this group's controllers. In cgroup v2 a group must enable them for its children. A group
/// without controllers stays unchanged: the hierarchies of cgroup v1 have the controllers.
fn enable_child_controllers(leaf: &BatchGroup) {
    let offered = leaf.read("cgroup.controllers").unwrap_or_default();
    for controller in offered.split_whitespace().filter(|controller| ["cpu", "cpuset"].contains(controller)) {
        let _ = leaf.write("cgroup.subtree_control", &format!("+{controller}"));
    }
}
