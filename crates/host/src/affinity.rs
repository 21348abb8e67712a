//! CPU affinity of threads, in a form that can be restored later.
//!
//! Since Linux 6.2 the kernel keeps the mask that a thread was last given by `sched_setaffinity`. At each later change
//! of the thread's cpuset, the kernel lets the thread run on those CPUs of the cpuset that are in the mask. A thread
//! that never had a mask of its own must not get one that lists its current CPUs: it would stay on these when its
//! cpuset grows. Such a thread gets a mask of all CPUs, which the kernel cuts to the cpuset now and later.

use std::io;

use serde::{Deserialize, Serialize};

use crate::cgroup::Hierarchy;
use crate::cpulist::CpuSet;
use crate::cpuset::cpus_in_effect;
use crate::priority::pin_thread;
use crate::procfs::thread_cpus;
use crate::thread::Thread;
use crate::topology::online_cpus;

/// CPU affinity of a thread: its CPUs, and whether they are all CPUs of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// CPUs on which the thread may run.
    pub cpus: CpuSet,
    /// Whether `cpus` includes all online CPUs of the thread's group. A thread that chose exactly these CPUs cannot
    /// be distinguished from one that chose none.
    pub follows_group: bool,
}

impl Affinity {
    /// Returns the affinity with CPUs `cpus` of a thread whose group has the CPUs `group`.
    pub fn new(cpus: CpuSet, group: &CpuSet) -> Self {
        let follows_group = !group.is_empty() && group.is_subset(&cpus);
        Self { cpus, follows_group }
    }

    /// Returns the current affinity of a thread; `None` if the thread has ended.
    pub fn of_thread(thread: &Thread, cpusets: &Cpusets) -> Option<Self> {
        let cpus = thread_cpus(thread.tid, thread.tid)?;
        let group = cpusets.group_cpus(thread.tid);
        thread.is_alive().then(|| Self::new(cpus, &group))
    }

    /// Sets this affinity on a thread. Does nothing if the thread has ended.
    ///
    /// If the thread's group has none of these CPUs any more, the thread gets a mask of all CPUs. Its old mask would
    /// bind it again as soon as the group regains one of them.
    ///
    /// # Errors
    /// If the kernel refuses the mask, or does not tell whether the thread has ended.
    pub fn apply_to(&self, thread: &Thread) -> io::Result<()> {
        let has_it = || thread_cpus(thread.tid, thread.tid).as_ref() == Some(&self.cpus);
        if !thread.try_is_alive()? || (!self.follows_group && has_it()) {
            return Ok(());
        }
        let chosen: Vec<u32> = self.cpus.iter().collect();
        let all: Vec<u32> = (0..libc::CPU_SETSIZE as u32).collect();
        let first = if self.follows_group { &all } else { &chosen };
        let given = pin_thread(thread.tid, first).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => pin_thread(thread.tid, &all),
            _ => Err(error),
        });
        given.or_else(|error| if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) })
    }

    /// Returns the union of affinities, for a new thread whose creator may be any of several threads.
    pub fn union<'found>(all: impl Iterator<Item = &'found Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            cpus: sum.cpus.union(&one.cpus),
            follows_group: sum.follows_group || one.follows_group,
        })
    }
}

/// Cgroup hierarchy with the cpusets of this machine, in which the CPUs of a thread's group are looked up.
#[derive(Clone, Debug)]
pub struct Cpusets {
    /// Hierarchy with cpusets: that of the version 1 controller `cpuset`, else that of version 2.
    hierarchy: Option<Hierarchy>,
}

impl Cpusets {
    /// Finds the hierarchy with cpusets among the mounted ones.
    pub fn find() -> Self {
        let all = Hierarchy::all();
        let v1 = all.iter().find(|hierarchy| hierarchy.has_controller("cpuset"));
        Self { hierarchy: v1.or_else(|| all.iter().find(|hierarchy| hierarchy.is_v2())).cloned() }
    }

    /// Returns the CPUs of the group that a thread is in; all online CPUs if no group has a list.
    fn group_cpus(&self, tid: u32) -> CpuSet {
        let group = || {
            let hierarchy = self.hierarchy.as_ref()?;
            let own = hierarchy.dir_of(tid)?;
            own.ancestors().take_while(|dir| dir.starts_with(&hierarchy.mount)).find_map(cpus_in_effect)
        };
        group().or_else(|| online_cpus().ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu_set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn a_thread_with_all_cpus_of_its_group_follows_the_group() {
        let follows = |cpus, group| Affinity::new(cpu_set(cpus), &cpu_set(group)).follows_group;
        assert!(follows("0-7", "0-3"), "it may use possible CPUs that are offline");
        assert!(follows("0-3", "0-3"));
        assert!(!follows("0-2", "0-3"), "it was given some of them");
        assert!(!Affinity::new(cpu_set("0-3"), &CpuSet::default()).follows_group, "nothing is known of its group");
    }

    #[test]
    fn union_has_the_cpus_of_each_possible_creator() {
        let [pinned, free] = ["0", "0-3"].map(|cpus| Affinity::new(cpu_set(cpus), &cpu_set("0-3")));
        assert_eq!(Affinity::union([&pinned, &free].into_iter()), free);
        assert_eq!(Affinity::union([&pinned].into_iter()), pinned);
    }
}
