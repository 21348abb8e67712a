//! `sidelane-lab bench gate`: the cost of the instrumented gate's checks, and its reaction time.
//!
//! The bench answers three questions, with programs that gcc builds during the run from `runtime/c/examples`. What does
//! one check cost, compared with the same loop without it? How much slower is a whole program that was built with
//! checks than the same program without? How fast does batch nap if it checks its own lane, compared with the reaction
//! of a holder in the same rounds?

mod build;
mod program;
mod reaction;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use self::build::GateBuild;
use self::reaction::Reactions;
use crate::experiment::comparison::Report;
use crate::note::LabNote;
use sidelane_host::topology::Topology;
use sidelane_report::{Check, ResultFile, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, measure_until_decided};

const CHECK_LIMIT_NS: f64 = 1.0;
const PROGRAM_LIMIT_PERCENT: f64 = 3.0;
const REACTION_LIMIT_US: f64 = 1.0;
const OVERLAP_LIMIT_PERCENT: f64 = 10.0;
const WOKEN_LIMIT_PERCENT: f64 = 25.0;

/// Methods of building a program with checks: name and compiler options.
const WAYS: [(&str, &[&str]); 4] = [
    ("check_inline", &["-DCHECK"]),
    ("check_pg_mfentry", &["-pg", "-mfentry"]),
    ("check_pg", &["-pg"]),
    ("check_instrument_functions", &["-finstrument-functions"]),
];

/// Rounds of a cost measurement: `first` rounds always, then more until the checks are decided, up to `rounds` rounds
/// or `time`.
const ROUNDS: Limit = Limit { first: 41, rounds: 164, time: Duration::from_secs(60) };
const ROUNDS_QUICK: Limit = Limit { first: 11, rounds: 44, time: Duration::from_secs(10) };

/// Measures the cost of checks, the cost to a program and the reactions on `lanes`.
pub fn run(lanes: &str, round_options: RoundOptions) -> Result<ResultFile> {
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let limit = round_options.limit(ROUNDS_QUICK, ROUNDS);
    let mut report = Report::with_settings(json!({ "lanes": lanes, "rounds_limit_count": limit.rounds }));
    let c_build = GateBuild::open()?;
    measure_check_cost(&c_build, limit, &mut report).context("cost of a check")?;
    measure_program_cost(&c_build, limit, &mut report).context("cost to a program")?;
    Reactions::new(lanes, &pair, &c_build, round_options).measure(&mut report).context("reactions")?;
    Ok(report.into_result_file(pair.kind, round_options, limit.rounds))
}

/// Measures the cost of one check, for each method of building.
fn measure_check_cost(c_build: &GateBuild, limit: Limit, report: &mut Report) -> Result<()> {
    let plain = c_build.build("calls.c", "plain", &[])?;
    for (name, options) in WAYS {
        let checked = c_build.build("calls.c", name, options)?;
        let what = format!("{}, per call", name.replace('_', " "));
        let check = |added_ns: &[f64]| {
            Check::interval_at_most(what.clone(), median_interval(added_ns.iter().copied()), CHECK_LIMIT_NS, Unit::Ns)
        };
        let is_checked = ["check_inline", "check_pg_mfentry"].contains(&name);
        // Runs no more than the first rounds for a method of building whose cost has no bound to check.
        let limit = if is_checked { limit } else { Limit { rounds: limit.first, ..limit } };
        let pair = || c_build.measure_added_time(&plain, &checked, &[]);
        let added_ns = measure_until_decided(&what, limit, pair, check)?;
        let mut row = Row::new(name);
        row.put("added_per_call_ns", median(added_ns.iter().copied()));
        row.put("pairs_count", added_ns.len() as f64);
        report.rows.push(row);
        report.checks.extend(is_checked.then(|| check(&added_ns)));
    }
    Ok(())
}

/// Measures the slowdown of a real program that was built with checks at every function's entry.
fn measure_program_cost(c_build: &GateBuild, limit: Limit, report: &mut Report) -> Result<()> {
    let Some(source) = program::fetch(c_build.dir())? else {
        report.notes.push(LabNote::NoLz4.to_string());
        return Ok(());
    };
    let (plain, checked) = (source.build("plain", &[])?, source.build("checked", &["-pg", "-mfentry"])?);
    let check = |percent: &[f64]| {
        let overhead = median_interval(percent.iter().copied());
        Check::interval_at_most("lz4 built with -pg -mfentry", overhead, PROGRAM_LIMIT_PERCENT, Unit::Percent)
    };
    let pair = || source.overhead_percent(c_build, &plain, &checked);
    let percent = measure_until_decided("lz4", limit, pair, check)?;
    let mut row = Row::new("program_lz4_pg_mfentry");
    row.put("overhead_percent", median(percent.iter().copied()));
    row.put("pairs_count", percent.len() as f64);
    report.rows.push(row);
    report.checks.push(check(&percent));
    Ok(())
}
