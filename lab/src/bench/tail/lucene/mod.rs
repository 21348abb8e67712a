//! Figure 4.14 of the SHIM thesis: the client's slowest requests of a Lucene search server, first plain, and then with
//! more and more remedies.
//!
//! A run is one start of the server and twenty iterations of the load, which include the server's first requests, as in
//! the thesis. Runs of all variants take turns.

mod front;
mod jar;
mod load;
mod server;

use std::time::Duration;

use anyhow::{Result, ensure};

use super::fixture::TailFixture;
use crate::experiment::comparison::{self, Experiment};
use crate::note::LabNote;
use front::LuceneFrontend;
pub(super) use jar::Lucene;
pub(super) use load::{CONNECTIONS, ClientReport, LuceneLoad, Point};
use load::{ITERATIONS, Iteration};
pub(super) use server::{HeapSettings, Server};
use sidelane_report::chart::{Line, Multiples, Panel, ScaleKind};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions};

/// Request rate per second, as in the SHIM thesis.
const RATE_PER_S: f64 = 1_000.0;
/// Requests of one iteration, as in the SHIM thesis.
const REQUESTS: f64 = 1_000.0;
const REQUESTS_QUICK: f64 = 50.0;

/// Limits on the rounds, each of which has a run of each variant.
const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(900) };
/// Number of rounds with `--quick`, too few to decide anything.
const ROUNDS_QUICK: Limit = Limit { first: 1, rounds: 1, time: Duration::from_secs(6) };
/// Least ratio of the slowest request of a plain server to the slowest request with all remedies. The SHIM thesis
/// reports a ratio of nine.
const TIMES: f64 = 5.0;

type Samples = comparison::Samples<LuceneVariant, Vec<Iteration>>;

/// Way to run the server: each variant has the remedies of the previous one, and one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuceneVariant {
    /// No remedies: Nagle's algorithm, and a heap that is touched when it is used.
    Plain,
    /// The server sets TCP_NODELAY.
    Nodelay,
    /// The server sets TCP_NODELAY, and its JVM has the option AlwaysPreTouch.
    Pretouch,
    /// The server has all other remedies, and a second server behind `sidelane proxy`.
    Backup,
}

impl LuceneVariant {
    pub(super) const ALL: [LuceneVariant; 4] =
        [LuceneVariant::Plain, LuceneVariant::Nodelay, LuceneVariant::Pretouch, LuceneVariant::Backup];
    /// Variant of the server with every remedy.
    pub const TREATED: LuceneVariant = LuceneVariant::Backup;

    /// Returns the variants to measure; with `--quick` the first and the last one.
    pub(super) fn chosen(round_options: RoundOptions) -> impl Iterator<Item = LuceneVariant> {
        LuceneVariant::ALL.into_iter().filter(move |variant| {
            !round_options.quick || [LuceneVariant::Plain, LuceneVariant::TREATED].contains(variant)
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            LuceneVariant::Plain => "plain",
            LuceneVariant::Nodelay => "nodelay",
            LuceneVariant::Pretouch => "pretouch",
            LuceneVariant::Backup => "backup",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            LuceneVariant::Plain => "plain",
            LuceneVariant::Nodelay => "TCP_NODELAY",
            LuceneVariant::Pretouch => "+ AlwaysPreTouch",
            LuceneVariant::Backup => "+ a backup server",
        }
    }

    pub(super) fn has_nodelay(self) -> bool {
        self != LuceneVariant::Plain
    }

    pub(super) fn has_pretouch(self) -> bool {
        !matches!(self, LuceneVariant::Plain | LuceneVariant::Nodelay)
    }
}

/// Returns the limit on rounds of the comparison.
pub(super) fn round_limit(round_options: RoundOptions) -> Limit {
    round_options.limit(ROUNDS_QUICK, ROUNDS)
}

/// Builds the server's program; returns `None` and adds a note if that fails.
pub(super) fn prepare_lucene(fixture: &TailFixture<'_>, report: &mut comparison::Report) -> Option<Lucene> {
    let prepared = Lucene::prepare(&fixture.options.cache);
    prepared.map_err(|why| report.notes.push(LabNote::LuceneMissing { why: format!("{why:#}") }.to_string())).ok()
}

/// Measures all variants of the server, and compares them.
pub(super) fn measure_lucene_remedies(fixture: &TailFixture<'_>, report: &mut comparison::Report) -> Result<()> {
    let Some(lucene) = prepare_lucene(fixture, report) else { return Ok(()) };
    let turns = |_, _: &Samples| LuceneVariant::chosen(fixture.options.round_options).collect();
    let (limit, title) =
        (round_limit(fixture.options.round_options), |variant: &LuceneVariant| variant.title().to_owned());
    let remedies = Experiment { name: "lucene", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = remedies.run(|variant, round, samples| {
        samples.add(round, variant, run_variant(fixture, &lucene, variant, round)?);
        Ok(())
    })?;
    report.rows.extend(LuceneVariant::chosen(fixture.options.round_options).map(|variant| row(&samples, variant)));
    report.checks.extend(checks(&samples));
    report.multiples.extend(iterations_chart(&samples));
    Ok(())
}

/// Starts the server, and sends it load as soon as it listens.
fn run_variant(
    fixture: &TailFixture<'_>,
    lucene: &Lucene,
    variant: LuceneVariant,
    round: u64,
) -> Result<Vec<Iteration>> {
    let front = LuceneFrontend::start(fixture, lucene, variant)?;
    let requests = ITERATIONS as f64 * if fixture.options.round_options.quick { REQUESTS_QUICK } else { REQUESTS };
    let load = LuceneLoad { per_s: RATE_PER_S, warm_up_s: 0.0, requests, seed: round + 1 };
    let iterations = load.send(fixture, lucene, front.port())?.iterations;
    ensure!(iterations.len() == ITERATIONS, "the client told {} iterations", iterations.len());
    Ok(iterations)
}

/// Returns the checks of the remedies.
fn checks(samples: &Samples) -> Vec<Check> {
    let times = samples.compare_by_round(LuceneVariant::Plain, LuceneVariant::TREATED, |plain, treated| {
        Some(max_us(plain)? / max_us(treated)?)
    });
    let name =
        format!("lucene: slowest request, plain over {}", LuceneVariant::TREATED.title().trim_start_matches("+ "));
    vec![Check::interval_at_least(name, median_interval(times), TIMES, Unit::Ratio)]
}

/// Returns the slowest request of all iterations, in microseconds.
fn max_us(iterations: &[Iteration]) -> Option<f64> {
    iterations.iter().filter_map(|iteration| iteration.max_us).reduce(f64::max)
}

/// Returns the row of a variant: medians over the runs.
fn row(samples: &Samples, variant: LuceneVariant) -> Row {
    let of = || samples.of_variant(variant).map(|sample| &sample.figures);
    let each = |figure: fn(&Iteration) -> Option<f64>| median(of().flatten().filter_map(figure));
    let mut row = Row::new(format!("lucene/{}", variant.name()));
    row.put("max_us", samples.median(variant, |iterations| max_us(iterations)));
    row.put("iteration_max_us", each(|iteration| iteration.max_us));
    row.put("iteration_p999_us", each(|iteration| iteration.p999_us));
    row.put("iteration_p50_us", each(|iteration| iteration.p50_us));
    row.put("first_iteration_max_us", samples.median(variant, |iterations| iterations.first()?.max_us));
    row.put("runs_count", of().count() as f64);
    row
}

/// Returns the picture like Figure 4.14 of the SHIM thesis: the slowest request, and the p99.9, of each iteration.
fn iterations_chart(samples: &Samples) -> Option<Multiples> {
    let panel = |title: &str, figure: fn(&Iteration) -> Option<f64>| Panel {
        title: title.to_owned(),
        unit: Unit::Us,
        scale: ScaleKind::Log,
        up_to: None,
        limit: None,
        lines: LuceneVariant::ALL
            .map(|variant| line(samples, variant, figure))
            .into_iter()
            .filter(|line| !line.points.is_empty())
            .collect(),
    };
    Some(Multiples {
        title: "A Lucene search server, with one remedy after the other".to_owned(),
        caption: "By iteration, the first one right after the server's start; lower is better. Medians over the runs. \
                  As Tailor's Figure 4.14."
            .to_owned(),
        across: "iteration".to_owned(),
        across_unit: Unit::Count,
        panels: vec![
            panel("slowest request", |iteration| iteration.max_us),
            panel("p99.9", |iteration| iteration.p999_us),
        ],
        columns: 2,
    })
    .filter(|_| !samples.0.is_empty())
}

fn line(samples: &Samples, variant: LuceneVariant, figure: fn(&Iteration) -> Option<f64>) -> Line {
    let of = |number: usize| samples.median(variant, |iterations| figure(iterations.get(number)?));
    let points = (0..ITERATIONS).filter_map(|number| Some(((number + 1) as f64, of(number)?))).collect();
    Line { setting: variant.title().to_owned(), points }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_report::Verdict;

    fn iterations(max_us: f64) -> Vec<Iteration> {
        let iteration = |max_us| Iteration { p50_us: Some(100.0), p999_us: Some(max_us), max_us: Some(max_us) };
        vec![iteration(200.0), iteration(max_us)]
    }

    fn verdict(rounds: u64, ratio: f64) -> Verdict {
        let mut samples = Samples::default();
        for round in 0..rounds {
            let slow_us = 45_000.0 * (round + 1) as f64;
            samples.add(round, LuceneVariant::Plain, iterations(slow_us));
            samples.add(round, LuceneVariant::TREATED, iterations(slow_us / ratio));
        }
        checks(&samples)[0].verdict
    }

    #[test]
    fn slowest_requests_are_compared_within_a_round() {
        assert_eq!(verdict(6, 9.0), Verdict::Holds);
        assert_eq!(verdict(6, 4.0), Verdict::Missed);
        assert_eq!(verdict(5, 9.0), Verdict::Undecided, "five rounds have no interval");
    }
}
