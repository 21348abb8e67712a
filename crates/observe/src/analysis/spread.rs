//! The distribution of values: counts in buckets of constant relative width.
//!
//! A bucket's index is the binary exponent and the first bits of the mantissa. A floating point
//! number has these bits next to each other, so a shift gives the index.

/// Bits of the mantissa in a bucket's index: 256 buckets for each doubling. A number is within 0.2 % of its bucket's
/// middle.
const FINE_BITS: u32 = 8;
const EXPONENT_MIN: i32 = -40;
const EXPONENT_MAX: i32 = 40;
const BUCKETS: usize = ((EXPONENT_MAX - EXPONENT_MIN) as usize) << FINE_BITS;
const BIAS: i32 = 1023;

/// The distribution of numbers that are not negative. One bucket has zero and all numbers that are too small, another
/// has all that are too large.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    counts: Box<[u64]>,
    zero: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), zero: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl Distribution {
    /// Adds a number to the distribution. The number must not be negative.
    #[inline(always)]
    pub fn record(&mut self, value: f64) {
        self.record_times(value, 1);
    }

    /// Adds the same number `times` times.
    #[inline(always)]
    pub fn record_times(&mut self, value: f64, times: u64) {
        match bucket_index(value) {
            Some(bucket) => self.counts[bucket] += times,
            None => self.zero += times,
        }
        self.sum += value * times as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns how many numbers were added.
    pub fn count(&self) -> u64 {
        self.zero + self.counts.iter().sum::<u64>()
    }

    /// Returns the mean of the numbers; `None` without numbers.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum / count as f64)
    }

    /// Returns the minimum of the numbers; `None` without numbers.
    pub fn min(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.min)
    }

    /// Returns the maximum of the numbers; `None` without numbers.
    pub fn max(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.max)
    }

    /// Returns the percentile: the middle of the bucket that `percent` percent of the numbers do not exceed.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let count = self.count();
        let wanted = ((percent / 100.0 * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = self.zero;
        if count == 0 {
            return None;
        }
        if below >= wanted {
            return Some(self.min.min(0.0));
        }
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        })?;
        Some(bucket_middle(found).clamp(self.min, self.max))
    }

    /// Returns the buckets that are not empty, ascending: the middle and the count of each.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let zero = (self.zero > 0).then_some((0.0, self.zero));
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        zero.into_iter().chain(filled.map(|(bucket, count)| (bucket_middle(bucket), *count))).collect()
    }

    /// Adds the numbers of another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.zero += other.zero;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Resets the distribution to empty.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.zero, self.sum, self.min, self.max) = (0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
    }
}

/// Returns the index of a number's bucket; `None` if the number is too small for a bucket of its own.
#[inline(always)]
fn bucket_index(value: f64) -> Option<usize> {
    let place = (value.to_bits() >> (52 - FINE_BITS)) as i64 - (i64::from(BIAS + EXPONENT_MIN) << FINE_BITS);
    (place >= 0 && value > 0.0).then(|| (place as usize).min(BUCKETS - 1))
}

fn bucket_middle(bucket: usize) -> f64 {
    let exponent = (bucket >> FINE_BITS) as i32 + EXPONENT_MIN;
    let within = (bucket & ((1 << FINE_BITS) - 1)) as f64 + 0.5;
    (1.0 + within / f64::from(1 << FINE_BITS)) * f64::from(exponent).exp2()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_those_of_the_numbers_within_a_bucket() {
        let mut spread = Distribution::default();
        (1..=1000).for_each(|value| spread.record(f64::from(value)));
        for (percent, wanted) in [(50.0, 500.0), (99.0, 990.0), (100.0, 1000.0), (0.1, 1.0)] {
            let found = spread.percentile(percent).unwrap();
            assert!((found / wanted - 1.0).abs() < 0.003, "{percent}: {found}");
        }
        assert_eq!((spread.min(), spread.max(), spread.mean()), (Some(1.0), Some(1000.0), Some(500.5)));
    }

    #[test]
    fn zero_and_extremes_are_counted_too() {
        let mut spread = Distribution::default();
        [0.0, 1e-300, 1e300, f64::MIN_POSITIVE].into_iter().for_each(|value| spread.record(value));
        assert_eq!(spread.count(), 4);
        assert_eq!(spread.percentile(50.0), Some(0.0));
        assert_eq!(Distribution::default().percentile(50.0), None);
    }

    proptest! {
        #[test]
        fn a_number_lies_in_its_bucket(value in 1e-9_f64..1e9) {
            let middle = bucket_middle(bucket_index(value).unwrap());
            prop_assert!((middle / value - 1.0).abs() <= 1.0 / 512.0 + 1e-12, "{} {}", value, middle);
        }
    }
}
