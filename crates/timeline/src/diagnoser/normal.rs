//! Normal times, and the part of a slow request's time above them.

use crate::cause::Cause;

/// A time for each cause.
pub type Times = [u64; Cause::ALL.len()];

/// No time for any.
pub const NO_TIMES: Times = [0; Cause::ALL.len()];

/// Normal time of each cause: medians of requests that were not slow.
///
/// Work on a CPU counts as one cause, with batch beside it or not: the extra time beside batch is the cost of batch.
#[derive(Debug, Clone)]
pub struct Normal {
    times: Times,
}

/// Returns the cause's index in [`Times`].
pub fn place(cause: Cause) -> usize {
    cause as usize
}

impl Normal {
    /// Returns the part of `times` above the normal, by cause.
    pub fn above(&self, times: &Times) -> Times {
        let mut above = NO_TIMES;
        for (index, time_ns) in times.iter().enumerate() {
            above[index] = time_ns.saturating_sub(self.times[index]);
        }
        let (alone, beside) = (place(Cause::OnCpu), place(Cause::Sibling));
        let longer_ns = (times[alone] + times[beside]).saturating_sub(self.times[alone]);
        above[beside] = longer_ns.min(times[beside]);
        above[alone] = longer_ns - above[beside];
        above
    }
}

/// A learner of normal times.
#[derive(Debug, Clone)]
pub struct Normals {
    causes: Vec<Histogram>,
}

impl Default for Normals {
    fn default() -> Normals {
        Normals { causes: vec![Histogram::default(); Cause::ALL.len()] }
    }
}

impl Normals {
    /// Adds a request that was not slow.
    pub fn add(&mut self, times: &Times) {
        for (index, histogram) in self.causes.iter_mut().enumerate() {
            let beside_ns = if index == place(Cause::OnCpu) { times[place(Cause::Sibling)] } else { 0 };
            histogram.add(times[index] + beside_ns);
        }
    }

    /// Returns the normal times so far.
    pub fn normal(&self) -> Normal {
        let mut normal = Normal { times: NO_TIMES };
        for (time_ns, histogram) in normal.times.iter_mut().zip(&self.causes) {
            *time_ns = histogram.at(0.5);
        }
        normal
    }
}

/// Returns the cause that explains most of the time above the normal; `None` if no cause explains more than half of it.
pub fn most_of(above: &Times) -> Option<Cause> {
    let tail_ns: u64 = above.iter().sum();
    Cause::ALL.into_iter().find(|cause| above[place(*cause)] > tail_ns / 2)
}

/// Buckets an octave.
const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = 64 * STEPS as usize;

/// Returns the bucket of a time, with `2^step_bits` buckets an octave.
pub fn bucket(ns: u64, step_bits: u32) -> usize {
    let steps = 1 << step_bits;
    if ns < steps {
        return ns as usize;
    }
    let octave = ns.ilog2() - step_bits;
    ((u64::from(octave + 1) << step_bits) + ((ns >> octave) - steps)) as usize
}

/// Returns the first time of a bucket.
pub fn first_of(bucket: usize, step_bits: u32) -> u64 {
    let (bucket, steps) = (bucket as u64, 1 << step_bits);
    if bucket < steps {
        return bucket;
    }
    let octave = (bucket >> step_bits) - 1;
    u64::try_from(u128::from(steps + bucket % steps) << octave).unwrap_or(u64::MAX)
}

/// Counts of times.
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

    /// Returns the number of times.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns a time that this share of all does not exceed; the longest of its bucket. 0 if there are none.
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

    fn times(of: &[(Cause, u64)]) -> Times {
        let mut times = NO_TIMES;
        of.iter().for_each(|(cause, time_ns)| times[place(*cause)] = *time_ns);
        times
    }

    #[test]
    fn places_are_those_of_the_list() {
        assert!(Cause::ALL.into_iter().enumerate().all(|(index, cause)| place(cause) == index));
    }

    #[test]
    fn batch_cost_what_work_beside_it_took_longer() {
        let mut normals = Normals::default();
        (0..9).for_each(|_| normals.add(&times(&[(Cause::OnCpu, 1_000)])));
        let above = normals.normal().above(&times(&[(Cause::OnCpu, 200), (Cause::Sibling, 1_500)]));
        let most_ns = normals.normal().times[place(Cause::OnCpu)];
        assert_eq!((above[place(Cause::OnCpu)], above[place(Cause::Sibling)]), (0, 1_700 - most_ns));
        let above = normals.normal().above(&times(&[(Cause::OnCpu, 9_000), (Cause::Sibling, 100)]));
        assert_eq!((above[place(Cause::OnCpu)], above[place(Cause::Sibling)]), (9_000 - most_ns, 100));
    }

    #[test]
    fn a_cause_is_claimed_if_it_explains_most() {
        assert_eq!(most_of(&times(&[(Cause::Disk, 51), (Cause::Lock, 49)])), Some(Cause::Disk));
        assert_eq!(most_of(&times(&[(Cause::Disk, 50), (Cause::Lock, 50)])), None);
        assert_eq!(most_of(&NO_TIMES), None);
    }
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
