//! `sidelane-lab bench sibling`: whether two CPUs that are emulated as one core slow each other as much as requested.
//!
//! - `worker`: a program on each lane that counts its work, in stretches with and without the sibling in turns
//! - `achieved`: the loss in a stretch beside a busy lane, and beside an idle lane
//! - `search`: the effect on a real service's p99
//!
//! The loss is computed from the workers' clocks; only the time in which both lanes worked is taken from the emulator's
//! own report. The measure is the share of a worker's time in which it did not work, not its amount of work per time.
//! The reason is that the speed of a virtual machine's CPU changes by 10 to 20 % from one stretch to the next.

mod achieved;
mod search;
mod worker;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::json;

use crate::experiment::comparison::Report;
use crate::experiment::place::ExperimentCpus;
use sidelane_diagnostics::note::notes_as_text;
use sidelane_host::topology::PairKind;
use sidelane_report::ResultFile;
use sidelane_stats::rounds::RoundOptions;

/// Options of `sidelane-lab bench sibling`.
#[derive(Clone, Debug)]
pub struct SiblingOptions {
    /// Limit on the number of measured stretches and rounds.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Folder that keeps index and queries between runs.
    pub cache: PathBuf,
}

/// Measures the time lost beside a busy lane, the cost beside an idle lane, and the effect on a search service.
pub fn run(options: &SiblingOptions) -> Result<ResultFile> {
    let place = ExperimentCpus::choose(options.lanes.as_deref())?;
    if place.kind == PairKind::Smt {
        bail!("CPUs {} are real lanes of one core: there is nothing to emulate", place.lanes());
    }
    let achieved = achieved::measure_emulation(place, options.round_options)?;
    let search = search::run_search(place, options)?;
    let report = Report {
        rows: achieved.iter().map(achieved::EmulationMeasurement::row).chain(search.rows()).collect(),
        checks: achieved.iter().flat_map(achieved::EmulationMeasurement::checks).chain(search.checks()).collect(),
        notes: notes_as_text(&search.notes(place)),
        ..Report::with_settings(settings(options, place))
    };
    Ok(report.into_result_file(place.kind, options.round_options, achieved::PAIRS.rounds))
}

fn settings(options: &SiblingOptions, place: ExperimentCpus) -> serde_json::Value {
    json!({
        "title": "Sidelane bench: emulated sibling",
        "lanes": place.lanes(),
        "asked_percent": achieved::ASKED_PERCENT,
        "quick": options.round_options.quick,
    })
}
