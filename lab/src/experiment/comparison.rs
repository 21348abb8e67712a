//! The common part of experiments that compare variants: the variants take turns in rounds, until each claim is
//! decided.
//!
//! Problem. Machines are slow for a while. A variant that is measured at another time than the others meets a machine
//! of another speed.
//!
//! Approach. Each round takes a sample of each variant, with the same requests. Figures are compared within a round;
//! rows show medians over the rounds. An [`Experiment`] is data: its variants, the turns of a round, and its claims.

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::this_run;
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_report::chart::{Bars, Intervals, Multiples};
use sidelane_report::{Check, ResultFile, Row};
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};

/// Comparison of variants `V` by figures `F`, measured in turns `T`. A turn is the part of a round that shares started
/// programs; most experiments have one turn per variant.
pub struct Experiment<'e, V, F, T> {
    /// Name of the experiment, shown while it runs.
    pub name: &'e str,
    /// Limit on the number of rounds.
    pub limit: Limit,
    /// Function from the number of a round to its turns, in their order.
    pub turns: &'e Turns<'e, V, F, T>,
    /// Function that returns the name of a turn for people.
    pub title: fn(&T) -> String,
    /// Function that checks the claims against the samples so far.
    pub checks: &'e dyn Fn(&Samples<V, F>) -> Vec<Check>,
}

/// Function from the number of a round, from 0 on, and the samples so far to the turns of the round.
pub type Turns<'e, V, F, T> = dyn Fn(u64, &Samples<V, F>) -> Vec<T> + 'e;

impl<V, F, T> Experiment<'_, V, F, T> {
    /// Runs rounds until each claim is decided, or up to the limit. `measure` takes the samples of a turn. Returns all
    /// samples and the number of rounds.
    ///
    /// # Errors
    /// Returns the error of the first turn that failed, with its title.
    pub fn run(
        &self,
        mut measure: impl FnMut(T, u64, &mut Samples<V, F>) -> Result<()>,
    ) -> Result<(Samples<V, F>, u64)> {
        let mut samples = Samples(Vec::new());
        let round = |samples: &mut Samples<V, F>, round: Turn<'_>| {
            for turn in (self.turns)(round.round, samples) {
                let title = (self.title)(&turn);
                round.bar.set_message(title.clone());
                measure(turn, round.round, samples).context(title)?;
            }
            Ok(())
        };
        let rounds = run_until_decided(self.name, self.limit, &mut samples, round, self.checks)?;
        Ok((samples, rounds))
    }
}

/// Figures of one variant in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<V, F> {
    /// Number of the round, from 0.
    pub round: u64,
    /// Variant that was measured.
    pub variant: V,
    /// Figures that the measurement returned.
    pub figures: F,
}

/// All samples of an experiment, in the order in which they were taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples<V, F>(pub Vec<Sample<V, F>>);

impl<V, F> Default for Samples<V, F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V: Copy + PartialEq, F> Samples<V, F> {
    /// Adds the figures of `variant` in a round.
    pub fn add(&mut self, round: u64, variant: V, figures: F) {
        self.0.push(Sample { round, variant, figures });
    }

    /// Returns the samples of one variant, one per round.
    pub fn of_variant(&self, variant: V) -> impl Iterator<Item = &Sample<V, F>> {
        self.0.iter().filter(move |sample| sample.variant == variant)
    }

    /// Returns whether there is at least one sample of the variant.
    pub fn has(&self, variant: V) -> bool {
        self.of_variant(variant).next().is_some()
    }

    /// Returns the median of one figure of a variant over its rounds, or `None` without any value.
    pub fn median(&self, variant: V, figure: impl Fn(&F) -> Option<f64>) -> Option<f64> {
        median(self.of_variant(variant).filter_map(|sample| figure(&sample.figures)))
    }

    /// Returns the sum of one figure of a variant over its rounds.
    pub fn sum(&self, variant: V, figure: impl Fn(&F) -> f64) -> f64 {
        self.of_variant(variant).map(|sample| figure(&sample.figures)).sum()
    }

    /// Returns the figures of these variants for each round that has all of them.
    pub fn rounds_with_all<const N: usize>(&self, variants: [V; N]) -> Vec<[&F; N]> {
        let in_round = |round| {
            let samples =
                variants.iter().filter_map(|variant| self.of_variant(*variant).find(|sample| sample.round == round));
            samples.map(|sample| &sample.figures).collect::<Vec<&F>>().try_into().ok()
        };
        self.of_variant(variants[0]).filter_map(|first| in_round(first.round)).collect()
    }

    /// Returns the result of `figure` on the two variants for each round that has both, such as a ratio; omits results
    /// that are not finite.
    pub fn compare_by_round(&self, variant: V, baseline: V, figure: impl Fn(&F, &F) -> Option<f64>) -> Vec<f64> {
        let figures =
            self.rounds_with_all([variant, baseline]).into_iter().filter_map(|[one, other]| figure(one, other));
        figures.filter(|figure| figure.is_finite()).collect()
    }
}

/// Results of an experiment, before they become a result file.
#[derive(Debug, Default)]
pub struct Report {
    /// Settings under which the variants were compared.
    pub settings: Map<String, Value>,
    /// Table rows with the figures of the variants.
    pub rows: Vec<Row>,
    /// Checks of the claims, each with its verdict.
    pub checks: Vec<Check>,
    /// Line charts, for the page of the result.
    pub multiples: Vec<Multiples>,
    /// Charts of means with their intervals.
    pub intervals: Vec<Intervals>,
    /// Bar charts.
    pub bars: Vec<Bars>,
    /// Notes on the result, as text.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns an empty report of a comparison with these settings; `settings` is a JSON object.
    pub fn with_settings(settings: Value) -> Self {
        Self { settings: settings.as_object().cloned().unwrap_or_default(), ..Self::default() }
    }

    /// Returns the result file for lanes of this kind, with the run and the time that the host has stolen up to now.
    /// `rounds` is the largest number of rounds that ran.
    pub fn into_result_file(self, kind: PairKind, round_options: RoundOptions, rounds: u64) -> ResultFile {
        let Self { settings, rows, checks, multiples, intervals, bars, notes } = self;
        let mut result = ResultFile::new(machine::describe(kind), settings);
        result.run = this_run::current_run();
        (result.rows, result.checks, result.notes) = (rows, checks, notes);
        (result.multiples, result.intervals, result.bars) = (multiples, intervals, bars);
        round_options.add_advice(&mut result, rounds);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(all: &[(u64, &'static str, f64)]) -> Samples<&'static str, f64> {
        let mut samples = Samples::default();
        all.iter().for_each(|(round, variant, figure)| samples.add(*round, *variant, *figure));
        samples
    }

    #[test]
    fn figures_are_compared_within_a_round() {
        let samples = samples(&[(0, "a", 10.0), (1, "a", 20.0), (1, "b", 25.0), (0, "b", 5.0), (2, "b", 9.0)]);
        let over = |one: &f64, other: &f64| Some(one / other);
        assert_eq!(samples.compare_by_round("b", "a", over), [1.25, 0.5]);
        assert_eq!(samples.rounds_with_all(["b", "a"]), [[&25.0, &20.0], [&5.0, &10.0]]);
        assert_eq!(samples.rounds_with_all(["b", "a", "b"]), [[&25.0, &20.0, &25.0], [&5.0, &10.0, &5.0]]);
        assert!(samples.compare_by_round("b", "c", over).is_empty());
        assert_eq!((samples.median("b", |us| Some(*us)), samples.sum("a", |us| *us)), (Some(9.0), 30.0));
        assert!(samples.has("a") && !samples.has("c"));
    }

    #[test]
    fn figures_that_are_not_finite_are_left_out() {
        let samples = samples(&[(0, "a", 0.0), (0, "b", 1.0)]);
        assert!(samples.compare_by_round("b", "a", |one, other| Some(one / other)).is_empty());
    }

    #[test]
    fn variants_take_turns() {
        let turns = |round: u64, _: &Samples<_, _>| if round == 0 { vec!["a", "b"] } else { vec!["b", "a"] };
        let limit = Limit { first: 2, rounds: 2, time: std::time::Duration::MAX };
        let (turns, checks) = (&turns, &|_: &Samples<_, _>| Vec::new());
        let experiment = Experiment { name: "test", limit, turns, title: |turn| (*turn).to_owned(), checks };
        let measure = |turn, round, samples: &mut Samples<&str, u64>| {
            samples.add(round, turn, round);
            Ok(())
        };
        let (samples, rounds) = experiment.run(measure).unwrap();
        let order: Vec<_> = samples.0.iter().map(|sample| (sample.round, sample.variant)).collect();
        assert_eq!((rounds, order), (2, vec![(0, "a"), (0, "b"), (1, "b"), (1, "a")]));
        let failed = experiment.run(|turn, _, _| Err(anyhow::anyhow!("there is no {turn}"))).unwrap_err();
        assert_eq!(format!("{failed:#}"), "a: there is no a");
    }
}
