//! CPU time that this process's threads took from CPUs of the services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sidelane_host::procfs::threads;
use sidelane_host::run_times::ran_ns;

/// A share of the time below this is not worth a word.
const WORTH_A_WORD_PERCENT: f64 = 0.1;

/// What was counted so far.
#[derive(Debug, Default)]
pub(super) struct SelfUsage {
    /// CPU time of each thread when it was last asked for, while threads are on CPUs of the services.
    threads: BTreeMap<u32, u64>,
    beside_ns: u64,
    since: Option<Instant>,
}

impl SelfUsage {
    /// Counts what was spent since the last call, in which threads were `apart` from the services or not. Those of `fixed`
    /// have a place of their own.
    pub(super) fn charge(&mut self, apart: bool, fixed: &BTreeSet<u32>) {
        self.since.get_or_insert_with(Instant::now);
        if apart {
            self.threads.clear();
            return;
        }
        let this = std::process::id();
        let own = threads(this).into_iter().filter(|tid| !fixed.contains(tid));
        let now: BTreeMap<u32, u64> = own.filter_map(|tid| Some((tid, ran_ns(this, tid)?))).collect();
        let spent = |(tid, ran_ns): (&u32, &u64)| ran_ns.saturating_sub(*self.threads.get(tid).unwrap_or(ran_ns));
        self.beside_ns += now.iter().map(spent).sum::<u64>();
        self.threads = now;
    }

    /// The share of the time, if it is worth a word, or if there is a word anyway.
    pub(super) fn percent(&self, anyway: bool) -> Option<String> {
        let wall_ns = self.since?.elapsed().as_nanos().max(1);
        let percent = self.beside_ns as f64 * 100.0 / wall_ns as f64;
        match percent < WORTH_A_WORD_PERCENT {
            true => anyway.then(|| "less than 0.1".to_owned()),
            false => Some(format!("{percent:.1}")),
        }
    }
}
