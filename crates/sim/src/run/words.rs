//! The explanation in a simulated result.

use std::path::Path;

use crate::model::Fault;
use crate::scenario::Run;
use crate::{Choices, Experiment, Outcome};
use serde_json::{Map, Value, json};

use sidelane_diagnostics::note::Note;
use sidelane_report::{Machine, Pair};

pub(super) fn settings<R: Run>(experiment: &Experiment<R>, scenario: &Path, choices: Choices) -> Map<String, Value> {
    let mut explanation = experiment.explanation.clone();
    explanation.push(
        "Simulated, not measured: a discrete-event model of the machine drives the same policies as the agent does. \
         Real here is what they decide; the slowdowns, latencies and loads are the scenario's."
            .to_owned(),
    );
    let settings = json!({
        "title": experiment.title,
        "explanation": explanation,
        "simulated": true,
        "scenario": scenario.display().to_string(),
        "seed": experiment.first().map(Run::seed),
        "swept": experiment.swept,
        "compared": experiment.settings().collect::<Vec<_>>(),
        "quick": choices.quick,
    });
    settings.as_object().cloned().unwrap_or_default()
}

/// The machine of the first point.
pub(super) fn machine<R: Run>(experiment: &Experiment<R>) -> Machine {
    let described = experiment.first().map(Run::machine);
    let cores = described.map_or(0, |machine| machine.cores());
    let lanes = described.map_or(0, |machine| machine.lanes_per_core);
    let ghz = described.map_or(0.0, |machine| machine.clock_ghz);
    Machine {
        cpu: format!("simulated: {cores} cores of {lanes} lanes at {ghz} GHz"),
        lanes: (cores * lanes) as u32,
        pair: Pair::Smt,
        kernel: "none".to_owned(),
        pmu: described.is_some_and(|machine| machine.counters),
        gates: Vec::new(),
        stolen_percent: None,
        stolen_gap_max_us: None,
        notes: Vec::new(),
    }
}

pub(super) fn notes(experiment: &Experiment, outcomes: &[Outcome]) -> Vec<Note> {
    let mut notes = vec![Note::Simulated];
    let faults = experiment.first().map_or(&[][..], |model| &model.faults);
    if !faults.is_empty() {
        notes.push(Note::FaultsInjected { faults: faults.iter().map(name).collect::<Vec<_>>().join(", ") });
    }
    let refused: u64 = outcomes.iter().map(|outcome| outcome.figures.refused).sum();
    if refused > 0 {
        notes.push(Note::Overload { refused });
    }
    notes
}

fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::LateWakeUp { .. } => "late wake-ups",
        Fault::LostSummons { .. } => "lost summons",
        Fault::CounterGlitch { .. } => "counter glitches",
        Fault::Churn { .. } => "container churn",
        Fault::AgentCrash { .. } => "crashes of the agent",
    }
}
