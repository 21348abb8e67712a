//! `sidelane bench gate`: what the checks of the instrumented gate cost, and how fast batch is off.
//!
//! Three questions, each answered by programs that gcc builds on the spot from `runtime/c/examples`:
//! what one check costs, against the same loop without; what a whole program that was built with
//! checks loses, against the same program without; and how fast batch that looks for itself naps,
//! beside a holder's reaction in the same rounds.

mod build;
mod program;
mod reaction;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, json};

use self::build::Workshop;
use self::reaction::Reactions;
use crate::lane::topology::Topology;
use crate::machine;
use crate::report::{Check, ResultFile, Row, Unit};

const CHECK_LIMIT_NS: f64 = 1.0;
const PROGRAM_LIMIT_PERCENT: f64 = 3.0;
const REACTION_LIMIT_US: f64 = 1.0;
const OVERLAP_LIMIT_PERCENT: f64 = 10.0;
const WOKEN_LIMIT_PERCENT: f64 = 25.0;

/// The ways of building a program with checks: name and compiler options.
const WAYS: [(&str, &[&str]); 4] = [
    ("check_inline", &["-DCHECK"]),
    ("check_pg_mfentry", &["-pg", "-mfentry"]),
    ("check_pg", &["-pg"]),
    ("check_instrument_functions", &["-finstrument-functions"]),
];

/// Measures everything. `quick` takes fewer rounds.
pub fn run(lanes: &str, quick: bool) -> Result<ResultFile> {
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let rounds = if quick { 11 } else { 41 };
    let mut settings = Map::new();
    settings.insert("lanes".into(), json!(lanes));
    settings.insert("rounds_count".into(), json!(rounds));
    let mut result = ResultFile::new(machine::describe(pair.kind), settings);
    let workshop = Workshop::open()?;
    check_costs(&workshop, rounds, &mut result).context("cost of a check")?;
    program_cost(&workshop, rounds, &mut result).context("cost to a program")?;
    Reactions::new(lanes, &pair, &workshop).measure(if quick { 2 } else { 5 }, &mut result).context("reactions")?;
    Ok(result)
}

/// What one check adds, in each way of building.
fn check_costs(workshop: &Workshop, rounds: usize, result: &mut ResultFile) -> Result<()> {
    let plain = workshop.build("calls.c", "plain", &[])?;
    for (name, options) in WAYS {
        let checked = workshop.build("calls.c", name, options)?;
        let cost_ns = workshop.added(&plain, &checked, &[], rounds)?;
        let mut row = Row::new(name);
        row.put("added_per_call_ns", cost_ns);
        result.rows.push(row);
        if ["check_inline", "check_pg_mfentry"].contains(&name) {
            let what = format!("{}, per call", name.replace('_', " "));
            result.checks.push(Check::at_most(what, cost_ns, CHECK_LIMIT_NS, Unit::Ns));
        }
    }
    Ok(())
}

/// What a real program loses that was built with checks at every function's entry.
fn program_cost(workshop: &Workshop, rounds: usize, result: &mut ResultFile) -> Result<()> {
    let Some(source) = program::fetch(workshop.dir())? else {
        result.notes.push(
            "the source of lz4 could not be had (apt-get source, no deb-src or no network): the cost to a real \
             program was not measured"
                .to_owned(),
        );
        return Ok(());
    };
    let (plain, checked) = (source.build("plain", &[])?, source.build("checked", &["-pg", "-mfentry"])?);
    let percent = source.overhead_percent(workshop, &plain, &checked, rounds)?;
    let mut row = Row::new("program_lz4_pg_mfentry");
    row.put("overhead_percent", percent);
    result.rows.push(row);
    result.checks.push(Check::at_most("lz4 built with -pg -mfentry", percent, PROGRAM_LIMIT_PERCENT, Unit::Percent));
    Ok(())
}
