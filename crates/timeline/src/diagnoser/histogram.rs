//! Counts of times, in buckets that are a sixteenth of an octave wide.

/// Buckets an octave.
const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = 64 * STEPS as usize;

/// The bucket of a time, of `2^step_bits` an octave.
pub fn bucket(ns: u64, step_bits: u32) -> usize {
    let steps = 1 << step_bits;
    if ns < steps {
        return ns as usize;
    }
    let octave = ns.ilog2() - step_bits;
    ((u64::from(octave + 1) << step_bits) + ((ns >> octave) - steps)) as usize
}

/// The first time of a bucket.
pub fn first_of(bucket: usize, step_bits: u32) -> u64 {
    let (bucket, steps) = (bucket as u64, 1 << step_bits);
    if bucket < steps {
        return bucket;
    }
    let octave = (bucket >> step_bits) - 1;
    u64::try_from(u128::from(steps + bucket % steps) << octave).unwrap_or(u64::MAX)
}

/// How often which time was seen.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// Adds a time.
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns, STEP_BITS)] += 1;
        self.total += 1;
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A time that this share of all is at most; the longest of its bucket. 0 if there are none.
    pub fn at(&self, share: f64) -> u64 {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return if bucket == 0 { 0 } else { first_of(bucket + 1, STEP_BITS) - 1 };
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn half_of_them_are_at_most_the_median() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.at(0.5), 0);
        [0, 0, 0, 1_000].into_iter().for_each(|ns| histogram.add(ns));
        assert_eq!(histogram.at(0.5), 0);
        assert!((1_000..=1_063).contains(&histogram.at(1.0)));
    }

    proptest! {
        #[test]
        fn each_time_is_in_its_bucket(ns: u64, bits in 0_u32..6) {
            let bucket = bucket(ns, bits);
            prop_assert!(first_of(bucket, bits) <= ns);
            prop_assert!(ns < first_of(bucket + 1, bits) || first_of(bucket + 1, bits) == u64::MAX);
        }
    }
}
