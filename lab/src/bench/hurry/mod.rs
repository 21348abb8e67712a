//! `sidelane-lab bench hurry`: Hurry-up's evaluation (Nishtala et al., §IV), on one big and one little core.
//!
//! - `way`: the ways of mapping threads; `plan`: loads, and how often and for how long
//! - `ground`: the service and one run; `cells`: all of them
//! - `cost`: what the kernel program costs the service for each request
//! - `checks`, `rows`, `words`, `pictures`: what is told

mod cells;
mod checks;
mod cost;
mod ground;
mod options;
mod pictures;
mod plan;
mod rows;
mod way;
mod words;

use anyhow::Result;

use crate::experiment::place::Place;
use crate::note::LabNote;
use cells::Cells;
use ground::Ground;
pub use options::{HurryOptions, LITTLE_SPEED};
use plan::Plan;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, written};
use sidelane_report::ResultFile;
use sidelane_stats::rounds::{Turn, until_decided};

/// Measures everything.
pub fn run(options: &HurryOptions) -> Result<ResultFile> {
    let plan = Plan::of(options);
    let place = Place::choose(Some(&options.cores))?;
    let mut ground = Ground::prepare(options, &plan, place)?;
    ground.learn(&plan)?;
    let mut cells = Cells::default();
    let round = |cells: &mut Cells, turn: Turn<'_>| ground.round(&plan, cells, &turn);
    let rounds = until_decided("hurry", plan.limit, &mut cells, round, checks::of)?;
    let little_speed = ground.slow.as_mut().map(|slow| slow.speed()).transpose()?.flatten();
    let cost = cost::measure(&mut ground, plan.cost)?;
    let settings = words::settings(options, &plan, place, &ground, little_speed);
    let mut result = ResultFile::new(machine::describe(place.kind), settings);
    result.rows = rows::of(&cells, &cost, ground.measures);
    result.checks = checks::of(&cells);
    result.checks.push(checks::of_cost(&cost.added_us));
    result.multiples = pictures::of(&cells, ground.measures);
    result.notes = written(&notes(&ground, place));
    machine::note_stolen(&mut result.machine);
    options.patience.advise(&mut result, rounds);
    Ok(result)
}

fn notes(ground: &Ground, place: Place) -> std::collections::BTreeSet<Note> {
    let client = place.client_on_batch_lane().then_some(LabNote::ClientOnLittleCore);
    ground.slow.iter().map(|slow| slow.note()).chain(client).map(Note::from).collect()
}
