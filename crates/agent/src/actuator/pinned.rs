//! Threads that have chosen CPUs of their own, in cgroups whose lists are written.
//!
//! Before Linux 6.2, each write of a cgroup's list gives the whole list to each of the cgroup's threads. The affinity
//! that a thread had chosen (taskset, numactl, OMP_PROC_BIND, MPI) is lost. So Sidelane notes the affinity before the
//! first write. A newer kernel keeps the affinity, and does not need a restore.

use std::path::Path;

use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cgroup::processes_in_tree;

use sidelane_diagnostics::machine::kernel_release;
use sidelane_rollback::Undo;
use sidelane_rollback::threads::ThreadOwner;

/// First kernel version that keeps the affinity of threads.
const KEEPS: (u32, u32) = (6, 2);

/// Returns whether a kernel of this release forgets the affinity of threads when the list of their cgroup is written. A
/// release that cannot be parsed counts as newer.
fn forgets_affinity(release: &str) -> bool {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit()).map(str::parse::<u32>);
    let version = numbers.next().and_then(Result::ok).zip(numbers.next().and_then(Result::ok));
    version.is_some_and(|version| version < KEEPS)
}

/// Returns the undo entries for threads in a cgroup and below that have chosen an affinity, if this kernel forgets it.
pub fn affinity_undos_in(dir: &Path) -> Vec<Undo> {
    let whose = || ThreadOwner { pids: processes_in_tree(dir), group: Some(dir.to_owned()) };
    if forgets_affinity(&kernel_release()) { affinity_undos(&whose()) } else { Vec::new() }
}

/// Returns an undo entry for each thread whose CPUs differ from the CPUs of its cgroup.
fn affinity_undos(owner: &ThreadOwner) -> Vec<Undo> {
    let cpusets = Cpusets::find();
    let threads = owner.threads().into_iter();
    let found = threads.filter_map(|thread| Some((thread, Affinity::of_thread(&thread, &cpusets)?)));
    let chosen = found.filter(|(_, affinity)| !affinity.follows_group);
    chosen.map(|(thread, affinity)| Undo::Forgotten { thread, affinity }).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use sidelane_host::priority::pin_thread;
    use sidelane_host::procfs::{own_cpus, thread_cpus};

    use super::*;
    use sidelane_rollback::guardian::stand_in::reading_guardian;

    #[test]
    fn kernels_before_6_2_forget_the_affinity() {
        let forget = |release: &&str| forgets_affinity(release);
        assert!(["6.1.0-18-amd64", "5.14.0-427.el9.x86_64", "4.19.0", "6.1-rc3"].iter().all(forget));
        assert!(!["6.2.0", "6.18.5-fc", "10.1", "unknown", ""].iter().any(forget));
    }

    fn spawn_sleeping_process() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    /// The kernel of this machine may keep the affinity, so the test changes each thread as an older kernel does.
    #[test]
    fn affinity_lost_by_a_cpuset_write_is_restored() {
        let all: Vec<u32> = own_cpus().iter().collect();
        if all.len() < 2 {
            return sidelane_testing::skip("needs two CPUs".to_owned());
        }
        let mut children = [spawn_sleeping_process(), spawn_sleeping_process(), spawn_sleeping_process()];
        let [forgot, chose_anew, free] = [0, 1, 2].map(|child: usize| children[child].id());
        [forgot, chose_anew].iter().for_each(|pid| pin_thread(*pid, &all[..1]).unwrap());
        let whose = ThreadOwner { pids: vec![forgot, chose_anew, free], group: None };
        let noted = affinity_undos(&whose);
        assert_eq!(noted.len(), 2, "{noted:?}");
        let mut guardian = reading_guardian();
        let change_ids = guardian.add(noted).unwrap();
        pin_thread(forgot, &all).unwrap();
        pin_thread(chose_anew, &all[1..2]).unwrap();
        guardian.undo_and_withdraw(&change_ids).unwrap();
        let cpus = |pid| thread_cpus(pid, pid).unwrap().iter().collect::<Vec<u32>>();
        assert_eq!([cpus(forgot), cpus(chose_anew), cpus(free)], [&all[..1], &all[1..2], &all[..]]);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
