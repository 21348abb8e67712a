//! Learned idle threshold: the idle time after which a release pays, from the lengths of a service's idle periods.
//!
//! Problem. A release gains the rest of the idle period for batch, and costs a switch to batch, a wakeup of the holder
//! and a reaction beside the next request. The length of a period is not known before its end. A wait as long as that
//! cost never loses more than twice what an oracle would (ski rental), whatever the lengths are. But most services have
//! lengths of one kind: if nearly all periods are long, the wait is lost in each; if periods of 10 µs and of 10 ms
//! alternate, waiting 12 µs gives up little and saves most releases.
//!
//! Approach. The lengths of the last some thousand periods are kept in buckets, as their number and their sum. With a
//! threshold τ and a cost c, a period of length L > τ gains L − τ − c, and a shorter one 0. The sum over the buckets
//! above τ is the gain of τ on these periods. Every [`LEARN_EVERY`] periods the threshold with the highest gain is
//! taken, if it gains at least [`MARGIN_PERCENT`] more than the present one. The fallback is a candidate, too. So on the
//! periods that are kept, no fixed threshold of the candidates gains more than that margin above the learned one. Old
//! periods count half after each [`KEPT`].

use crate::Nanos;

/// Number of bits of a length below its leading one that choose its bucket: four buckets for each power of two.
const SUB_BITS: u32 = 2;
/// Number of buckets: lengths up to 1 ms have a bucket of their own kind; longer ones share the last.
const BUCKETS: usize = 76;
/// Number of periods after which the threshold is chosen anew.
const LEARN_EVERY: u32 = 64;
/// Number of periods in the buckets at which all of them are halved.
const KEPT: u32 = 8_192;
/// Least advantage of another threshold over the present one, in percent of the present one's gain.
const MARGIN_PERCENT: i128 = 1;

/// Number and sum of the idle periods whose lengths are in one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    periods: u32,
    sum_ns: Nanos,
}

/// Lengths of idle periods, with the threshold that they suggest.
#[derive(Clone, Copy, Debug)]
pub struct LearnedThreshold {
    /// Cost of a release; also the threshold before enough periods were seen.
    cost_ns: Nanos,
    threshold_ns: Nanos,
    buckets: [Bucket; BUCKETS],
    periods: u32,
    /// Number of periods since the threshold was chosen.
    since_choice: u32,
}

impl LearnedThreshold {
    /// Starts with the threshold `cost_ns`, which is what a release costs.
    pub fn new(cost_ns: Nanos) -> Self {
        Self { cost_ns, threshold_ns: cost_ns, buckets: [Bucket::default(); BUCKETS], periods: 0, since_choice: 0 }
    }

    /// Returns the idle time after which batch gets the lane.
    pub fn threshold_ns(&self) -> Nanos {
        self.threshold_ns
    }

    /// Processes an idle period that has ended.
    pub fn record(&mut self, length_ns: Nanos) {
        let bucket = &mut self.buckets[bucket_of(length_ns)];
        bucket.periods += 1;
        bucket.sum_ns = bucket.sum_ns.saturating_add(length_ns);
        self.periods += 1;
        self.since_choice += 1;
        if self.since_choice >= LEARN_EVERY {
            self.since_choice = 0;
            self.choose();
        }
        if self.periods >= KEPT {
            self.forget_half();
        }
    }

    /// Takes the candidate with the highest gain, if it is clearly above the present one's.
    fn choose(&mut self) {
        // From the longest lengths down, so that each bucket is added once.
        let (mut periods, mut sum_ns) = (0_i128, 0_i128);
        // If no release pays, the longest candidate is best.
        let (mut best, mut present) = ((0_i128, lower_bound_ns(BUCKETS - 1)), 0_i128);
        for (index, bucket) in self.buckets.iter().enumerate().rev() {
            periods += i128::from(bucket.periods);
            sum_ns += i128::from(bucket.sum_ns);
            let threshold_ns = lower_bound_ns(index);
            let gain = sum_ns - periods * i128::from(threshold_ns + self.cost_ns);
            if gain > best.0 {
                best = (gain, threshold_ns);
            }
            if threshold_ns >= self.threshold_ns {
                present = gain;
            }
        }
        if best.0 > present + present.max(0) * MARGIN_PERCENT / 100 {
            self.threshold_ns = best.1;
        }
    }

    fn forget_half(&mut self) {
        for bucket in &mut self.buckets {
            bucket.sum_ns -= bucket.sum_ns / 2;
            bucket.periods -= bucket.periods / 2;
        }
        self.periods = self.buckets.iter().map(|bucket| bucket.periods).sum();
    }
}

/// Returns the index of the bucket for a length.
fn bucket_of(length_ns: Nanos) -> usize {
    let floor = length_ns.max(1).ilog2();
    let index = match floor.checked_sub(SUB_BITS) {
        None => length_ns,
        Some(shift) => (u64::from(shift) << SUB_BITS) + (length_ns >> shift),
    };
    (index as usize).min(BUCKETS - 1)
}

/// Returns the shortest length in a bucket.
fn lower_bound_ns(index: usize) -> Nanos {
    let index = index as u64;
    match (index >> SUB_BITS).checked_sub(1) {
        None => index,
        Some(shift) => (index - (shift << SUB_BITS)) << shift,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    const COST_NS: Nanos = 8_000;
    const PERIODS: usize = 40_000;

    /// Pseudo-random numbers between 0 and 1 (SplitMix64).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
        }

        fn exponential(&mut self, mean_ns: f64) -> f64 {
            -mean_ns * (1.0 - self.next()).max(1e-12).ln()
        }
    }

    /// Distribution of idle periods: returns the length of the period with this number.
    type Distribution = fn(&mut Random, usize) -> f64;

    const DISTRIBUTIONS: [(&str, Distribution); 10] = [
        ("constant 185 µs, as between requests at 5,000/s", |_, _| 185e3),
        ("constant 5 µs", |_, _| 5e3),
        ("exponential, mean 200 µs", |random, _| random.exponential(200e3)),
        ("exponential, mean 12 µs", |random, _| random.exponential(12e3)),
        ("exponential, mean 3 µs", |random, _| random.exponential(3e3)),
        ("uniform up to 40 µs", |random, _| random.next() * 40e3),
        ("three of four are 6 µs, one is exponential with mean 2 ms", |random, _| {
            if random.next() < 0.75 { 6e3 } else { random.exponential(2e6) }
        }),
        ("nine of ten are up to 30 µs, one is 300 µs", |random, _| {
            if random.next() < 0.9 { random.next() * 30e3 } else { 300e3 }
        }),
        ("Pareto from 2 µs, exponent 1.2", |random, _| {
            (2e3 / (1.0 - random.next()).max(1e-9).powf(1.0 / 1.2)).min(1e9)
        }),
        ("bursts of 500 short periods, then 500 long ones", |random, index| {
            random.exponential(if index / 500 % 2 == 0 { 4e3 } else { 400e3 })
        }),
    ];

    fn lengths((_, distribution): (&str, Distribution)) -> Vec<Nanos> {
        let mut random = Random(7);
        (0..PERIODS).map(|index| distribution(&mut random, index) as Nanos).collect()
    }

    /// Returns what batch gains in idle periods with a fixed threshold, less what the releases cost.
    fn fixed_gain(lengths: &[Nanos], threshold_ns: Nanos) -> i64 {
        lengths.iter().map(|length| gain(*length, threshold_ns)).sum()
    }

    fn gain(length_ns: Nanos, threshold_ns: Nanos) -> i64 {
        if length_ns > threshold_ns { length_ns as i64 - (threshold_ns + COST_NS) as i64 } else { 0 }
    }

    fn learned_gain(lengths: &[Nanos]) -> i64 {
        let mut learned = LearnedThreshold::new(COST_NS);
        let gain_and_record = |length: &Nanos| {
            let gain = gain(*length, learned.threshold_ns());
            learned.record(*length);
            gain
        };
        lengths.iter().map(gain_and_record).sum()
    }

    /// Returns the highest gain of a fixed threshold: one of 2,000 from 0 to 1 ms, 5 % apart at most.
    fn best_fixed_gain(lengths: &[Nanos]) -> i64 {
        let thresholds = (0..2_000).map(|step| if step == 0 { 0 } else { 1.007_f64.powi(step) as Nanos });
        thresholds.filter(|ns| *ns <= 1_000_000).map(|ns| fixed_gain(lengths, ns)).max().unwrap()
    }

    #[test]
    fn learned_threshold_gains_as_much_as_the_best_fixed_one() {
        for distribution in DISTRIBUTIONS {
            let lengths = lengths(distribution);
            let (learned, best) = (learned_gain(&lengths), best_fixed_gain(&lengths));
            let default = fixed_gain(&lengths, COST_NS);
            // Where the best threshold gains next to nothing, what matters is that the learned one loses nothing.
            let idle_ns = lengths.iter().sum::<Nanos>() as f64;
            assert!(learned as f64 >= 0.98 * best as f64 - 0.001 * idle_ns, "{}: {learned} of {best}", distribution.0);
            assert!(
                learned as f64 >= default as f64 - 0.001 * idle_ns,
                "{}: {learned}, default {default}",
                distribution.0
            );
        }
    }

    #[test]
    fn each_length_is_in_the_bucket_of_its_lower_bound() {
        for index in 0..BUCKETS {
            assert_eq!(bucket_of(lower_bound_ns(index)), index);
            assert!(index == 0 || lower_bound_ns(index) > lower_bound_ns(index - 1));
        }
        assert_eq!(bucket_of(Nanos::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_service_whose_periods_change_gets_a_new_threshold() {
        let mut learned = LearnedThreshold::new(COST_NS);
        (0..20_000).for_each(|_| learned.record(5_000));
        assert!(learned.threshold_ns() > 5_000, "short periods are not worth a release");
        (0..20_000).for_each(|_| learned.record(500_000));
        assert!(learned.threshold_ns() < 1_000, "{}", learned.threshold_ns());
    }

    #[test]
    fn threshold_stays_at_cost_before_enough_periods() {
        let mut learned = LearnedThreshold::new(COST_NS);
        (1..LEARN_EVERY).for_each(|_| learned.record(500_000));
        assert_eq!(learned.threshold_ns(), COST_NS);
        learned.record(500_000);
        assert_eq!(learned.threshold_ns(), 0);
    }
}
