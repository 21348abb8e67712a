//! The explanation in the result of the guard bench: the compared variants, and which parts are real.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::plan::{GuardVariant, Plan};
use super::results::{GuardMeasurements, is_disturbed, store_names, unmanaged_slowdown};
use crate::experiment::place::ExperimentCpus;
use crate::note::LabNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::topology::PairKind;

/// Largest number of CPUs at which there is at most one CPU to give to batch.
const FEW_CPUS: u64 = 2;

pub(super) fn settings(plan: &Plan, place: ExperimentCpus, measured: &GuardMeasurements) -> Value {
    json!({
        "title": "Sidelane bench: guard",
        "explanation": explanation(plan, place, measured),
        "lanes": place.lanes(),
        "sibling": measured.emulated.as_ref().map(|emulated| &emulated.title),
        "client_cpu": place.client,
        "groups": plan.groups.iter().map(super::plan::Group::name).collect::<Vec<_>>(),
        "batch": plan.stays.iter().map(|stay| stay.work.name()).collect::<Vec<_>>(),
        "burst_scale": plan.scale,
        "run_s": plan.run.as_secs_f64(),
        "warm_up_s": plan.warm_up.as_secs_f64(),
        "learning_s": plan.learning.as_secs_f64(),
        "blocks_limit_count": plan.limit.rounds,
        "metric": metrics(measured),
        "quick": plan.round_options.quick,
    })
}

/// Returns the interference metrics that agents used.
fn metrics(measured: &GuardMeasurements) -> BTreeSet<String> {
    let figures = measured.figures().filter(|(variant, _)| *variant != GuardVariant::PerfIso);
    figures.filter_map(|(_, figures)| figures.metric.clone()).collect()
}

fn explanation(plan: &Plan, place: ExperimentCpus, measured: &GuardMeasurements) -> Vec<String> {
    let what = "Holmes' evaluation (HPDC'22, §6) on this machine. Key-value stores serve the mixes of YCSB, with zipfian \
                keys and 20 000 records of 1 000 bytes; an open-loop client sends requests in bursts, and counts each \
                latency from the moment it should have been sent. Batch runs in containers that come and go. Within a \
                round every way of sharing gets the same requests; under PerfIso and Holmes `sidelane agent` decides, a \
                process with a file.";
    let figures = format!(
        "The SLO is the p90 alone in the same round, so alone 10 % of the requests are beyond it. Utilisation is the \
         time of services and batch on both lanes, 2 at most. Batch's work is what the batch lane would have done in \
         so many seconds by itself, a second. Bursts are {} times as long as the paper's. \
         Requests that were under way while the host took more than 100 µs from the request lane, within 20 ms, are \
         left out where latencies count from the socket.",
        plan.scale
    );
    let pair = match (&measured.emulated, place.kind) {
        (Some(emulated), _) => emulated.explanation.clone(),
        (None, PairKind::Smt) => format!("CPUs {} are two lanes of one core (SMT siblings).", place.lanes()),
        (None, PairKind::Declared) => format!(
            "CPUs {} are declared to be a pair: they are not known to share a core, so that batch disturbs little.",
            place.lanes()
        ),
    };
    vec![what.to_owned(), figures, pair]
}

pub(super) fn notes(measured: &GuardMeasurements, place: ExperimentCpus) -> BTreeSet<Note> {
    let mut notes = measured.notes.clone();
    if place.kind == PairKind::Declared {
        notes.insert(LabNote::DeclaredPair.into());
    }
    notes.extend(measured.emulated.as_ref().map(|emulated| Note::from(emulated.note.clone())));
    let cpus = std::thread::available_parallelism().map_or(0, |count| count.get() as u64);
    if (1..=FEW_CPUS).contains(&cpus) {
        notes.insert(LabNote::FewCpus { cpus }.into());
    }
    notes.extend(metrics(measured).into_iter().map(|metric| LabNote::GuardMetric { metric }.into()));
    for group in measured.sample_groups() {
        let undisturbed = store_names(group).into_iter().enumerate().filter(|(store, _)| !is_disturbed(group, *store));
        notes.extend(undisturbed.filter_map(|(store, what)| {
            let times = format!("{:.2}", unmanaged_slowdown(group, store)?.measured);
            Some(Note::from(LabNote::LittleSlowdown { what, times }))
        }));
    }
    notes
}
