//! The results of a sweep's runs: medians over rounds, and ratios within rounds.

use sidelane_policy::borrow::contention_cost::ContentionCostEstimate;
use sidelane_stats::ranks::median;

/// Figures of one run of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) requests: f64,
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
    /// p99 that the client measured; the other percentiles were measured at the service's sockets.
    pub(super) client_p99_us: Option<f64>,
    pub(super) lc_utilisation: f64,
    /// CPU time of batch divided by the run's length. It and the next fields are `None` if batch did not run.
    pub(super) batch_utilisation: Option<f64>,
    pub(super) batch_work_ratio: Option<f64>,
    pub(super) overlap_percent: Option<f64>,
    pub(super) lent_overlap_percent: Option<f64>,
    /// The contention cost estimate of the session at its end.
    pub(super) contention_cost: Option<ContentionCostEstimate>,
}

impl Figures {
    /// Returns the utilisation of both lanes; the maximum is 2, as in the paper's Figs. 2 and 11.
    pub(super) fn utilisation(&self) -> f64 {
        self.lc_utilisation + self.batch_utilisation.unwrap_or(0.0)
    }
}

/// One run of the sweep, with its parameters.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) round: u64,
    pub(super) load: u8,
    /// Name of the batch kernel; `None` for the service alone, which is the baseline of all kernels.
    pub(super) batch: Option<String>,
    pub(super) setting: &'static str,
    pub(super) figures: Figures,
}

/// Parameters of a cell of the sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleKey<'a> {
    pub(super) load: u8,
    pub(super) batch: &'a str,
    pub(super) setting: &'a str,
}

/// All runs of the sweep.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(pub(super) Vec<Run>);

impl Samples {
    /// Returns the runs of one cell.
    pub(super) fn at<'a>(&'a self, at: SampleKey<'a>) -> impl Iterator<Item = &'a Run> {
        let fits = move |run: &&Run| {
            run.load == at.load
                && run.setting == at.setting
                && run.batch.as_deref().is_none_or(|batch| batch == at.batch)
        };
        self.0.iter().filter(fits)
    }

    /// Returns the median of a figure over the rounds of a cell.
    pub(super) fn median(&self, at: SampleKey<'_>, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.at(at).filter_map(|run| figure(&run.figures)))
    }

    /// The contention cost that the last session of a cell had learned; it starts from that of the sessions
    /// before.
    pub(super) fn contention_cost(&self, at: SampleKey<'_>) -> Option<ContentionCostEstimate> {
        self.at(at).last()?.figures.contention_cost
    }

    /// The contention cost that the last session with a batch kernel had learned, at any load.
    pub(super) fn last_contention_cost(&self, batch: &str, setting: &str) -> Option<ContentionCostEstimate> {
        let fits = |run: &&Run| run.setting == setting && run.batch.as_deref() == Some(batch);
        self.0.iter().rfind(fits)?.figures.contention_cost
    }

    /// Returns a figure divided by the same figure in the same round under the setting `other`, for each round.
    pub(super) fn ratios(&self, at: SampleKey<'_>, other: &str, figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
        let pair = |run: &Run| {
            let mut others = self.at(SampleKey { setting: other, ..at });
            let other = others.find(|other| other.round == run.round)?;
            Some(figure(&run.figures)? / figure(&other.figures)?)
        };
        self.at(at).filter_map(pair).filter(|ratio| ratio.is_finite()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a run with this p99 and batch utilisation.
    pub(in crate::bench::lanes) fn run(
        round: u64,
        load: u8,
        batch: Option<&str>,
        setting: &'static str,
        p99_us: f64,
        batch_utilisation: f64,
    ) -> Run {
        let batch_utilisation = batch.map(|_| batch_utilisation);
        let figures = Figures { p99_us, lc_utilisation: 0.5, batch_utilisation, ..Figures::default() };
        Run { round, load, batch: batch.map(str::to_owned), setting, figures }
    }

    #[test]
    fn ratios_pair_runs_of_one_round_with_the_service_alone() {
        let samples = Samples(vec![
            run(0, 50, None, "alone", 10.0, 0.0),
            run(1, 50, None, "alone", 100.0, 0.0),
            run(1, 50, Some("loop"), "borrow_idle", 110.0, 0.4),
            run(0, 50, Some("loop"), "borrow_idle", 12.0, 0.4),
            run(0, 50, Some("flush"), "borrow_idle", 15.0, 0.4),
            run(0, 20, Some("loop"), "borrow_idle", 99.0, 0.7),
        ]);
        let at = |batch| SampleKey { load: 50, batch, setting: "borrow_idle" };
        let p99 = |figures: &Figures| Some(figures.p99_us);
        assert_eq!(samples.ratios(at("loop"), "alone", p99), [1.1, 1.2]);
        assert_eq!(samples.ratios(at("flush"), "alone", p99), [1.5]);
        assert_eq!(samples.median(at("loop"), p99), Some(61.0));
        assert_eq!(samples.median(SampleKey { load: 90, ..at("loop") }, p99), None);
    }

    #[test]
    fn both_lanes_add_up() {
        assert_eq!(run(0, 50, Some("loop"), "borrow_idle", 1.0, 0.4).figures.utilisation(), 0.9);
        assert_eq!(run(0, 50, None, "alone", 1.0, 0.4).figures.utilisation(), 0.5);
    }
}
