//! Histogram of latencies with a fixed size.
//!
//! Each bucket has a width of 1/32 of a power of two, so values are read with an error of at most 2 %.

use crate::{Nanos, histogram};

/// Binary logarithm of the number of buckets in a power of two.
const SUB_BITS: u32 = 5;
/// Bits of the longest latency with a bucket of its own: 18 minutes. Longer latencies share the last bucket.
const BITS: u32 = 40;
const BUCKETS: usize = ((BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// Histogram: number of requests in each latency bucket.
#[derive(Clone, Debug)]
pub struct Latencies {
    pub(super) counts: [u32; BUCKETS],
    pub(super) requests: u64,
}

impl Latencies {
    /// Histogram without requests.
    pub const EMPTY: Self = Self { counts: [0; BUCKETS], requests: 0 };

    /// Adds the latency of a finished request.
    pub fn record(&mut self, latency_ns: Nanos) {
        self.add(bucket(latency_ns));
    }

    /// Returns the number of requests in the histogram.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn add(&mut self, bucket: usize) {
        self.counts[bucket] += 1;
        self.requests += 1;
    }

    /// Returns the latencies in ns by bucket, with their numbers.
    pub fn latency_counts(&self) -> impl Iterator<Item = (Nanos, u64)> {
        self.counts.iter().enumerate().map(|(at, count)| (middle_ns(at), u64::from(*count)))
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.requests = 0;
    }

    /// Halves the weight of all present requests.
    pub(super) fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.requests = self.counts.iter().map(|count| u64::from(*count)).sum();
    }

    /// Adds the requests of the histogram `other`.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.requests += other.requests;
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, less)| *count -= less);
        self.requests -= other.requests;
    }

    /// Returns the latency that `percentile` of 100 requests do not exceed; 0 without requests.
    pub fn percentile_ns(&self, percentile: f64) -> Nanos {
        let exact = self.requests as f64 * percentile / 100.0;
        let whole = exact as u64;
        let rank = (whole + u64::from((whole as f64) < exact)).max(1);
        self.bucket_of_rank(rank).map_or(0, |(at, _)| middle_ns(at))
    }

    /// Returns the confidence interval of a percentile of the service, of which these requests are a sample. Its ends
    /// are the latencies at two ranks, `deviations` standard deviations (binomial) below and above. `None` with too few
    /// requests.
    pub fn percentile_interval_ns(&self, percentile: f64, deviations: f64) -> Option<(f64, f64)> {
        let part = percentile / 100.0;
        let exact = self.requests as f64 * part;
        let margin = deviations * square_root(exact * (1.0 - part));
        let low = (exact - margin) as u64;
        let high = (exact + margin) as u64 + 2;
        (exact >= margin && low >= 1 && high <= self.requests)
            .then(|| (self.latency_at_rank_ns(low), self.latency_at_rank_ns(high)))
    }

    /// Returns the latency of the request of this rank, counted from 1. It is interpolated between the edges of its
    /// bucket.
    fn latency_at_rank_ns(&self, rank: u64) -> f64 {
        let Some((at, before)) = self.bucket_of_rank(rank) else { return 0.0 };
        let place = ((rank - before) as f64 - 0.5) / f64::from(self.counts[at]);
        let [from_ns, to_ns] = [at, at + 1].map(|bucket| histogram::first_value_of_bucket(bucket, SUB_BITS));
        from_ns as f64 + place * (to_ns - from_ns) as f64
    }

    /// Returns the bucket of the request of this rank, and the number of requests in lower buckets.
    fn bucket_of_rank(&self, rank: u64) -> Option<(usize, u64)> {
        let mut before = 0;
        for (at, count) in self.counts.iter().enumerate() {
            let seen = before + u64::from(*count);
            if seen >= rank {
                return Some((at, before));
            }
            before = seen;
        }
        None
    }
}

/// Returns the square root with an error below 0.001: `core` has it only for integers.
fn square_root(value: f64) -> f64 {
    ((value * 1e6) as u64).isqrt() as f64 / 1e3
}

pub(super) fn bucket(ns: Nanos) -> usize {
    histogram::bucket(ns, SUB_BITS).min(BUCKETS - 1)
}

pub(super) fn middle_ns(bucket: usize) -> Nanos {
    histogram::middle_of_bucket(bucket, SUB_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_latencies_share_a_bucket() {
        assert_eq!(bucket(u64::MAX), bucket((1 << BITS) - 1));
    }

    /// Returns a histogram of the latencies 1 to `count` µs, each once.
    fn latencies_up_to_us(count: u64) -> Latencies {
        let mut latencies = Latencies::EMPTY;
        (1..=count).for_each(|us| latencies.record(us * 1_000));
        latencies
    }

    #[test]
    fn latency_of_a_rank_is_interpolated_in_its_bucket() {
        let latencies = latencies_up_to_us(1_000);
        for rank in [1, 10, 500, 990, 1_000] {
            let (read, wanted) = (latencies.latency_at_rank_ns(rank), rank as f64 * 1_000.0);
            assert!((read - wanted).abs() <= 0.02 * wanted + 500.0, "rank {rank}: {read}");
        }
    }

    #[test]
    fn confidence_interval_narrows_with_more_requests() {
        // The median of 1000 requests is between the ranks 500 - 2 x 15.8 and 500 + 2 x 15.8.
        let (low, high) = latencies_up_to_us(1_000).percentile_interval_ns(50.0, 2.0).unwrap();
        assert!((460_000.0..475_000.0).contains(&low) && (525_000.0..545_000.0).contains(&high), "{low} to {high}");
        let many = latencies_up_to_us(100_000).percentile_interval_ns(50.0, 2.0).unwrap();
        assert!((many.1 - many.0) / 50e6 < 0.02, "{many:?}");
    }

    #[test]
    fn percentile_of_too_few_requests_is_none() {
        assert_eq!(Latencies::EMPTY.percentile_interval_ns(50.0, 2.0), None);
        assert_eq!(latencies_up_to_us(100).percentile_interval_ns(99.0, 2.0), None);
        assert!(latencies_up_to_us(100).percentile_interval_ns(50.0, 2.0).is_some());
    }
}
