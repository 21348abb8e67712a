//! Inflation of a service's server times by batch: the measure of interference on a machine without hardware counters.
//!
//! The requests of each observation are counted as *beside* batch or *alone*. They are beside batch if batch had the
//! siblings for most of the time. They are alone if batch had hardly any time of the siblings and of the service's own
//! CPUs. Other observations do not count. An observation in which the service ran on no CPU with a sibling
//! ([`BatchShares`]) does not count either.
//!
//! The mean server time alone is remembered over many observations, since load changes slowly. The mean beside batch is
//! remembered only until there are enough requests to compare, since batch that disturbs has to be noticed soon.

use super::cores::CoreTopology;
use super::mask::CpuMask;
use crate::Nanos;

/// Largest share of the siblings' time for batch at which the service counts as alone.
const ALONE_MOST: f64 = 0.05;
/// Smallest share of the siblings' time for batch at which the service counts as beside batch.
const BESIDE_LEAST: f64 = 0.5;
/// Fewest requests for a mean.
const REQUESTS_MIN: u64 = 30;
/// Number of requests alone that are remembered; then older requests lose weight.
const REMEMBERED: u64 = 10_000;

/// Number of requests in a row without a result, after which the reason is reported.
const SILENT_MOST: u64 = 1_000;

/// Shares of batch on the CPUs around a service in one observation, 0 to 1. Each CPU counts by the time for which the
/// service ran there. So a short time on the sibling does not make that a CPU of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchShares {
    /// Share of batch in the time of the siblings. `None` if the service ran on no CPU with a sibling.
    pub siblings: Option<f64>,
    /// Share of batch in the time of the CPUs on which the service ran.
    pub own: f64,
}

impl BatchShares {
    /// Computes the shares around a service on a machine with these cores. The service ran on the CPUs `ran_on`, on
    /// each for `ran_ns`; `batch` is the share of batch on a CPU.
    pub fn around_service(
        cores: &CoreTopology,
        ran_on: &CpuMask,
        ran_ns: impl Fn(usize) -> Nanos,
        batch: impl Fn(usize) -> f64,
    ) -> Self {
        let mut own = WeightedMean::default();
        let mut siblings = WeightedMean::default();
        for cpu in ran_on.iter() {
            let others = cores.with_siblings(&CpuMask::from_iter([cpu])).without(&CpuMask::from_iter([cpu]));
            let weight = ran_ns(cpu) as f64;
            own.add(weight, batch(cpu));
            if !others.is_empty() {
                siblings.add(weight, others.iter().map(&batch).sum::<f64>() / others.len() as f64);
            }
        }
        Self { siblings: siblings.mean(), own: own.mean().unwrap_or_default() }
    }
}

/// Weighted mean of a value.
#[derive(Clone, Copy, Debug, Default)]
struct WeightedMean {
    weights: f64,
    sum: f64,
}

impl WeightedMean {
    fn add(&mut self, weight: f64, value: f64) {
        self.weights += weight;
        self.sum += weight * value;
    }

    fn mean(&self) -> Option<f64> {
        (self.weights > 0.0).then(|| self.sum / self.weights)
    }
}

/// Reason why a service's requests give no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inconclusive {
    /// None of the CPUs on which the service runs has a sibling.
    NoSiblings,
    /// Batch was beside all requests, so there is no baseline.
    NoBaseline,
    /// Batch had too much of the siblings' time for the service to be alone, and too little for it to be beside batch.
    Between,
}

/// Number and server times of requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerTimes {
    /// Number of requests.
    pub count: u64,
    /// Sum of the server times of the requests.
    pub sum_ns: Nanos,
}

impl ServerTimes {
    fn add(&mut self, other: ServerTimes) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    fn mean_ns(&self) -> Option<f64> {
        (self.count >= REQUESTS_MIN).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

/// Measurement of the inflation of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inflation {
    alone: ServerTimes,
    beside: ServerTimes,
    value: Option<f64>,
    /// Reason why the last requests gave no result, and the number of these requests.
    silent: Option<(Inconclusive, u64)>,
}

impl Inflation {
    /// Adds the requests of an observation, in which batch had these shares.
    pub fn record_requests(&mut self, server_times: ServerTimes, batch: BatchShares) {
        let silence = match batch.siblings {
            Some(share) if share.max(batch.own) <= ALONE_MOST => {
                self.record_alone(server_times);
                None
            }
            Some(share) if share >= BESIDE_LEAST => {
                self.record_beside_batch(server_times);
                self.alone.mean_ns().is_none().then_some(Inconclusive::NoBaseline)
            }
            Some(_) => Some(Inconclusive::Between),
            None => Some(Inconclusive::NoSiblings),
        };
        let before = self.silent.map_or(0, |(_, count)| count);
        self.silent = silence.map(|silence| (silence, before + server_times.count));
    }

    /// Returns the reason if many requests have given no result.
    pub fn inconclusive_reason(&self) -> Option<Inconclusive> {
        self.silent.filter(|(_, count)| *count >= SILENT_MOST).map(|(silence, _)| silence)
    }

    fn record_alone(&mut self, server_times: ServerTimes) {
        self.alone.add(server_times);
        if self.alone.count > REMEMBERED {
            self.alone = ServerTimes { count: self.alone.count / 2, sum_ns: self.alone.sum_ns / 2 };
        }
        self.reset();
    }

    /// Resets the measurement: the service did not run, or ran alone, so nothing disturbs it now.
    pub fn reset(&mut self) {
        (self.beside, self.value) = (ServerTimes::default(), None);
    }

    fn record_beside_batch(&mut self, server_times: ServerTimes) {
        self.beside.add(server_times);
        let both = self.beside.mean_ns().zip(self.alone.mean_ns());
        if let Some((beside_ns, alone_ns)) = both {
            self.value = Some((beside_ns / alone_ns - 1.0).max(0.0));
            self.beside = ServerTimes::default();
        }
    }

    /// Returns how much longer a request takes than alone: 0.5 is 50 % longer. `None` before the first measurement, and
    /// while batch is away.
    pub fn value(&self) -> Option<f64> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns shares of batch with `share` of the siblings' time and none of the service's own CPUs.
    fn shares_on_siblings(share: f64) -> BatchShares {
        BatchShares { siblings: Some(share), own: 0.0 }
    }

    const ALONE: ServerTimes = ServerTimes { count: 40, sum_ns: 40_000 };

    #[test]
    fn requests_half_as_long_again_are_inflated_by_half() {
        let mut inflation = Inflation::default();
        inflation.record_requests(ALONE, shares_on_siblings(0.0));
        inflation.record_requests(ServerTimes { count: 30, sum_ns: 45_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), Some(0.5));
        inflation.record_requests(ServerTimes { count: 60, sum_ns: 60_000 }, shares_on_siblings(0.9));
        assert_eq!(inflation.value(), Some(0.0));
    }

    #[test]
    fn inflation_is_unknown_until_enough_requests() {
        let mut inflation = Inflation::default();
        inflation.record_requests(ALONE, shares_on_siblings(0.0));
        inflation.record_requests(ServerTimes { count: 20, sum_ns: 40_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), None);
        inflation.record_requests(ServerTimes { count: 10, sum_ns: 20_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), Some(1.0));
    }

    #[test]
    fn inflation_needs_a_baseline_without_batch() {
        let mut inflation = Inflation::default();
        inflation.record_requests(ServerTimes { count: 40, sum_ns: 80_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), None, "nothing to compare with");
        inflation.record_requests(ALONE, shares_on_siblings(0.01));
        inflation.record_requests(ServerTimes { count: 40, sum_ns: 80_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), Some(1.0));
        inflation.record_requests(ServerTimes::default(), shares_on_siblings(0.0));
        assert_eq!(inflation.value(), None);
    }

    #[test]
    fn partial_overlap_changes_neither_mean() {
        let mut inflation = Inflation::default();
        inflation.record_requests(ALONE, shares_on_siblings(0.0));
        let before = inflation;
        inflation.record_requests(ServerTimes { count: 100, sum_ns: 1_000_000 }, shares_on_siblings(0.3));
        assert_eq!((inflation.alone, inflation.beside, inflation.value), (before.alone, before.beside, before.value));
    }

    /// Returns the shares on a machine where CPUs 0 and 1 are one core, and CPU 2 is another.
    fn shares(ran_ns: [Nanos; 3], batch: [f64; 3]) -> BatchShares {
        let cores = CoreTopology::from_cores([[0, 1].into_iter().collect(), [2].into_iter().collect()]);
        let ran_on = (0..3).filter(|cpu| ran_ns[*cpu] > 0).collect();
        BatchShares::around_service(&cores, &ran_on, |cpu| ran_ns[cpu], |cpu| batch[cpu])
    }

    #[test]
    fn sibling_counts_though_the_service_ran_there_too() {
        assert_eq!(shares([10, 0, 0], [0.0, 0.9, 0.0]), shares_on_siblings(0.9));
        assert_eq!(shares([10, 10, 0], [0.5, 0.75, 0.0]), BatchShares { siblings: Some(0.625), own: 0.625 });
        assert_eq!(shares([3, 1, 0], [0.0, 1.0, 0.0]), BatchShares { siblings: Some(0.75), own: 0.25 });
        assert_eq!(shares([0, 0, 10], [0.0, 0.9, 0.4]), BatchShares { siblings: None, own: 0.4 });
        assert_eq!(shares([0, 0, 0], [0.9, 0.9, 0.9]), BatchShares::default());
    }

    #[test]
    fn a_service_on_both_lanes_is_not_alone_while_batch_is_there() {
        let mut inflation = Inflation::default();
        inflation.record_requests(ALONE, shares([10, 10, 0], [0.9, 0.9, 0.0]));
        inflation.record_requests(ServerTimes { count: 40, sum_ns: 80_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), None, "nothing was alone");
        inflation.record_requests(ALONE, BatchShares { siblings: Some(0.0), own: 0.9 });
        inflation.record_requests(ALONE, BatchShares { siblings: None, own: 0.0 });
        inflation.record_requests(ServerTimes { count: 40, sum_ns: 80_000 }, shares_on_siblings(1.0));
        assert_eq!(inflation.value(), None, "batch on its own CPUs, and a look that says nothing, are no baseline");
    }

    #[test]
    fn reason_of_a_missing_value_is_known_after_many_requests() {
        let some = ServerTimes { count: SILENT_MOST / 2, sum_ns: 1_000_000 };
        let after = |batch: [BatchShares; 2]| {
            let mut inflation = Inflation::default();
            batch.iter().for_each(|batch| inflation.record_requests(some, *batch));
            inflation.inconclusive_reason()
        };
        let none = BatchShares { siblings: None, own: 0.0 };
        assert_eq!(after([shares_on_siblings(1.0), shares_on_siblings(1.0)]), Some(Inconclusive::NoBaseline));
        assert_eq!(after([shares_on_siblings(1.0), shares_on_siblings(0.3)]), Some(Inconclusive::Between));
        assert_eq!(after([none, none]), Some(Inconclusive::NoSiblings));
        assert_eq!(after([shares_on_siblings(0.3), shares_on_siblings(0.0)]), None, "it was alone");
        assert_eq!(after([shares_on_siblings(0.0), shares_on_siblings(1.0)]), None, "there is a baseline");
    }
}
