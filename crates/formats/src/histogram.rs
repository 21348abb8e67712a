//! The buckets of latency histograms in shared memory: 32 for each power of two, as `record` in the
//! kernel program's `bpf/lane/accounting.h` chooses them.

use sidelane_policy::histogram::bucket;

use crate::GATE_HIST_BUCKETS;
use crate::sync::{AtomicU32, Ordering};

/// 32 buckets for each power of two.
pub const HIST_SUB_BITS: u32 = 5;

/// Returns the bucket of a latency, as an index of the histogram.
pub fn hist_bucket(latency_ns: u64) -> usize {
    bucket(latency_ns, HIST_SUB_BITS).min(GATE_HIST_BUCKETS - 1)
}

/// Adds one latency to a histogram that other threads and processes also read and write.
pub fn hist_record(counts: &[AtomicU32; GATE_HIST_BUCKETS], latency_ns: u64) {
    counts[hist_bucket(latency_ns)].fetch_add(1, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_the_kernel_program() {
        // The expected buckets were computed by hand from `record` in bpf/lane/accounting.h.
        for (latency_ns, bucket) in [(0, 0), (31, 31), (32, 32), (63, 63), (64, 64), (65, 64), (1_000, 190)] {
            assert_eq!(hist_bucket(latency_ns), bucket, "{latency_ns} ns");
        }
        assert_eq!(hist_bucket(u64::MAX), GATE_HIST_BUCKETS - 1);
    }
}
