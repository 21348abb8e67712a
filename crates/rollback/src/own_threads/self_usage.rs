//! CPU time that this process's threads took from CPUs of the services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sidelane_host::procfs::threads;
use sidelane_host::run_times::thread_run_time_ns;

/// Least CPU time on CPUs of the services that is reported, in percent of the elapsed time.
const WORTH_A_WORD_PERCENT: f64 = 0.1;

/// CPU time that this process's threads have used on CPUs of the services up to now.
#[derive(Debug, Default)]
pub(super) struct SelfUsage {
    /// CPU time of each thread at the last count; empty while no thread is on CPUs of the services.
    threads: BTreeMap<u32, u64>,
    beside_ns: u64,
    since: Option<Instant>,
}

impl SelfUsage {
    /// Counts the CPU time since the last call, unless the threads are apart from the services (`is_apart`). Threads in
    /// `fixed_tids` place themselves and do not count.
    pub(super) fn count_cpu_time(&mut self, is_apart: bool, fixed_tids: &BTreeSet<u32>) {
        self.since.get_or_insert_with(Instant::now);
        if is_apart {
            self.threads.clear();
            return;
        }
        let this = std::process::id();
        let own = threads(this).into_iter().filter(|tid| !fixed_tids.contains(tid));
        let now: BTreeMap<u32, u64> = own.filter_map(|tid| Some((tid, thread_run_time_ns(this, tid)?))).collect();
        let spent = |(tid, ran_ns): (&u32, &u64)| ran_ns.saturating_sub(*self.threads.get(tid).unwrap_or(ran_ns));
        self.beside_ns += now.iter().map(spent).sum::<u64>();
        self.threads = now;
    }

    /// Returns the counted CPU time in percent of the elapsed time; `None` if it is below 0.1 % and not wanted
    /// `even_if_small`.
    pub(super) fn overhead_percent(&self, even_if_small: bool) -> Option<String> {
        let wall_ns = self.since?.elapsed().as_nanos().max(1);
        let percent = self.beside_ns as f64 * 100.0 / wall_ns as f64;
        match percent < WORTH_A_WORD_PERCENT {
            true => even_if_small.then(|| "less than 0.1".to_owned()),
            false => Some(format!("{percent:.1}")),
        }
    }
}
