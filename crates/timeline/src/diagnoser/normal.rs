//! Normal times of requests by cause, and the part of a slow request's time above them.

use hdrhistogram::Histogram;

use crate::cause::Cause;

/// A request's time for each cause, in nanoseconds.
pub type Times = [u64; Cause::ALL.len()];

/// No time for any cause.
pub const NO_TIMES: Times = [0; Cause::ALL.len()];

/// Normal time of each cause: the median of requests that were not slow.
///
/// Work on a CPU counts as one cause, with batch beside it or not: the extra time beside batch is the cost of batch.
#[derive(Debug, Clone)]
pub struct NormalTimes {
    times: Times,
}

/// Returns the index of a cause in [`Times`].
pub fn cause_index(cause: Cause) -> usize {
    cause as usize
}

impl NormalTimes {
    /// Returns the part of a request's times that is above the normal, by cause.
    pub fn excess(&self, times: &Times) -> Times {
        let mut above = NO_TIMES;
        for (index, time_ns) in times.iter().enumerate() {
            above[index] = time_ns.saturating_sub(self.times[index]);
        }
        let (alone, beside) = (cause_index(Cause::OnCpu), cause_index(Cause::Sibling));
        let longer_ns = (times[alone] + times[beside]).saturating_sub(self.times[alone]);
        above[beside] = longer_ns.min(times[beside]);
        above[alone] = longer_ns - above[beside];
        above
    }
}

/// Statistics from which the normal times are computed.
#[derive(Debug, Clone)]
pub struct NormalStatistics {
    causes: Vec<Histogram<u64>>,
}

impl Default for NormalStatistics {
    fn default() -> NormalStatistics {
        NormalStatistics { causes: vec![histogram(); Cause::ALL.len()] }
    }
}

impl NormalStatistics {
    /// Adds the times of a request that was not slow.
    pub fn add(&mut self, times: &Times) {
        for (index, histogram) in self.causes.iter_mut().enumerate() {
            let beside_ns = if index == cause_index(Cause::OnCpu) { times[cause_index(Cause::Sibling)] } else { 0 };
            *histogram += times[index] + beside_ns;
        }
    }

    /// Returns the normal times of the requests that were added so far.
    pub fn medians(&self) -> NormalTimes {
        let mut normal = NormalTimes { times: NO_TIMES };
        for (time_ns, histogram) in normal.times.iter_mut().zip(&self.causes) {
            *time_ns = histogram.value_at_quantile(0.5);
        }
        normal
    }
}

/// Returns the cause that explains most of the time above the normal; `None` if no cause explains more than half of it.
pub fn main_cause_of_excess(excess: &Times) -> Option<Cause> {
    let tail_ns: u64 = excess.iter().sum();
    Cause::ALL.into_iter().find(|cause| excess[cause_index(*cause)] > tail_ns / 2)
}

/// Creates a histogram of times with 1 % precision, whose range grows with the longest time.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(2).expect("two digits are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_of_causes(cause_times: &[(Cause, u64)]) -> Times {
        let mut times = NO_TIMES;
        cause_times.iter().for_each(|(cause, time_ns)| times[cause_index(*cause)] = *time_ns);
        times
    }

    #[test]
    fn index_of_a_cause_is_its_place_in_the_list() {
        assert!(Cause::ALL.into_iter().enumerate().all(|(index, cause)| cause_index(cause) == index));
    }

    #[test]
    fn cost_of_batch_is_the_excess_of_work_beside_it() {
        let mut normals = NormalStatistics::default();
        (0..9).for_each(|_| normals.add(&times_of_causes(&[(Cause::OnCpu, 1_000)])));
        let mut beside = NormalStatistics::default();
        beside.add(&times_of_causes(&[(Cause::OnCpu, 600), (Cause::Sibling, 400)]));
        let on_cpu_ns = |normals: &NormalStatistics| normals.medians().times[cause_index(Cause::OnCpu)];
        assert_eq!(on_cpu_ns(&beside), on_cpu_ns(&normals), "work beside batch is work");
        let above = normals.medians().excess(&times_of_causes(&[(Cause::OnCpu, 200), (Cause::Sibling, 1_500)]));
        let most_ns = normals.medians().times[cause_index(Cause::OnCpu)];
        assert_eq!((above[cause_index(Cause::OnCpu)], above[cause_index(Cause::Sibling)]), (0, 1_700 - most_ns));
        let above = normals.medians().excess(&times_of_causes(&[(Cause::OnCpu, 9_000), (Cause::Sibling, 100)]));
        assert_eq!((above[cause_index(Cause::OnCpu)], above[cause_index(Cause::Sibling)]), (9_000 - most_ns, 100));
    }

    #[test]
    fn main_cause_explains_more_than_half_of_the_excess() {
        assert_eq!(main_cause_of_excess(&times_of_causes(&[(Cause::Disk, 51), (Cause::Lock, 49)])), Some(Cause::Disk));
        assert_eq!(main_cause_of_excess(&times_of_causes(&[(Cause::Disk, 50), (Cause::Lock, 50)])), None);
        assert_eq!(main_cause_of_excess(&NO_TIMES), None);
    }
}
