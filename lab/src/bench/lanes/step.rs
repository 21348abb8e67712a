//! The step of load: an objective instead of a budget, and a load that quadruples at once.
//!
//! With an objective the budget is computed ten times a second from the latencies of requests (`sidelane run --slo`).
//! The rule is Sidelane's; the paper measures a budget beforehand. The check is that the rule shrinks the budget soon,
//! so that requests are late only for a short time.

use std::time::Duration;

use anyhow::Result;
use sidelane_policy::borrow::{Budget, Objective, PolicyKind};

use super::objective::round_to_two_digits;
use crate::experiment::comparison::{self, Experiment};
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::load::{LoadPattern, RunningClient, Shape, Step};
use crate::experiment::run::{Figures, RunSpec};
use crate::experiment::setting::Setting;
use crate::experiment::{batch, run};
use crate::note::LabNote;
use sidelane_report::chart::{Limit, Line, Multiples, Panel, ScaleKind};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::rounds;

/// Objective as a multiple of the p99 alone at the load after the step, so that the service can keep the objective at
/// this load.
const FACTOR: f64 = 2.0;
/// Longest accepted time above the objective: two sliding windows of a second. In the first, requests may be late, so
/// that the rule notices it; in the second they must be on time again.
const ABOVE_LIMIT_S: f64 = 2.0;
const BATCH_ALONE: Duration = Duration::from_millis(300);

/// Loads and times of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepPlan {
    pub(super) limit: rounds::Limit,
    pub(super) before: f64,
    pub(super) after: f64,
    pub(super) at: Duration,
    pub(super) run: Duration,
    pub(super) batch: &'static str,
}

impl StepPlan {
    pub(super) const DEFAULT: Self = Self {
        limit: rounds::Limit { first: 3, rounds: 6, time: Duration::from_secs(180) },
        before: 0.2,
        after: 0.8,
        at: Duration::from_secs(5),
        run: Duration::from_secs(10),
        batch: "matrix",
    };
}

/// Figures of all repetitions of the step, alone and beside batch.
pub(super) struct StepRuns {
    plan: StepPlan,
    pub(super) slo_us: f64,
    samples: Samples,
}

/// Figures of all runs, by the setting's name in rows. A repetition is a round.
type Samples = comparison::Samples<&'static str, Figures>;

const ALONE: &str = Setting::ALONE.name;
const LENT: &str = "slo_dynamic_refresh";

/// Measures the service of `fixture`, alone and beside batch in turns.
pub(super) fn measure_step(fixture: &Fixture, plan: StepPlan, given_slo_us: Option<f64>) -> Result<StepRuns> {
    let slo_us = match given_slo_us {
        Some(slo_us) => slo_us,
        None => round_to_two_digits(FACTOR * alone_p99_us(fixture, plan)?),
    };
    let slo = Objective { percentile: 99.0, limit_ns: (slo_us * 1e3) as u64 };
    let lent = Setting::with_budget(PolicyKind::DynamicRefresh, Budget::Slo(slo));
    let batch_alone_per_s = batch::measure_batch_alone_per_s(fixture, plan.batch, BATCH_ALONE, 0)?;
    let turns = |_, _: &Samples| vec![(ALONE, Setting::ALONE), (LENT, lent)];
    let title = |(_, setting): &(&str, Setting)| setting.title.to_owned();
    let checks = |samples: &Samples| vec![check(plan, samples)];
    let step = Experiment { name: "step of load", limit: plan.limit, turns: &turns, title, checks: &checks };
    let (samples, _) = step.run(|(name, setting), round, samples| {
        let rhythm = step_load_pattern(fixture, plan, slo, round + 1);
        let (batch, draw, experience) = (plan.batch, false, LearningOptions::default());
        let task = RunSpec { fixture, rhythm, batch, batch_alone_per_s, draw, experience };
        samples.add(round, name, run::run(task, &setting)?);
        Ok(())
    })?;
    Ok(StepRuns { plan, slo_us, samples })
}

fn alone_p99_us(fixture: &Fixture, plan: StepPlan) -> Result<f64> {
    let (rate_per_s, run) = (fixture.rate_per_s(plan.after), plan.run - plan.at);
    let rhythm = LoadPattern { rate_per_s, run, warm_up: Duration::from_secs(1), seed: 1, shape: Shape::Steady };
    Ok(RunningClient::start(fixture, rhythm)?.finish()?.p99_us)
}

fn step_load_pattern(fixture: &Fixture, plan: StepPlan, slo: Objective, seed: u64) -> LoadPattern {
    let step =
        Step { then_per_s: fixture.rate_per_s(plan.after), at: plan.at, limit: Duration::from_nanos(slo.limit_ns) };
    let (rate_per_s, warm_up) = (fixture.rate_per_s(plan.before), Duration::from_millis(500));
    LoadPattern { rate_per_s, run: plan.run, warm_up, seed, shape: Shape::Step(step) }
}

/// Returns the longest uninterrupted time above the objective in any repetition, in seconds.
fn longest_violation_s<'a>(runs: impl IntoIterator<Item = &'a Figures>) -> Option<f64> {
    let each: Option<Vec<f64>> = runs.into_iter().map(|run| run.latencies.longest_above_s).collect();
    each?.into_iter().reduce(f64::max)
}

/// Checks that the service is never late for long. Repetitions in which the service is late without batch do not count,
/// since batch is not the cause. If no repetition counts, the check is undecided.
fn check(plan: StepPlan, samples: &Samples) -> Check {
    let (before, after) = (plan.before * 100.0, plan.after * 100.0);
    let name = format!("longest time above the SLO after a step from {before:.0} to {after:.0} % load");
    let in_time = |run: &Figures| run.latencies.longest_above_s.is_none_or(|alone_s| alone_s <= ABOVE_LIMIT_S);
    let pairs = samples.rounds_with_all([ALONE, LENT]).into_iter().filter(|[alone, _]| in_time(alone));
    let lent: Vec<&Figures> = pairs.map(|[_, lent]| lent).collect();
    match lent.is_empty() {
        true => Check::interval_at_most(name, None, ABOVE_LIMIT_S, Unit::S)
            .into_undecided("a machine on which the service alone keeps its objective"),
        false => Check::at_most(name, longest_violation_s(lent), ABOVE_LIMIT_S, Unit::S),
    }
}

impl StepRuns {
    pub(super) fn check(&self) -> Check {
        check(self.plan, &self.samples)
    }

    /// Returns the longest time above the objective in a setting.
    fn longest_violation_s(&self, setting: &'static str) -> Option<f64> {
        longest_violation_s(self.samples.of_variant(setting).map(|sample| &sample.figures))
    }

    /// Returns a note if the service alone was late for long, so that batch is not blamed.
    pub(super) fn note(&self) -> Option<LabNote> {
        let above_s = self.longest_violation_s(ALONE).filter(|above_s| *above_s > ABOVE_LIMIT_S)?;
        Some(LabNote::StepLateAlone { above: Duration::from_secs_f64(above_s) })
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        vec![self.row(ALONE), self.row(LENT)]
    }

    fn row(&self, setting: &'static str) -> Row {
        let median = |figure: fn(&Figures) -> Option<f64>| self.samples.median(setting, figure);
        let mut row = Row::new(format!("step+{}/{setting}", self.plan.batch));
        row.put("limit_us", self.slo_us);
        row.put("longest_above_s", self.longest_violation_s(setting));
        row.put("step_p99_us", median(|run| Some(run.latencies.p99_us)));
        row.put("step_batch_work_ratio", median(|run| Some(run.beside.as_ref()?.batch_work_ratio)));
        row.put("repetitions_count", self.samples.of_variant(setting).count() as f64);
        row
    }

    /// Returns the picture of the p99 of each half second, with a panel for each repetition.
    pub(super) fn p99_chart(&self) -> Multiples {
        let panel = |(number, [alone, lent]): (usize, [&Figures; 2])| Panel {
            title: format!("repetition {}", number + 1),
            unit: Unit::Us,
            scale: ScaleKind::Log,
            up_to: None,
            limit: Some(Limit { name: "SLO".to_owned(), value: self.slo_us }),
            lines: vec![line("service alone", alone), line("dynamic refresh with --slo", lent)],
        };
        let (after, at_s) = (self.plan.after / self.plan.before, self.plan.at.as_secs());
        Multiples {
            title: "A step of load".to_owned(),
            caption: format!(
                "p99 of the requests of each half second, on a logarithmic axis. After {at_s} s there are {after:.0} \
                 times as many of them; the same requests in both lines."
            ),
            across: "time since the warm-up".to_owned(),
            across_unit: Unit::S,
            panels: self.samples.rounds_with_all([ALONE, LENT]).into_iter().enumerate().map(panel).collect(),
            columns: 3,
        }
    }
}

fn line(setting: &str, run: &Figures) -> Line {
    let points = run.latencies.windows.iter().filter_map(|window| Some((window.from_s, window.p99_us?)));
    Line { setting: setting.to_owned(), points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::load::Latencies;

    fn step_runs_with_violations(alone_s: [f64; 2], lent_s: [Option<f64>; 2]) -> StepRuns {
        let figures = |longest_above_s| Figures {
            latencies: Latencies { longest_above_s, ..Latencies::default() },
            at_socket: None,
            lc_utilisation: 0.5,
            beside: None,
        };
        let mut samples = Samples::default();
        for ((round, alone_s), lent_s) in (0..).zip(alone_s).zip(lent_s) {
            samples.add(round, ALONE, figures(Some(alone_s)));
            samples.add(round, LENT, figures(lent_s));
        }
        StepRuns { plan: StepPlan::DEFAULT, slo_us: 9_000.0, samples }
    }

    const IN_TIME_S: [f64; 2] = [0.4, 0.0];

    #[test]
    fn the_worst_repetition_counts() {
        assert!(step_runs_with_violations(IN_TIME_S, [Some(0.0), Some(2.0)]).check().ok);
        let late = step_runs_with_violations(IN_TIME_S, [Some(0.0), Some(2.05)]).check();
        assert!(!late.ok && late.measured == Some(2.05));
        assert!(!step_runs_with_violations(IN_TIME_S, [Some(0.0), None]).check().ok, "not measured");
        assert_eq!(
            step_runs_with_violations(IN_TIME_S, [Some(9.0), None]).note(),
            None,
            "the service alone was in time"
        );
    }

    #[test]
    fn repetition_with_a_late_baseline_is_ignored() {
        let noisy = step_runs_with_violations([6.0, 0.0], [Some(7.0), Some(1.0)]);
        assert!(noisy.check().ok && noisy.note().is_some());
        let noisier = step_runs_with_violations([6.0, 2.1], [Some(7.0), Some(1.0)]);
        assert!(noisier.check().is_undecided(), "no repetition is left");
    }
}
