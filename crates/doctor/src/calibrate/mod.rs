//! `sidelane calibrate`: the hardware counters that measure interference on this processor, and their threshold.
//!
//! - `steps`: the measurement; `memory`: its requests
//! - `counters`: the counters of the candidate events
//! - `analysis`: the conclusion, or why there is none

mod analysis;
mod counters;
mod memory;
mod note;
mod steps;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Map;
use sidelane_host::events::{Formula, Processor, ProcessorEvents as Events, events_of_processor};
use sidelane_host::procfs::own_cpus;
use sidelane_host::topology::{PairKind, Topology};
use sidelane_report::{ResultFile, Row};

use crate::reaction::pair::TestPair;
use analysis::{Analysis, analyse};
use counters::Counters;
use note::CalibrationNote;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use steps::{Bench, CalibrationPlan, Step};

/// Options of `sidelane calibrate`.
#[derive(Clone, Debug, Default)]
pub struct CalibrateOptions {
    /// Lanes of the option `--lanes`, if given.
    pub lanes: Option<String>,
    /// Formulas of the option `--events`, which replace the processor's candidates.
    pub events: Vec<String>,
    /// Whether the calibration is a quick one, with fewer and shorter steps.
    pub quick: bool,
}

/// Result of a calibration, with all measurements.
pub struct Calibration {
    /// Result file, for users and programs.
    pub result: ResultFile,
    /// Whether the calibration found an event and a threshold.
    pub concluded: bool,
}

/// Measures, and analyses the measurements. Calls `on_step` with the name of each finished step.
pub fn run(options: &CalibrateOptions, mut on_step: impl FnMut(&str)) -> Result<Calibration> {
    let topology = Topology::read(Path::new("/sys"))?;
    let pair = TestPair::choose(&topology, &own_cpus(), options.lanes.as_deref())?;
    let pair = pair.context(
        "cannot calibrate: this process may use one CPU only; allow it a second one, best a \
                             sibling of the first (taskset, cpuset)",
    )?;
    let row = Processor::find().and_then(|processor| events_of_processor(&processor));
    let (candidates, mut notes) = candidate_formulas(options, row)?;
    let counters = open_counters(&candidates, &pair, &mut notes);
    let effort = if options.quick { CalibrationPlan::QUICK } else { CalibrationPlan::FULL };
    let mut bench = Bench::start(&pair, &candidates, counters, effort)?;
    let steps = bench.measure(|step| on_step(&step.name))?;
    let samples: Vec<_> = steps.iter().map(|step| step.sample.clone()).collect();
    let analysis = analyse(&samples);
    if pair.kind == PairKind::Declared {
        notes.push(CalibrationNote::CalibratedWithoutSiblings { cpus: format!("{} and {}", pair.request, pair.batch) });
    }
    Ok(Calibration {
        result: calibration_result(&candidates, &steps, &analysis, pair.kind, notes),
        concluded: analysis.conclusion.is_ok(),
    })
}

/// Returns the candidate formulas, given by the user or known for this processor, and notes about them.
fn candidate_formulas(
    options: &CalibrateOptions,
    processor_events: Option<&Events>,
) -> Result<(Vec<Formula>, Vec<CalibrationNote>)> {
    let named = |name: &str| processor_events.and_then(|row| row.find_event(name));
    if !options.events.is_empty() {
        let given: Result<Vec<Formula>, _> =
            options.events.iter().map(|text| Formula::parse_with(text, named)).collect();
        let given = given?;
        let notes =
            given.iter().map(|formula| CalibrationNote::InterferenceOfGivenEvents { formula: formula.to_string() });
        let notes = notes.collect();
        return Ok((given, notes));
    }
    let Some(row) = processor_events else { return Ok((Vec::new(), vec![CalibrationNote::ProcessorUnknown])) };
    let source = CalibrationNote::EventsFrom { processors: row.processors, source: row.source };
    Ok((row.candidates.iter().map(|candidate| row.formula(candidate)).collect(), vec![source]))
}

/// Opens the counters; `None` if there are no candidates or they cannot be counted.
fn open_counters(candidates: &[Formula], pair: &TestPair, notes: &mut Vec<CalibrationNote>) -> Option<Counters> {
    if candidates.is_empty() {
        return None;
    }
    Counters::open(candidates, pair.request)
        .map_err(|error| notes.push(CalibrationNote::NothingCounted { cpu: pair.request, error: error.to_string() }))
        .ok()
}

fn calibration_result(
    candidates: &[Formula],
    steps: &[Step],
    analysis: &Analysis,
    kind: PairKind,
    notes: Vec<CalibrationNote>,
) -> ResultFile {
    let mut settings = Map::new();
    settings.insert("title".to_owned(), "counters that show interference".into());
    settings.insert("finding".to_owned(), describe_analysis(candidates, analysis).into());
    if let Ok(conclusion) = analysis.conclusion {
        settings.insert("formula".to_owned(), candidates[conclusion.candidate].to_string().into());
        settings.insert("interference_threshold".to_owned(), conclusion.threshold.into());
    }
    let mut result = ResultFile::new(machine::describe(kind), settings);
    result.rows = steps.iter().map(|step| step_row(candidates, step)).collect();
    result.rows.extend(candidates.iter().zip(&analysis.correlations).map(|(formula, correlation)| {
        let mut row = Row::new(formula.to_string());
        row.put("correlation_percent", correlation.map(|correlation| correlation * 100.0));
        row
    }));
    let mut notes: Vec<Note> = notes.into_iter().map(Note::from).collect();
    notes.sort();
    result.notes = notes_as_text(&notes);
    result
}

fn step_row(candidates: &[Formula], step: &Step) -> Row {
    let mut row = Row::new(step.name.clone());
    row.put("latency_us", step.sample.latency_ns / 1e3);
    row.put("own_per_s", step.own_per_s).put("other_per_s", step.other_per_s);
    for (formula, value) in candidates.iter().zip(&step.sample.values) {
        row.put(&result_key(formula), *value);
    }
    row
}

/// Returns the key of a candidate's value in results: the name of its first event.
fn result_key(formula: &Formula) -> String {
    let name = formula.names()[0].to_ascii_lowercase();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{name}_ratio")
}

fn describe_analysis(candidates: &[Formula], analysis: &Analysis) -> String {
    let seen = match (analysis.alone_ns, analysis.beside_ns) {
        (Some(alone), Some(beside)) => {
            format!(
                "memory requests take {:.0} µs alone and up to {:.0} µs beside another thread",
                alone / 1e3,
                beside / 1e3
            )
        }
        _ => "too few steps were measured".to_owned(),
    };
    match &analysis.conclusion {
        Ok(conclusion) => format!(
            "{} shows interference (correlation {:.4} with latency); suggested interference_threshold: {:.4}; {seen}",
            candidates[conclusion.candidate], conclusion.correlation, conclusion.threshold
        ),
        Err(refusal) => format!("no metric found: {refusal}; {seen}"),
    }
}
