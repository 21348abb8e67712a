//! Latency histograms as the kernel program keeps them: 32 buckets for each power of two.

use sidelane_formats::{GATE_HIST_BUCKETS, HIST_SUB_BITS, hist_bucket};
use sidelane_policy::histogram::middle_of_bucket;

/// Number of buckets of a histogram, as in `bpf/lanes.h`.
pub const BUCKETS: usize = GATE_HIST_BUCKETS;

/// Histogram of latencies, whose buckets are at most 3 % wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }
}

impl FromIterator<u64> for Histogram {
    /// Makes a histogram from the kernel program's counts, first bucket first.
    fn from_iter<I: IntoIterator<Item = u64>>(counts: I) -> Self {
        let mut histogram = Self::default();
        for (bucket, count) in histogram.counts.iter_mut().zip(counts) {
            *bucket = count;
        }
        histogram
    }
}

impl Histogram {
    /// Returns the number of latencies in the histogram.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the latency that `percentile` percent of all latencies do not exceed, in ns; `None` if there are none.
    pub fn percentile_ns(&self, percentile: f64) -> Option<u64> {
        let rank = (self.count() as f64 * percentile / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(bucket, count)| {
            seen += count;
            (*count > 0 && seen >= rank).then(|| bucket_middle_ns(bucket))
        })
    }

    /// Returns the latencies in ns by bucket, with their numbers.
    pub fn latency_counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().map(|(bucket, count)| (bucket_middle_ns(bucket), *count))
    }

    /// Counts one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.counts[hist_bucket(latency_ns)] += 1;
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// Returns the latencies since `earlier`, an older copy of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counts.iter().zip(&earlier.counts);
        // The kernel's counters are 32 bits wide and wrap.
        pairs.map(|(now, then)| u64::from((*now as u32).wrapping_sub(*then as u32))).collect()
    }
}

fn bucket_middle_ns(bucket: usize) -> u64 {
    middle_of_bucket(bucket, HIST_SUB_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram_of(latencies_ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        latencies_ns.iter().for_each(|latency_ns| histogram.record(*latency_ns));
        histogram
    }

    #[test]
    fn percentiles_are_exact_to_2_percent() {
        let latencies: Vec<u64> = (1..=100).map(|us| us * 1_000).collect();
        let histogram = histogram_of(&latencies);
        for (percentile, wanted_ns) in [(50.0, 50_000), (99.0, 99_000), (100.0, 100_000)] {
            let read = histogram.percentile_ns(percentile).unwrap();
            assert!(read.abs_diff(wanted_ns) * 50 <= wanted_ns, "p{percentile}: {read}");
        }
        assert_eq!(Histogram::default().percentile_ns(50.0), None);
    }

    #[test]
    fn difference_contains_only_later_latencies() {
        let earlier = histogram_of(&[10, 20]);
        let later = histogram_of(&[10, 20, 500]);
        assert_eq!(later.since(&earlier), histogram_of(&[500]));
        // The counter has wrapped: it was u32::MAX in the earlier copy and is 1 now.
        let mut wrapped = earlier.clone();
        wrapped.counts[10] = u64::from(u32::MAX);
        let mut now = earlier.clone();
        now.counts[10] = 1;
        assert_eq!(now.since(&wrapped).counts[10], 2);
    }
}
