//! The simulated runs of a figure, and the numbers that statements take from them.

use std::ops::RangeInclusive;

use sidelane_sim::time::Nanos;
use sidelane_sim::{Figures, Outcome};

/// Scenario key of the load, the horizontal axis of the figures.
pub(super) const RATE: &str = "service.arrivals.rate_per_s";
/// Scenario key of the batch job, in scenarios that sweep it.
const BATCH: &str = "run_batch";

/// Function that takes a number from the figures of one run.
pub(super) type FigureSelector = fn(&Figures) -> f64;

pub(super) fn p99_ms(run: &Figures) -> f64 {
    run.p99_ns as f64 / 1e6
}

pub(super) fn mean_ms(run: &Figures) -> f64 {
    run.mean_ns / 1e6
}

pub(super) fn utilisation(run: &Figures) -> f64 {
    run.utilisation()
}

pub(super) fn lc_utilisation(run: &Figures) -> f64 {
    run.lc_utilisation
}

pub(super) fn batch_utilisation(run: &Figures) -> f64 {
    run.batch_utilisation
}

/// Results of all simulated runs of a figure.
#[derive(Default)]
pub(super) struct Evidence {
    pub(super) outcomes: Vec<Outcome>,
    /// Length of each idle period of the request lane, for figures about idle periods.
    pub(super) idle_ns: Vec<Nanos>,
}

impl Evidence {
    pub(super) fn all(&self) -> RunSet<'_> {
        RunSet(self.outcomes.iter().collect())
    }

    /// Returns the runs of one setting.
    pub(super) fn runs_of_setting(&self, setting: &str) -> RunSet<'_> {
        self.all().filter_runs(|outcome| outcome.setting == setting)
    }

    /// Returns `number` of each of `runs`, divided by `number` of the run under `baseline` at the same load and batch.
    pub(super) fn ratios(&self, runs: &RunSet, baseline: &str, number: FigureSelector) -> Option<Vec<f64>> {
        Some(self.pair_with_baseline(runs, baseline, number)?.into_iter().map(|(own, other)| own / other).collect())
    }

    /// Returns `number` of each of `runs`, less `number` of the run under `baseline` at the same load and batch.
    pub(super) fn differences(&self, runs: &RunSet, baseline: &str, number: FigureSelector) -> Option<Vec<f64>> {
        Some(self.pair_with_baseline(runs, baseline, number)?.into_iter().map(|(own, other)| own - other).collect())
    }

    /// Returns `number` of each of `runs` and of its partner, the run under `baseline` at the same load and batch.
    /// `None` without runs, or if a run has no partner.
    fn pair_with_baseline(&self, runs: &RunSet, baseline: &str, number: FigureSelector) -> Option<Vec<(f64, f64)>> {
        let pair = |own: &&Outcome| {
            let other = self.outcomes.iter().find(|outcome| outcome.setting == baseline && outcome.at == own.at)?;
            Some((number(&own.figures), number(&other.figures)))
        };
        let pairs: Vec<(f64, f64)> = runs.0.iter().map(pair).collect::<Option<_>>()?;
        (!pairs.is_empty()).then_some(pairs)
    }
}

/// Selection of the runs of a figure.
pub(super) struct RunSet<'e>(Vec<&'e Outcome>);

impl<'e> RunSet<'e> {
    fn filter_runs(&self, is_wanted: impl Fn(&Outcome) -> bool) -> Self {
        Self(self.0.iter().copied().filter(|outcome| is_wanted(outcome)).collect())
    }

    /// Returns the runs beside the batch job `batch`.
    pub(super) fn beside_batch(&self, batch: &str) -> Self {
        self.filter_runs(|outcome| outcome.text(BATCH) == Some(batch))
    }

    /// Returns the runs in which the scenario key `path` has this value.
    pub(super) fn with_parameter(&self, path: &str, value: f64) -> Self {
        self.filter_runs(|outcome| outcome.number(path) == Some(value))
    }

    /// Returns the runs at these loads, in requests per second.
    pub(super) fn at_loads(&self, loads: RangeInclusive<f64>) -> Self {
        self.filter_runs(|outcome| outcome.number(RATE).is_some_and(|rate| loads.contains(&rate)))
    }

    /// Returns the runs whose `number` is at most `limit`.
    pub(super) fn with_number_at_most(&self, number: FigureSelector, limit: f64) -> Self {
        self.filter_runs(|outcome| number(&outcome.figures) <= limit)
    }

    /// Returns the runs at the highest load.
    pub(super) fn at_highest_load(&self) -> Self {
        let busiest = largest(self.0.iter().filter_map(|outcome| outcome.number(RATE)));
        self.filter_runs(|outcome| outcome.number(RATE) == busiest)
    }

    /// Returns the batch jobs of the runs.
    pub(super) fn batches(&self) -> Vec<&'e str> {
        let mut batches: Vec<&str> = self.0.iter().filter_map(|outcome| outcome.text(BATCH)).collect();
        batches.sort_unstable();
        batches.dedup();
        batches
    }

    pub(super) fn numbers(&self, number: FigureSelector) -> impl Iterator<Item = f64> {
        self.0.iter().map(move |outcome| number(&outcome.figures))
    }

    /// Returns the number of the only run; `None` unless there is exactly one run.
    pub(super) fn only_number(&self, number: FigureSelector) -> Option<f64> {
        match self.0[..] {
            [one] => Some(number(&one.figures)),
            _ => None,
        }
    }

    /// Returns the number as a function of the load.
    pub(super) fn points_by_load(&self, number: FigureSelector) -> Vec<(f64, f64)> {
        let point = |outcome: &&Outcome| Some((outcome.number(RATE)?, number(&outcome.figures)));
        let mut line: Vec<(f64, f64)> = self.0.iter().filter_map(point).collect();
        line.sort_by(|one, other| one.0.total_cmp(&other.0));
        line
    }

    /// Returns the highest load at which `number`, which grows with the load, is at most `level`. It interpolates
    /// between the loads that ran.
    pub(super) fn highest_load_within(&self, number: FigureSelector, level: f64) -> Option<f64> {
        let line = self.points_by_load(number);
        let crosses = |pair: &&[(f64, f64)]| pair[0].1 <= level && level < pair[1].1;
        let pair = line.windows(2).find(crosses)?;
        let share = (level - pair[0].1) / (pair[1].1 - pair[0].1);
        Some(pair[0].0 + share * (pair[1].0 - pair[0].0))
    }
}

/// Returns the smallest number; `None` without numbers.
pub(super) fn smallest(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().reduce(f64::min)
}

/// Returns the largest number; `None` without numbers.
pub(super) fn largest(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().reduce(f64::max)
}

#[cfg(test)]
pub(super) mod tests {
    use sidelane_sim::scenario::PointValue;

    use super::*;

    /// Returns a run at `rate_per_s` requests per second, with a p99 and the utilisation of both lanes.
    pub(in crate::bench::papers) fn run(
        setting: &str,
        batch: &str,
        rate_per_s: f64,
        p99_ms: f64,
        lanes: (f64, f64),
    ) -> Outcome {
        let at = vec![
            (RATE.to_owned(), PointValue::Number(rate_per_s)),
            (BATCH.to_owned(), PointValue::Text(batch.to_owned())),
        ];
        let figures = Figures {
            p99_ns: (p99_ms * 1e6) as Nanos,
            mean_ns: p99_ms * 1e5,
            lc_utilisation: lanes.0,
            batch_utilisation: lanes.1,
            ..Figures::default()
        };
        Outcome { at, setting: setting.to_owned(), figures, fleet: None }
    }

    pub(in crate::bench::papers) fn evidence(outcomes: Vec<Outcome>) -> Evidence {
        Evidence { outcomes, idle_ns: Vec::new() }
    }

    #[test]
    fn loads_are_interpolated_but_not_extrapolated() {
        let runs = [20.0, 60.0, 40.0].map(|rate| run("alone", "loop", rate, rate, (0.1, 0.0)));
        let evidence = evidence(runs.to_vec());
        let alone = evidence.runs_of_setting("alone");
        assert_eq!(alone.highest_load_within(p99_ms, 50.0), Some(50.0));
        assert_eq!(alone.highest_load_within(p99_ms, 40.0), Some(40.0));
        assert_eq!((alone.highest_load_within(p99_ms, 10.0), alone.highest_load_within(p99_ms, 60.0)), (None, None));
    }

    #[test]
    fn every_run_needs_a_baseline_at_its_load_and_batch() {
        let mut runs = vec![
            run("alone", "loop", 20.0, 10.0, (0.1, 0.0)),
            run("alone", "flush", 20.0, 20.0, (0.1, 0.0)),
            run("borrow-idle", "flush", 20.0, 30.0, (0.1, 0.9)),
        ];
        let seen = evidence(runs.clone());
        assert_eq!(seen.ratios(&seen.runs_of_setting("borrow-idle"), "alone", p99_ms), Some(vec![1.5]));
        assert_eq!(seen.differences(&seen.runs_of_setting("borrow-idle"), "alone", p99_ms), Some(vec![10.0]));
        assert_eq!(seen.all().batches(), ["flush", "loop"]);
        runs.remove(1);
        let seen = evidence(runs);
        assert_eq!(seen.ratios(&seen.runs_of_setting("borrow-idle"), "alone", p99_ms), None);
        assert_eq!(seen.ratios(&seen.runs_of_setting("freezer"), "alone", p99_ms), None);
    }
}
