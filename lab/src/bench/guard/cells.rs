//! What was measured: figures of each run, medians over the runs, and ratios within rounds.

use super::plan::Group;
use super::way::Way;
use crate::experiment::load::above_percent;
use sidelane_host::median::median;
use sidelane_report::Percentile;
use sidelane_requests::at_socket::at_us;

/// What one store's clients saw in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) requests: u64,
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
    pub(super) curve: Vec<Percentile>,
    /// Requests that are not among these, since they waited for the host; where that is known.
    pub(super) left_out_percent: Option<f64>,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// By store, in the order of the group.
    pub(super) stores: Vec<Latency>,
    /// Both lanes' time in which services or batch ran; 2 at most.
    pub(super) utilisation: Option<f64>,
    /// Batch's work, over what one lane would have done in that time without anybody beside it.
    pub(super) batch_work: Option<f64>,
    pub(super) agent_cpu_percent: Option<f64>,
    pub(super) agent_memory_mib: Option<f64>,
    /// From what the agent told interference.
    pub(super) metric: Option<String>,
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) round: u64,
    pub(super) way: Way,
    pub(super) figures: Figures,
}

/// All runs of a group.
pub(super) struct Cells {
    pub(super) group: Group,
    pub(super) runs: Vec<Run>,
}

impl Cells {
    pub(super) fn of(group: &Group) -> Self {
        Self { group: group.clone(), runs: Vec::new() }
    }

    pub(super) fn at(&self, way: Way) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.way == way)
    }

    /// The median of a figure over the rounds.
    pub(super) fn median(&self, way: Way, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.at(way).filter_map(|run| figure(&run.figures)))
    }

    /// A figure of each round, from the run of `way` and that of `other` in the same round.
    pub(super) fn pairs(&self, way: Way, other: Way, figure: impl Fn(&Figures, &Figures) -> Option<f64>) -> Vec<f64> {
        let pair = |run: &Run| {
            let other = self.at(other).find(|other| other.round == run.round)?;
            figure(&run.figures, &other.figures).filter(|value| value.is_finite())
        };
        self.at(way).filter_map(pair).collect()
    }

    /// A store's p99 over that of the same round under `other`.
    pub(super) fn p99_over(&self, store: usize, way: Way, other: Way) -> Vec<f64> {
        self.pairs(way, other, |one, other| Some(one.stores.get(store)?.p99_us / other.stores.get(store)?.p99_us))
    }

    /// The share of requests beyond the SLO, which is the p90 alone of the same round (§6.1), in percent.
    pub(super) fn violations_percent(&self, store: usize, way: Way) -> Vec<f64> {
        self.pairs(way, Way::Alone, |one, alone| {
            let slo_us = at_us(&alone.stores.get(store)?.curve, SLO_PERCENTILE)?;
            above_percent(&one.stores.get(store)?.curve, slo_us)
        })
    }
}

/// The paper's SLO is what 90 % of the requests keep that a service gets alone.
const SLO_PERCENTILE: f64 = 90.0;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::store::{Mix, Store};

    fn curve(points: &[(f64, f64)]) -> Vec<Percentile> {
        points.iter().map(|(percentile, us)| Percentile { percentile: *percentile, us: *us }).collect()
    }

    /// A run of one store with this p99; nine in ten of its requests take at most half of that.
    pub(in crate::bench::guard) fn run(round: u64, way: Way, p99_us: f64, batch_work: f64) -> Run {
        let curve = curve(&[(0.0, 1.0), (50.0, p99_us / 4.0), (90.0, p99_us / 2.0), (99.0, p99_us)]);
        let store = Latency { requests: 1000, mean_us: p99_us / 4.0, p99_us, curve, left_out_percent: None };
        let batch_work = way.has_batch().then_some(batch_work);
        Run { round, way, figures: Figures { stores: vec![store], batch_work, ..Figures::default() } }
    }

    pub(in crate::bench::guard) fn cells(runs: Vec<Run>) -> Cells {
        Cells { group: Group { stores: vec![Store::Redis], mix: Mix { name: "a", records: 10 } }, runs }
    }

    #[test]
    fn pairs_are_of_the_same_round() {
        let cells = cells(vec![
            run(0, Way::Alone, 100.0, 0.0),
            run(1, Way::Alone, 200.0, 0.0),
            run(1, Way::Holmes, 220.0, 0.5),
            run(0, Way::Holmes, 120.0, 0.5),
            run(2, Way::Holmes, 999.0, 0.5),
        ]);
        assert_eq!(cells.p99_over(0, Way::Holmes, Way::Alone), [1.1, 1.2]);
        assert_eq!(cells.p99_over(1, Way::Holmes, Way::Alone), [0.0; 0], "there is no second store");
    }

    #[test]
    fn violations_are_counted_against_nine_in_ten_alone() {
        let cells = cells(vec![run(0, Way::Alone, 100.0, 0.0), run(0, Way::Unmanaged, 200.0, 0.5)]);
        assert_eq!(cells.violations_percent(0, Way::Alone), [10.0]);
        assert_eq!(cells.violations_percent(0, Way::Unmanaged), [50.0]);
    }
}
