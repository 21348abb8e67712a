//! `sidelane-lab bench guard`: Holmes' evaluation (§6), on this machine.
//!
//! Key-value stores are asked in bursts, batch comes and goes in containers, and five ways of sharing the machine take
//! turns with the same requests: the stores alone, batch unmanaged, and `sidelane agent` with PerfIso, with Holmes, and
//! with Holmes and a gate on the lanes that batch borrows. The agent is the real one: a process with a file.
//!
//! - `plan`: which stores, mixes and containers, how often and for how long
//! - `way`: the ways of sharing; `agent`: the agent's process and its file
//! - `run`: one run of one way; `cells`: all of them
//! - `idle`: what an agent costs that has nothing to do; `reaction`: from interference to batch being off
//! - `checks`, `rows`, `words`, `pictures`: what is told

mod agent;
mod cells;
mod checks;
mod idle;
mod measured;
mod options;
mod pictures;
mod plan;
mod reaction;
mod rows;
mod run;
mod way;
mod words;

use anyhow::{Context, Result};

use crate::experiment::place::Place;
use crate::experiment::sibling::{Emulated, Sibling};
use crate::programs::Lab;
use agent::Heard;
pub use agent::Source;
use cells::Cells;
use measured::Measured;
pub use options::GuardOptions;
use plan::{Group, Plan};
use reaction::Reactions;
use run::Ground;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, written};
use sidelane_report::ResultFile;
use sidelane_stats::rounds::{Limit, Turn, until_decided};
pub use way::Way;

/// The columns of the tables on a terminal; the page shows all.
pub const COLUMNS: [&str; 14] = [
    "mean_us",
    "p99_us",
    "p99_over_alone",
    "slo_violations_percent",
    "utilisation_ratio",
    "batch_work_ratio",
    "agent_cpu_percent",
    "agent_memory_mib_count",
    "rounds_count",
    "left_out_percent",
    "reaction_p50_us",
    "reaction_p99_us",
    "reaction_max_us",
    "reactions_count",
];

/// Measures everything.
pub fn run(options: &GuardOptions) -> Result<ResultFile> {
    let lab = Lab::find()?;
    let plan = Plan::of(options, &lab)?;
    let place = Place::choose(options.lanes.as_deref())?;
    let mut measured =
        Measured { emulated: None, groups: Vec::new(), idle: None, reactions: Vec::new(), notes: plan.notes.clone() };
    for group in &plan.groups {
        let cells = of_group(options, &plan, group, place, &lab, &mut measured);
        measured.groups.push(cells.with_context(|| group.name())?);
    }
    let mut result = ResultFile::new(machine::describe(place.kind), words::settings(&plan, place, &measured));
    result.rows = rows::of(&measured);
    result.checks = checks::of(&measured);
    result.multiples = pictures::of(&measured);
    result.notes = written(&words::notes(&measured, place));
    machine::note_stolen(&mut result.machine);
    plan.patience.advise(&mut result, plan.limit.rounds);
    Ok(result)
}

fn of_group(
    options: &GuardOptions,
    plan: &Plan,
    group: &Group,
    place: Place,
    lab: &Lab,
    measured: &mut Measured,
) -> Result<Cells> {
    let sibling = Sibling::choose_with_stand_in(options.sibling, place, lab)?;
    measured.emulated = Emulated::of(sibling.as_ref(), &place.lanes());
    let mut ground = Ground::prepare(plan, group, place, lab, sibling)?;
    if plan.ways.contains(&Way::Holmes) {
        let uncounted = ground.choose_source(options.source)?;
        of_agent(plan, &ground, uncounted.is_none(), measured)?;
        measured.notes.extend(uncounted.map(Note::from));
    }
    let mut cells = Cells::of(group);
    until_decided(
        &group.name(),
        plan.limit,
        &mut cells,
        |cells, turn| ground.block(plan, cells, &turn),
        checks::of_group,
    )?;
    Ok(cells)
}

/// Rounds of onsets; where they are checked, until that is decided.
fn reactions(plan: &Plan, ground: &Ground, heard: Heard) -> Result<Reactions> {
    let mut reactions = Reactions::of(heard);
    let first = plan.onset_limit.first;
    let limit = if heard == Heard::Bell { plan.onset_limit } else { Limit { rounds: first, ..plan.onset_limit } };
    let round = |reactions: &mut Reactions, _: Turn<'_>| reaction::measure(ground, plan.onsets, reactions);
    let checks = |reactions: &Reactions| checks::of_reactions(reactions).into_iter().collect();
    until_decided(&format!("onsets, {}", heard.name()), limit, &mut reactions, round, checks)?;
    Ok(reactions)
}

/// What concerns the agent alone is measured once. How fast it reacts can only be told where it counts.
fn of_agent(plan: &Plan, ground: &Ground, counts: bool, measured: &mut Measured) -> Result<()> {
    if measured.idle.is_none() {
        measured.idle = Some(idle::measure(ground, plan)?);
    }
    if measured.reactions.is_empty() && counts {
        for heard in plan.heard {
            measured.reactions.push(reactions(plan, ground, *heard).context("reactions")?);
        }
    }
    Ok(())
}
