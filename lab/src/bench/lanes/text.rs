//! The explanation in the result of the lanes bench: the compared settings, and which parts are real.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::measured::LanesMeasurements;
use super::objective::FACTOR;
use super::plan::Plan;
use super::step::StepRuns;
use super::sweep::SweepResult;
use crate::experiment::place::ExperimentCpus;
use crate::note::LabNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::topology::{Lanes, PairKind};

/// Largest p99 of the client's sending delay; a client with a larger delay is too busy itself.
const SEND_LAG_LIMIT_US: u64 = 1_000;

pub(super) fn settings(plan: &Plan, place: ExperimentCpus, lanes: &Lanes, measured: &LanesMeasurements) -> Value {
    let search = &measured.search;
    json!({
        "title": "Sidelane bench: lanes",
        "explanation": explanation(place, lanes, measured),
        "lanes": place.lanes(),
        "sibling": measured.emulated.as_ref().map(|emulated| &emulated.title),
        "client_cpu": place.client,
        "loads_percent": plan.search.loads,
        "batches": plan.search.batches,
        "rounds_limit_count": plan.search.limit.rounds,
        "run_s": plan.search.run.as_secs_f64(),
        "warm_up_s": plan.search.warm_up.as_secs_f64(),
        "search_mean_service_us": search.mean_service_us,
        "search_slo_us": search.sweep.objective.slo_us,
        "search_slo_from": slo_source(plan),
        "redis_mean_service_us": measured.redis.as_ref().map(|redis| redis.mean_service_us),
        "redis_slo_us": measured.redis.as_ref().map(|redis| redis.sweep.objective.slo_us),
        "step_slo_us": measured.step.as_ref().map(|step| step.slo_us),
        "quick": plan.round_options.quick,
    })
}

fn slo_source(plan: &Plan) -> String {
    match plan.slo_us() {
        Some(_) => "given".to_owned(),
        None => format!("{FACTOR} × p99 alone at {} % load", plan.search.moderate_load()),
    }
}

fn explanation(place: ExperimentCpus, lanes: &Lanes, measured: &LanesMeasurements) -> Vec<String> {
    let (lanes_in_words, search) = (place.lanes(), &measured.search);
    let what = "Elfen's evaluation (USENIX ATC'16, Figs. 8, 10 and 11) on this machine. One thread serves full-text \
                searches over real English text on the request lane; a batch job wants the other lane of the pair. An \
                open-loop client sends requests at random times and counts each latency from the moment it should \
                have been sent. Within a round every setting takes a turn with the same requests.";
    let objective = format!(
        "The service's p99 is to stay within {:.1} ms. The budgets of the policies that run batch beside requests \
         are what that leaves: the objective less the p99 of the service alone at the same load (§3.4: 100 ms − 53 ms \
         = 47 ms).",
        search.sweep.objective.slo_us / 1e3
    );
    let pair = match (lanes.kind, &measured.emulated) {
        (_, Some(emulated)) => emulated.explanation.clone(),
        (PairKind::Smt, None) => format!(
            "CPUs {lanes_in_words} are two lanes of one core (SMT siblings): whatever batch does beside a request takes \
             execution resources from it."
        ),
        (PairKind::Declared, None) => format!(
            "CPUs {lanes_in_words} are declared to be a pair: they are not known to share a core. Real here are the \
             services, the load, the batch jobs, the naps, utilisation, overlap and the policies' decisions. Not real \
             is the harm: batch on another core slows a request little, so unmanaged batch and the budget policies \
             look better in latency than they would on SMT lanes."
        ),
    };
    vec![what.to_owned(), objective, pair]
}

pub(super) fn notes(measured: &LanesMeasurements, place: ExperimentCpus, lanes: &Lanes) -> Vec<Note> {
    let mut notes = BTreeSet::from([Note::from(LabNote::FreezerEmulated)]);
    if lanes.kind == PairKind::Declared {
        notes.insert(LabNote::DeclaredPair.into());
    }
    notes.extend(measured.emulated.as_ref().map(|emulated| Note::from(emulated.note.clone())));
    let swept = [Some(&measured.search), measured.redis.as_ref()].into_iter().flatten();
    for swept in swept {
        notes.extend(client_notes(swept, place).map(Note::from));
        notes.extend(swept.seen.notes.iter().cloned());
    }
    if measured.redis.is_none() {
        notes.insert(LabNote::WithoutRedisAndStep.into());
    }
    notes.extend(measured.step.as_ref().and_then(StepRuns::note).map(Note::from));
    notes.into_iter().chain(measured.ladder.notes().into_iter().map(Note::from)).collect()
}

fn client_notes(swept: &SweepResult, place: ExperimentCpus) -> impl Iterator<Item = LabNote> {
    let (service, percent) = (swept.sweep.plan.service, swept.seen.client_percent.round() as u64);
    let lag_us = swept.seen.send_lag_us.round() as u64;
    let shares = place.is_client_on_batch_lane().then_some(LabNote::ClientOnBatchLane { service, percent });
    let late = (lag_us > SEND_LAG_LIMIT_US).then_some(LabNote::ClientLate { service, lag_us });
    shares.into_iter().chain(late)
}
