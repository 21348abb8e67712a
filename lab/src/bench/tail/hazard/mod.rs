//! A search server that collects garbage often, with a backup beside it: requests hedged at hazards, and by a timer that
//! makes as much extra load.
//!
//! In each round all ways have a run, the timer the last one: how long it waits follows from the others, so that as many
//! requests are sent twice under it as at hazards.

mod checks;
mod run;
mod timer;

use std::time::Duration;

use anyhow::{Context, Result};

use super::lucene::{Load, Memory, Server, Way, prepared};
use super::stage::Stage;
use run::{Field, Hedging, Run};
use sidelane_host::median::median;
use sidelane_report::{ResultFile, Row};
use sidelane_stats::rounds::{Limit, Turn, until_decided};
use timer::Timer;

/// Collections of young objects take some ten milliseconds and come about twice a second, and one of all objects thirty,
/// every few seconds. Marking beside requests would slow them with no hazard that could be seen, for both alike.
const MEMORY: Memory = Memory { heap_mib: 256, live_mib: 64, renewed: 2_000, marks: false };

const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(600) };
/// Too few to decide anything: a first look.
const ROUNDS_QUICK: Limit = Limit { first: 1, rounds: 1, time: Duration::from_secs(8) };
const SECONDS: f64 = 15.0;
const SECONDS_QUICK: f64 = 2.2;

/// Compares them until that is decided.
pub(super) fn measure(stage: &Stage<'_>, result: &mut ResultFile) -> Result<()> {
    let Some(lucene) = prepared(stage, result) else { return Ok(()) };
    let start = |cpu| Server::start(&lucene, Way::Pretouch, cpu, MEMORY, 0);
    let servers = [start(stage.place.request)?, start(stage.place.batch)?];
    for server in &servers {
        Load::WARM_UP.send(stage, &lucene, server.port()?)?;
    }
    let seconds = if stage.options.patience.quick { SECONDS_QUICK } else { SECONDS };
    let field = Field { stage, lucene: &lucene, ports: (servers[0].port()?, servers[1].port()?), seconds };
    let mut runs: Vec<Run> = Vec::new();
    let limit = stage.options.patience.limit(ROUNDS_QUICK, ROUNDS);
    let round = |runs: &mut Vec<Run>, turn: Turn<'_>| round(&field, runs, &turn);
    until_decided("hazard", limit, &mut runs, round, |runs| checks::of(runs))?;
    result.rows.extend(Hedging::ALL.map(|hedging| row(&runs, hedging)));
    result.checks.extend(checks::of(&runs));
    Ok(())
}

/// The first two take turns in being first.
fn round(field: &Field<'_>, runs: &mut Vec<Run>, turn: &Turn<'_>) -> Result<()> {
    let mut measured = [Hedging::Never, Hedging::Hazard];
    measured.rotate_left(turn.round as usize % 2);
    for hedging in measured.into_iter().chain([Hedging::Timer]) {
        turn.bar.set_message(hedging.name());
        let timer = (hedging == Hedging::Timer).then(|| Timer::of(runs)).transpose()?;
        runs.push(field.run(hedging, timer, turn.round).with_context(|| hedging.name())?);
    }
    Ok(())
}

/// Medians over the runs; hedges of all together.
fn row(runs: &[Run], hedging: Hedging) -> Row {
    let of_way = || runs.iter().filter(move |run| run.hedging == hedging);
    let each = |figure: fn(&Run) -> f64| median(of_way().map(figure));
    let mut row = Row::new(format!("hazard/{}", hedging.name()));
    row.put("p50_us", each(|run| run.seen.p50_us));
    row.put("p99_us", each(|run| run.seen.p99_us));
    row.put("p999_us", each(|run| run.seen.p999_us));
    row.put("max_us", each(|run| run.seen.max_us));
    row.put("hedges_percent", run::share(of_way()).map(|share| share * 100.0));
    row.put("wins_count", of_way().map(|run| run.done.wins).sum::<u64>() as f64);
    row.put("timer_ms", median(of_way().filter_map(|run| run.timer).map(|timer| timer.after_ms as f64)));
    row.put("requests_count", of_way().map(|run| run.done.requests).sum::<u64>() as f64);
    row
}
