//! Figure 4.14: the client's slowest requests of a Lucene search server, plain, and then with one remedy after the
//! other.
//!
//! A run is one start of the server and twenty iterations of its load: its first requests are part of it, as in the
//! thesis. Runs of all ways take turns.

mod checks;
mod front;
mod jar;
mod load;
mod pictures;
mod runs;
mod server;
mod way;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::stage::Stage;
use crate::note::LabNote;
use front::Front;
pub(super) use jar::Lucene;
pub(super) use load::{CONNECTIONS, Load, Point, Report};
use load::{ITERATIONS, Iteration};
use runs::Run;
pub(super) use server::{Memory, Server};
use sidelane_host::median::median;
use sidelane_report::{ResultFile, Row};
use sidelane_stats::rounds::{Limit, Patience, Turn, until_decided};
pub(super) use way::Way;

/// As in the thesis.
const RATE_PER_S: f64 = 1_000.0;
/// The thesis' iterations have 1 000 requests.
const REQUESTS: f64 = 1_000.0;
const REQUESTS_QUICK: f64 = 50.0;

/// Rounds: a run of each way.
const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(900) };
/// Too few to decide anything: a first look.
const ROUNDS_QUICK: Limit = Limit { first: 1, rounds: 1, time: Duration::from_secs(6) };

/// The limit of rounds.
pub(super) fn rounds(patience: Patience) -> Limit {
    patience.limit(ROUNDS_QUICK, ROUNDS)
}

/// The server's program; without it, the result says why.
pub(super) fn prepared(stage: &Stage<'_>, result: &mut ResultFile) -> Option<Lucene> {
    let prepared = Lucene::prepare(&stage.options.cache);
    prepared.map_err(|why| result.notes.push(LabNote::LuceneMissing { why: format!("{why:#}") }.to_string())).ok()
}

/// Runs all ways in turn.
pub(super) fn measure(stage: &Stage<'_>, result: &mut ResultFile) -> Result<()> {
    let Some(lucene) = prepared(stage, result) else { return Ok(()) };
    let mut runs = Vec::new();
    let round = |runs: &mut Vec<Run>, turn: Turn<'_>| {
        for way in Way::of(stage.options.patience) {
            turn.bar.set_message(way.title());
            let iterations = run(stage, &lucene, way, turn.round).with_context(|| way.title())?;
            runs.push(Run { round: turn.round, way, iterations });
        }
        Ok(())
    };
    until_decided("lucene", rounds(stage.options.patience), &mut runs, round, |runs| checks::of(runs))?;
    result.rows.extend(Way::of(stage.options.patience).map(|way| row(&runs, way)));
    result.checks.extend(checks::of(&runs));
    result.multiples.extend(pictures::of(&runs));
    Ok(())
}

/// Starts the server, and asks it from its first moment on.
fn run(stage: &Stage<'_>, lucene: &Lucene, way: Way, round: u64) -> Result<Vec<Iteration>> {
    let front = Front::start(stage, lucene, way)?;
    let requests = if stage.options.patience.quick { REQUESTS_QUICK } else { REQUESTS };
    let load = Load { per_s: RATE_PER_S, warm_up_s: 0.0, requests: ITERATIONS as f64 * requests, seed: round + 1 };
    let iterations = load.send(stage, lucene, front.port())?.iterations;
    ensure!(iterations.len() == ITERATIONS, "the client told {} iterations", iterations.len());
    Ok(iterations)
}

/// Medians over the runs.
fn row(runs: &[Run], way: Way) -> Row {
    let of_way = || runs.iter().filter(move |run| run.way == way);
    let each =
        |figure: fn(&Iteration) -> Option<f64>| median(of_way().flat_map(|run| &run.iterations).filter_map(figure));
    let mut row = Row::new(format!("lucene/{}", way.name()));
    row.put("max_us", median(of_way().filter_map(Run::max_us)));
    row.put("iteration_max_us", each(|iteration| iteration.max_us));
    row.put("iteration_p999_us", each(|iteration| iteration.p999_us));
    row.put("iteration_p50_us", each(|iteration| iteration.p50_us));
    row.put("first_iteration_max_us", median(of_way().filter_map(|run| run.iterations.first()?.max_us)));
    row.put("runs_count", of_way().count() as f64);
    row
}
