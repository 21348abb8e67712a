//! Accounting of self-checking batch, and its corrections to the kernel program's accounting.
//!
//! A thread that naps in place is a running thread for the kernel. Its time counts as batch's time, and beside the
//! service as overlap. Only the thread itself knows its naps. It records how long it napped, how much of that time the
//! service ran, and how long it ran beside the service with permission. It counts only what is certain
//! (`crates/gate/src/chunk.rs`). So the remaining error is towards more overlap. If a context switch cuts a nap short,
//! the kernel program adds the end of the nap (`bpf/lane/self_checking.h`).

use std::sync::atomic::Ordering;

use sidelane_formats::GateWord;

use crate::accounting::LaneAccounting;
use crate::kernel_types::LaneStats;

/// Accounting of the self-checking threads on one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateAccounting {
    /// Number of naps that the threads began.
    pub naps: u64,
    /// Number of checks that found the check word set.
    pub slow_paths: u64,
    /// Time spent in naps.
    pub napped_ns: u64,
    /// Time spent in naps while the service ran.
    pub napped_lc_ns: u64,
    /// Time that the threads ran beside the service with permission.
    pub lent_lc_ns: u64,
    /// Number of threads that promised to check; threads that inherited the promise are not counted.
    pub promises: u64,
}

impl GateAccounting {
    /// Returns the accounting in `word`, with the naps that a context switch cut short, which the kernel program added
    /// to `stats`.
    pub fn read(word: &GateWord, stats: &LaneStats) -> Self {
        let (cut_ns, cut_lc_ns) = stats.cut_naps_ns();
        Self {
            naps: word.naps.load(Ordering::Relaxed).into(),
            slow_paths: word.slow_paths.load(Ordering::Relaxed),
            napped_ns: word.napped_ns.load(Ordering::Relaxed).saturating_add(cut_ns),
            napped_lc_ns: word.napped_lc_ns.load(Ordering::Relaxed).saturating_add(cut_lc_ns),
            lent_lc_ns: word.lent_lc_ns.load(Ordering::Relaxed),
            promises: word.promises.load(Ordering::Relaxed),
        }
    }

    /// Returns the time beside the service that is no overlap: naps and permitted time.
    pub fn excused_ns(&self) -> u64 {
        self.napped_lc_ns.saturating_add(self.lent_lc_ns)
    }

    /// Returns the sum of this accounting and `other`. Batch can write any number, so the sum saturates.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            naps: self.naps.saturating_add(other.naps),
            slow_paths: self.slow_paths.saturating_add(other.slow_paths),
            napped_ns: self.napped_ns.saturating_add(other.napped_ns),
            napped_lc_ns: self.napped_lc_ns.saturating_add(other.napped_lc_ns),
            lent_lc_ns: self.lent_lc_ns.saturating_add(other.lent_lc_ns),
            promises: self.promises.saturating_add(other.promises),
        }
    }

    /// Returns the accounting of the time since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            // The word has 32 bits, so its count wraps.
            naps: u64::from((self.naps as u32).wrapping_sub(earlier.naps as u32)),
            slow_paths: self.slow_paths.saturating_sub(earlier.slow_paths),
            napped_ns: self.napped_ns.saturating_sub(earlier.napped_ns),
            napped_lc_ns: self.napped_lc_ns.saturating_sub(earlier.napped_lc_ns),
            lent_lc_ns: self.lent_lc_ns.saturating_sub(earlier.lent_lc_ns),
            promises: self.promises.saturating_sub(earlier.promises),
        }
    }
}

/// Tolerance by which naps and permitted time may exceed the run time: they are not read at the same moment.
const BEYOND_NS_MAX: u64 = 1_000_000;

/// Returns the naps and permitted time that the threads claim beyond their run time. Batch can write any number into
/// this accounting. Naps beside the service are not compared: those that other programs cut short are only estimated.
fn excess_claim_ns(lane: &LaneAccounting, gate: &GateAccounting) -> u64 {
    let own_ns = lane.batch_ns + lane.stolen_batch_ns;
    let beyond_ns = gate.napped_ns.saturating_add(gate.lent_lc_ns).saturating_sub(own_ns);
    if beyond_ns > BEYOND_NS_MAX.max(own_ns / 100) { beyond_ns } else { 0 }
}

/// Returns the kernel program's accounting of a lane, corrected by self-checking batch's claims. Impossible claims
/// correct nothing.
pub fn apply_gate_claims(lane: LaneAccounting, gate: GateAccounting) -> LaneAccounting {
    let unbelieved_ns = excess_claim_ns(&lane, &gate);
    if unbelieved_ns > 0 {
        return LaneAccounting { gate, unbelieved_ns, ..lane };
    }
    LaneAccounting {
        batch_ns: lane.batch_ns.saturating_sub(gate.napped_ns),
        overlap_ns: lane.overlap_ns.saturating_sub(gate.excused_ns()),
        lent_overlap_ns: lane.lent_overlap_ns + gate.lent_lc_ns,
        gate,
        ..lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_and_lent_time_are_subtracted_from_overlap() {
        let kernels = LaneAccounting { batch_ns: 1_000, overlap_ns: 500, ..LaneAccounting::default() };
        let gate = GateAccounting { napped_ns: 600, napped_lc_ns: 400, lent_lc_ns: 90, ..GateAccounting::default() };
        let settled = apply_gate_claims(kernels, gate);
        assert_eq!((settled.batch_ns, settled.overlap_ns, settled.lent_overlap_ns), (400, 10, 90));
    }

    #[test]
    fn naps_longer_than_the_run_time_correct_nothing() {
        let ran = LaneAccounting { batch_ns: 10_000_000, overlap_ns: 5_000_000, ..LaneAccounting::default() };
        let naps = |napped_ns, napped_lc_ns| GateAccounting { napped_ns, napped_lc_ns, ..GateAccounting::default() };
        for lie in [naps(12_000_000, 5_000_000), naps(u64::MAX, u64::MAX)] {
            let settled = apply_gate_claims(ran, lie);
            assert_eq!((settled.batch_ns, settled.overlap_ns), (ran.batch_ns, ran.overlap_ns), "{lie:?}");
            assert!(settled.unbelieved_ns >= 2_000_000, "{settled:?}");
        }
        let all_of_it = apply_gate_claims(ran, naps(10_000_000, 5_000_000));
        assert_eq!((all_of_it.overlap_ns, all_of_it.unbelieved_ns), (0, 0));
    }

    #[test]
    fn sums_of_any_claims_saturate() {
        let most = u64::MAX;
        let lie = GateAccounting {
            naps: most,
            slow_paths: most,
            napped_ns: most,
            napped_lc_ns: most,
            lent_lc_ns: most,
            promises: most,
        };
        assert_eq!((lie.plus(&lie), lie.excused_ns()), (lie, most));
    }

    #[test]
    fn difference_of_nap_counts_allows_for_wrapping() {
        let (earlier, now) =
            (GateAccounting { naps: u64::from(u32::MAX), ..Default::default() }, GateAccounting::default());
        assert_eq!(now.since(&earlier).naps, 1);
    }
}
