//! Explanations in a simulated result.

use std::path::Path;

use crate::model::Fault;
use crate::scenario::Run;
use crate::{Choices, Experiment, Outcome};
use serde_json::{Map, Value, json};

use sidelane_report::{Machine, Pair};

/// Note in every result of a simulation.
pub const SIMULATED: &str = "simulated: every number here is from a model of a machine that ran the real code of the \
                             policies; nothing was measured";

pub(super) fn settings<R: Run>(experiment: &Experiment<R>, scenario: &Path, choices: Choices) -> Map<String, Value> {
    let mut explanation = experiment.explanation.clone();
    explanation.push(
        "Simulated, not measured: a discrete-event model of the machine runs the same policies as the agent. Their \
         decisions are real; slowdowns, latencies and loads are those of the scenario."
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

/// Describes the machine of the experiment's first point.
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
        virtual_machine: Some(false),
        pmu: described.is_some_and(|machine| machine.counters),
        gates: Vec::new(),
        stolen_percent: None,
        stolen_gap_max_us: None,
        notes: Vec::new(),
    }
}

pub(super) fn notes(experiment: &Experiment, outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = vec![SIMULATED.to_owned()];
    let faults = experiment.first().map_or(&[][..], |model| &model.faults);
    if !faults.is_empty() {
        notes.push(format!("faults were injected: {}", faults.iter().map(name).collect::<Vec<_>>().join(", ")));
    }
    notes.extend(overload_note(outcomes.iter().map(|outcome| outcome.figures.refused).sum()));
    notes
}

pub(super) fn overload_note(refused_requests: u64) -> Option<String> {
    let overload = || {
        format!(
            "overload: {refused_requests} requests were refused because the queue was full; latencies are of the rest"
        )
    };
    (refused_requests > 0).then(overload)
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
