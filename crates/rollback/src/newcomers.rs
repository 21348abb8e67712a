//! Newcomers: threads that changed threads have created, and that inherit the change.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sidelane_host::affinity::Affinity;
use sidelane_host::cgroup::processes_in_tree;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::ThreadClass;
use sidelane_host::procfs::{self, with_descendants};
use sidelane_host::thread::Thread;

use super::change::set_thread_class;

/// Most rounds in which newcomers are searched. A thread forks more slowly than it is changed back, so this limit has
/// never been reached.
const ROUNDS_MAX: usize = 1000;

/// Search for newcomers: the groups and processes to search, the signs of a newcomer, and the settings that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newcomers {
    /// Groups that newcomers are in, or below which they are.
    pub groups: Vec<PathBuf>,
    /// Processes from which newcomers descend.
    pub families: Vec<Thread>,
    /// Whether each changed thread was bound to one CPU. If so, a new thread with several CPUs has chosen them itself.
    pub confined: CpuSet,
    /// Whether each changed thread was bound to one CPU. Then a thread with several CPUs has chosen them itself.
    pub alone: bool,
    /// CPUs on which some of the changed threads run together, while each remaining changed thread has one CPU.
    pub together: CpuSet,
    /// Affinity that newcomers get.
    pub affinity: Affinity,
    /// Scheduling class that newcomers get; `None` if the class of the changed threads was not changed.
    pub class: Option<ThreadClass>,
}

impl Newcomers {
    /// Gives every newcomer its original affinity and class, until a round finds none. Threads in `known_threads` are
    /// no newcomers.
    pub fn restore_all(&self, known_threads: &BTreeSet<Thread>) {
        let mut done = known_threads.clone();
        for _ in 0..ROUNDS_MAX {
            let changed = self.threads().into_iter().filter(|thread| !done.contains(thread) && self.is_changed(thread));
            let changed: Vec<Thread> = changed.collect();
            if changed.is_empty() {
                return;
            }
            for thread in changed {
                self.restore_thread(&thread);
                done.insert(thread);
            }
        }
    }

    /// Gives one thread the affinity and class of newcomers.
    pub fn restore_thread(&self, thread: &Thread) {
        let _ = self.affinity.apply_to(thread);
        if let Some(class) = self.class.filter(|_| is_idle(thread)) {
            let _ = set_thread_class(thread, class);
        }
    }

    /// Returns whether a newcomer with these CPUs has inherited them from a changed thread.
    pub fn are_inherited_cpus(&self, cpus: &CpuSet) -> bool {
        let is_shared = !cpus.is_empty() && cpus.is_subset(&self.together);
        cpus.is_subset(&self.confined) && (!self.alone || cpus.len() == 1 || is_shared)
    }

    fn threads(&self) -> Vec<Thread> {
        let roots: BTreeSet<u32> = self.families.iter().filter(|root| root.is_alive()).map(|root| root.tid).collect();
        let descendants = if roots.is_empty() { BTreeSet::new() } else { with_descendants(&roots) };
        let members = self.groups.iter().flat_map(|dir| processes_in_tree(dir)).chain(descendants);
        members.flat_map(Thread::all_of).collect()
    }

    /// Returns whether a thread still has the changed CPUs or class. A child of a restored thread has inherited the
    /// restored CPUs.
    fn is_changed(&self, thread: &Thread) -> bool {
        let cpus = procfs::thread_cpus(thread.tid, thread.tid);
        cpus.is_some_and(|cpus| self.are_inherited_cpus(&cpus)) || (self.class.is_some() && is_idle(thread))
    }
}

fn is_idle(thread: &Thread) -> bool {
    ThreadClass::of_thread(thread.tid).is_some_and(|class| class.is_idle())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use sidelane_host::priority::make_this_thread_idle;
    use sidelane_host::procfs::own_cpus;

    use super::*;

    /// Starts a process in SCHED_IDLE.
    fn start_idle_process() -> Child {
        let mut command = Command::new("sleep");
        // SAFETY: one async-signal-safe system call between fork and exec.
        unsafe { command.arg("1000").pre_exec(make_this_thread_idle) };
        command.spawn().unwrap()
    }

    #[test]
    fn several_cpus_of_a_new_thread_are_its_own_choice() {
        let set = |cpus: &str| cpus.parse::<CpuSet>().unwrap();
        let (groups, families) = Default::default();
        let bound = Newcomers {
            groups,
            families,
            confined: set("0,2"),
            alone: true,
            together: CpuSet::default(),
            affinity: Affinity::default(),
            class: None,
        };
        let inherited = ["0", "2", "1", "0,2", "0-3"].map(|cpus| bound.are_inherited_cpus(&set(cpus)));
        assert_eq!(inherited, [true, true, false, false, false]);
        assert!(Newcomers { alone: false, ..bound.clone() }.are_inherited_cpus(&set("0,2")));
        let long = Newcomers { confined: set("0-3"), together: set("0-1"), ..bound };
        let inherited = ["0-1", "2", "2-3", "0-3"].map(|cpus| long.are_inherited_cpus(&set(cpus)));
        assert_eq!(inherited, [true, true, false, false], "long requests run on CPUs 0 and 1 together");
    }

    #[test]
    fn new_thread_gets_the_original_class_and_affinity() {
        let (ordinary, cpus) = (ThreadClass::new(libc::SCHED_BATCH, 0), own_cpus());
        let mut children = [start_idle_process(), start_idle_process()];
        let [newcomer, known] = [0, 1].map(|child: usize| Thread::with_tid(children[child].id()).unwrap());
        let families = vec![newcomer, known];
        let (confined, class) = (CpuSet::default(), Some(ordinary));
        let affinity = Affinity::new(cpus.clone(), &cpus);
        let (groups, together) = Default::default();
        let newcomers = Newcomers { groups, families, confined, alone: false, together, affinity, class };
        newcomers.restore_all(&BTreeSet::from([known]));
        let classes = [newcomer, known].map(|thread| ThreadClass::of_thread(thread.tid).unwrap());
        // To leave SCHED_IDLE may take a privilege.
        // SAFETY: plain system call.
        let is_root = unsafe { libc::geteuid() } == 0;
        assert_eq!(classes, [if is_root { ordinary } else { ThreadClass::IDLE }, ThreadClass::IDLE]);
        assert_eq!(procfs::thread_cpus(newcomer.tid, newcomer.tid), Some(cpus));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
