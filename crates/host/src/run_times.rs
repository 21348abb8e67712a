//! CPUs on which threads may run, and CPUs on which they ran.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;

use rustix::process::Pid;
use rustix::thread::sched_getaffinity;

use crate::cpulist::CpuSet;
use crate::procfs::threads;

/// Returns the CPUs that any thread of these processes may run on. It costs one system call per thread, and reads no
/// file of a thread.
pub fn union_of_affinities(pids: &BTreeSet<u32>) -> CpuSet {
    let cpus = pids.iter().flat_map(|pid| threads(*pid)).filter_map(thread_affinity);
    cpus.fold(CpuSet::default(), |sum, cpus| sum.union(&cpus))
}

/// Returns the CPUs that a thread may run on; `None` if it has ended.
pub fn thread_affinity(tid: u32) -> Option<CpuSet> {
    let cpus = sched_getaffinity(Some(Pid::from_raw(tid as i32)?)).ok()?;
    Some((0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// Returns the CPU time of a thread so far, in nanoseconds; `None` if it has ended.
pub fn thread_run_time_ns(pid: u32, tid: u32) -> Option<u64> {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    schedstat.split(' ').next()?.parse().ok()
}

/// Returns the CPU on which a thread runs, or ran last.
fn last_cpu(pid: u32, tid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name may have spaces and parentheses. The CPU is field 39, the state field 3.
    stat.rsplit_once(") ")?.1.split(' ').nth(36)?.parse().ok()
}

/// CPU time of threads between two observations.
#[derive(Debug, Default)]
pub struct RunTimes {
    ran_ns: HashMap<u32, u64>,
}

impl RunTimes {
    /// Returns how long threads of these processes ran on each CPU since the last call, in nanoseconds. A thread's
    /// time counts for the CPU on which it ran last. The first call for a thread returns nothing for it.
    pub fn run_times_since_last_call_ns(&mut self, pids: &BTreeSet<u32>) -> BTreeMap<u32, u64> {
        let (mut on_cpus, mut now) = (BTreeMap::new(), HashMap::new());
        for (pid, tid) in pids.iter().flat_map(|pid| threads(*pid).into_iter().map(|tid| (*pid, tid))) {
            let Some(ran_ns) = thread_run_time_ns(pid, tid) else { continue };
            now.insert(tid, ran_ns);
            let since_ns = self.ran_ns.get(&tid).map_or(0, |before| ran_ns.saturating_sub(*before));
            if since_ns > 0
                && let Some(cpu) = last_cpu(pid, tid)
            {
                *on_cpus.entry(cpu).or_default() += since_ns;
            }
        }
        self.ran_ns = now;
        on_cpus
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::priority::run_with_this_thread_on;

    #[test]
    fn time_counts_for_the_cpu_where_a_thread_ran() {
        let pid = std::process::id();
        let cpu = thread_affinity(pid).and_then(|cpus| cpus.first()).expect("this process may run somewhere");
        let ends = AtomicBool::new(false);
        let mut times = RunTimes::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let spin = || {
                    while !ends.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                run_with_this_thread_on(&[cpu], spin).unwrap();
            });
            while !times.run_times_since_last_call_ns(&BTreeSet::from([pid])).contains_key(&cpu) {}
            ends.store(true, Ordering::Relaxed);
        });
        assert!(union_of_affinities(&BTreeSet::from([pid])).contains(cpu));
    }
}
