//! Double-time error correction: which samples of a rate are valid (SHIM thesis, section 3.4.1).
//!
//! Problem. A rate is the change of a counter divided by the change of the clock, but the two
//! cannot be read at the same instant. A cache miss or an interrupt may make reading take longer at
//! one end of the period than at the other. Then the two changes are of different intervals, and
//! the rate is wrong: the thesis saw an IPC of 37 on a processor that retires at most 4.
//!
//! Approach. The clock is read twice in each sample, before the counters (Cs) and after them (Ce).
//! Both periods contain the same wait in between, so
//!
//! ```text
//! CPC = (Ce[n] − Ce[n−1]) ÷ (Cs[n] − Cs[n−1])
//! ```
//!
//! is 1 if reading took as long at both ends (Figure 3.3). Samples with another CPC are discarded.
//! The comparison uses integers and no division.

use super::sample::Sample;

/// Denominator of a tolerance: ten thousand.
const WHOLE: u64 = 10_000;

/// Filter of double-time error correction: keeps samples whose two clock readings agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubleTimeErrorFilter {
    tolerance: u64,
}

impl DoubleTimeErrorFilter {
    /// Returns a filter that keeps samples whose CPC (cycles per cycle) is 1 ± `tolerance`, rounded to ten-thousandths.
    pub fn new(tolerance: f64) -> Self {
        Self { tolerance: (tolerance * WHOLE as f64).round() as u64 }
    }

    /// Returns whether the rates of the period from `before` to `now` are valid.
    #[inline(always)]
    pub fn is_period_valid(&self, before: &Sample, now: &Sample) -> bool {
        let starts = now.start.wrapping_sub(before.start);
        let ends = now.end.wrapping_sub(before.end);
        u128::from(ends.abs_diff(starts)) * u128::from(WHOLE) <= u128::from(starts) * u128::from(self.tolerance)
    }
}

/// Returns cycles per cycle, from the two clock readings of both samples. The correct value is 1.
#[inline(always)]
pub fn cycles_per_cycle(before: &Sample, now: &Sample) -> f64 {
    now.end.wrapping_sub(before.end) as f64 / now.start.wrapping_sub(before.start) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(start: u64, reading_cycles: u64) -> Sample {
        Sample { start, end: start + reading_cycles, ..Sample::default() }
    }

    /// Periods start 1000 cycles apart, as in Figure 3.3 of the SHIM thesis. Reading takes 100 cycles in the first
    /// sample, then 100, 110, 111, 90, 89.
    #[test]
    fn sample_is_valid_if_both_ends_take_equal_time() {
        let dte = DoubleTimeErrorFilter::new(0.01);
        let kept = |reading| dte.is_period_valid(&sample(5_000, 100), &sample(6_000, reading));
        assert_eq!([100, 110, 111, 90, 89].map(kept), [true, true, false, true, false]);
        assert_eq!(cycles_per_cycle(&sample(5_000, 100), &sample(6_000, 150)), 1.05);
    }

    #[test]
    fn zero_tolerance_allows_no_skew() {
        let dte = DoubleTimeErrorFilter::new(0.0);
        assert!(dte.is_period_valid(&sample(0, 100), &sample(1_000, 100)));
        assert!(!dte.is_period_valid(&sample(0, 100), &sample(1_000, 101)));
    }

    proptest! {
        /// The counter increases by one every `step` cycles. Reading it takes `skew` cycles longer at one end of a
        /// period. A sample is discarded exactly if its two ends differ by more than the tolerance. The rates of all
        /// others are correct within the tolerance.
        #[test]
        fn exactly_the_skewed_samples_are_discarded(
            skews in prop::collection::vec(prop_oneof![3 => Just(0_u64), 1 => 0_u64..200_000], 2..200),
            period in 1_000_u64..100_000,
        ) {
            let dte = DoubleTimeErrorFilter::new(0.01);
            let mut clock = 1_000_000_u64;
            let mut samples = Vec::new();
            for skew in &skews {
                // The counter is the clock itself, read after the delay, so the correct rate is 1.
                let mut next = sample(clock, 60 + skew);
                next.values[0] = clock + skew;
                samples.push(next);
                clock += period.max(60 + skew);
            }
            for (pair, skew) in samples.windows(2).zip(skews.windows(2)) {
                let starts = pair[1].start - pair[0].start;
                let skewed = skew[0].abs_diff(skew[1]) * 100 > starts;
                prop_assert_eq!(dte.is_period_valid(&pair[0], &pair[1]), !skewed);
                let rate = (pair[1].values[0] - pair[0].values[0]) as f64 / starts as f64;
                prop_assert!(skewed || (rate - 1.0).abs() <= 0.01 + 1e-9, "{}", rate);
            }
        }
    }
}
