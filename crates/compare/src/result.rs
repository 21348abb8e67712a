//! Result of a comparison: a row for each setting, the checks and the verdict.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::CompareOptions;
use super::environment::Environment;
use super::figures::{Figures, Round, Setting, figures_in_rounds, overlap_of, ratio_to_alone};
use super::obstacle::{Obstacle, Stop, traffic_changed};
use super::text::{Lanes, verdict_sentence};
use super::verdict::Evaluation;
use crate::note::CompareNote;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_host::topology::PairKind;
use sidelane_lanes::gate::Gate;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::promise::{Circumstances, OverlapPromise};
use sidelane_report::{Curve, Interval, ResultFile, Row, Verdict};
use sidelane_stats::interval::ROUNDS_MIN;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::RoundOptions;
use sidelane_tracker::ledger::Ledger;

/// Columns of the table on a terminal; the HTML page shows all columns.
pub const COLUMNS: [&str; 8] = [
    "p50_us",
    "p50_over_alone",
    "p99_us",
    "p99_over_alone",
    "requests_per_s",
    "batch_cpu_per_minute_s",
    "batch_work_per_s",
    "overlap_percent",
];

/// Measurements of all rounds.
pub(super) struct Compared {
    pub(super) rounds: Vec<Round>,
    pub(super) run: Duration,
    pub(super) stop: Option<Stop>,
}

impl Compared {
    pub(super) fn to_result(
        &self,
        options: &CompareOptions,
        environment: &Environment<'_>,
        round_options: RoundOptions,
    ) -> ResultFile {
        let lanes = environment.lanes();
        let mut result = ResultFile::new(machine::describe(lanes.kind), self.describe(options, environment));
        let judged = Evaluation::judge(&self.rounds, options.bounds());
        result.rows = Setting::ALL.into_iter().map(|setting| row(setting, &self.rounds)).collect();
        result.checks = judged.checks();
        result.notes = notes_as_text(&self.notes(environment));
        result.curves = Setting::ALL.into_iter().filter_map(|setting| curve(setting, &self.rounds)).collect();
        let obstacle = Obstacle::find(&self.rounds, self.stop, options.plan(self.run));
        if judged.outcome() == Verdict::Undecided {
            let advice = obstacle.map(|obstacle| obstacle.advice()).or_else(|| judged.quiet_machine_advice());
            let open = result.checks.iter_mut().filter(|check| check.is_undecided());
            open.for_each(|check| check.decided_by = advice.clone());
            machine::store_steal_time(&mut result.machine);
            round_options.add_advice(&mut result, self.rounds.len().max(ROUNDS_MIN / 2) as u64);
        }
        let lanes = Lanes {
            request: lanes.request_lanes.to_string(),
            batch: lanes.batch_cpus().to_string(),
            share_a_core: lanes.kind == PairKind::Smt,
        };
        let said =
            verdict_sentence(&judged, &self.rounds, &lanes, obstacle, &result.advice_for_undecided_checks().join("; "));
        let said = format!("{said} Under Sidelane {}.", ledger(Setting::Sidelane, &self.rounds));
        let promise = promise(&self.rounds, options.target.to_string(), environment.gate(), environment.notes());
        if promise.is_broken() {
            let broken = promise.to_string();
            result.settings.insert("broken_promise".into(), json!([broken]));
            result.settings.insert("finding".into(), json!([broken, said]));
        } else {
            result.settings.insert("finding".into(), said.into());
        }
        result
    }

    fn describe(&self, options: &CompareOptions, environment: &Environment<'_>) -> Map<String, Value> {
        let lanes = environment.lanes();
        let words: Vec<String> = options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let settings = json!({
            "title": format!("Sidelane compare: {}, alone and beside batch", options.target),
            "explanation": EXPLANATION,
            "service": options.target.to_string(),
            "batch": words.join(" "),
            "request_lanes": lanes.request_lanes.to_string(),
            "batch_lanes": lanes.batch_cpus().to_string(),
            "unmanaged": options.unmanaged.name(),
            "policy": options.lending.policy.name(),
            "gate": environment.gate().name(),
            "requests": environment.request_source(),
            "rounds_count": self.rounds.len(),
            "run_s": self.run.as_secs_f64(),
            "settle_s": options.settle.as_secs_f64(),
            "max_slowdown_percent": ((options.bounds().max_slowdown - 1.0) * 1e4).round() / 1e2,
        });
        settings.as_object().cloned().unwrap_or_default()
    }

    fn notes(&self, environment: &Environment<'_>) -> BTreeSet<Note> {
        let mut notes = environment.notes().clone();
        if let Some(Obstacle::TrafficChanged { from_per_s, to_per_s }) = traffic_changed(&self.rounds) {
            let (from_per_s, to_per_s) = (from_per_s.round() as u64, to_per_s.round() as u64);
            notes.insert(CompareNote::TrafficChanged { from_per_s, to_per_s }.into());
        }
        notes.extend(unequal_load(&self.rounds).map(Note::from));
        let events = environment.lost_records();
        if events > 0 {
            notes.insert(CompareNote::RequestsUnread { events }.into());
        }
        notes
    }
}

const EXPLANATION: [&str; 2] = [
    "The service, its traffic and the batch command are the user's own. In each round the service runs once alone, \
     once beside unmanaged batch, and once beside batch under Sidelane, in changing order. Batch is started anew for \
     each run, and is measured after a time to settle.",
    "Times are from a request's arrival at the service to its response. Runs of one round are compared; figures are \
     the median of all rounds with its 95 % interval. Unmanaged batch is counted by the kernel program, too, which \
     costs the service some tenths of a microsecond at each switch.",
];

/// Judges the overlap of all runs under Sidelane.
fn promise(rounds: &[Round], service: String, gate: &Gate, notes: &BTreeSet<Note>) -> OverlapPromise {
    let note = LaneNote::best_overlap_explanation(notes).cloned();
    let circumstances = Circumstances { gate: gate.clone(), note, ..Circumstances::default() };
    OverlapPromise::new(service, overlap_of(rounds, Setting::Sidelane), None, circumstances)
}

/// Smallest difference of the traffic between settings that is reported.
const UNEQUAL: f64 = 0.05;

/// Returns a note if the service got fewer requests beside batch than alone. Clients that wait for answers send fewer
/// requests if the answers are slow.
fn unequal_load(rounds: &[Round]) -> Option<CompareNote> {
    let fewer = |setting| {
        let ratio = ratio_to_alone(rounds, setting, Figures::requests_per_s)?;
        let is_sure = ratio.high.is_some_and(|high| high < 1.0 - UNEQUAL);
        is_sure.then(|| CompareNote::UnequalLoad {
            setting: setting.in_words(),
            percent: ((1.0 - ratio.measured) * 100.0).round() as u64,
        })
    };
    [Setting::Unmanaged, Setting::Sidelane].into_iter().find_map(fewer)
}

/// Returns the row of a setting: medians over the rounds. Ratios are computed within a round first.
fn row(setting: Setting, rounds: &[Round]) -> Row {
    let mut row = Row::new(setting.name());
    let figure = |figure: fn(&Figures) -> Option<f64>| median(figures_in_rounds(rounds, setting, figure));
    row.put("p50_us", figure(Figures::p50_us));
    put_ratio(&mut row, "p50", ratio_to_alone(rounds, setting, Figures::p50_us));
    row.put("p99_us", figure(Figures::p99_us));
    put_ratio(&mut row, "p99", ratio_to_alone(rounds, setting, Figures::p99_us));
    row.put("requests_per_s", figure(Figures::requests_per_s));
    put_ratio(&mut row, "requests", ratio_to_alone(rounds, setting, Figures::requests_per_s));
    row.put(
        "requests_count",
        figures_in_rounds(rounds, setting, |figures| Some(figures.requests() as f64)).sum::<f64>(),
    );
    if setting == Setting::Alone {
        return row;
    }
    row.put("batch_cpu_per_minute_s", figure(Figures::batch_cpu_a_minute_s));
    row.put("batch_work_per_s", figure(Figures::batch_work_per_s));
    row.put("overlap_percent", figure(Figures::overlap_percent));
    row.put("service_summons_per_s", figure(Figures::paid_wake_ups_per_s));
    for (key, value) in ledger(setting, rounds).figures() {
        row.put(key, value);
    }
    row
}

/// Returns the ledger of the batch lanes under a setting, of all rounds.
fn ledger(setting: Setting, rounds: &[Round]) -> Ledger {
    let batch = rounds.iter().filter_map(|round| round.figures_of(setting).batch.as_ref());
    batch.map(|batch| batch.ledger.clone()).sum()
}

fn put_ratio(row: &mut Row, name: &str, ratio: Option<Interval>) {
    row.put(&format!("{name}_over_alone"), ratio.map(|ratio| ratio.measured));
    row.put(&format!("{name}_low_over_alone"), ratio.and_then(|ratio| ratio.low));
    row.put(&format!("{name}_high_over_alone"), ratio.and_then(|ratio| ratio.high));
}

/// Returns the latency curve of the setting's median round by p99: a real run, not an average of several.
fn curve(setting: Setting, rounds: &[Round]) -> Option<Curve> {
    let mut seen: Vec<_> = rounds.iter().filter_map(|round| round.figures_of(setting).seen.as_ref()).collect();
    seen.sort_by(|one, other| one.p99_us.total_cmp(&other.p99_us));
    let middle = seen.get(seen.len() / 2)?;
    Some(Curve { setting: setting.name().to_owned(), points: middle.curve.clone() })
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::promise::Overlap;

    use super::super::figures::BatchFigures;
    use super::*;

    #[test]
    fn overlap_is_judged_over_all_runs_under_sidelane() {
        let run = |overlap_ns| {
            let overlap = Overlap { service_ns: 500_000_000, overlap_ns, turns: 100 };
            Figures { batch: Some(BatchFigures { overlap, ..BatchFigures::default() }), ..Figures::default() }
        };
        // An overlap of 9 ms in 500 ms exceeds 1 %, but not the margin of 10 ms. Three such runs together exceed both.
        let mut round = Round::default();
        round.put(Setting::Unmanaged, run(400_000_000));
        round.put(Setting::Sidelane, run(9_000_000));
        let is_broken =
            |rounds| promise(&vec![round.clone(); rounds], "redis".into(), &Gate::Holder, &BTreeSet::new()).is_broken();
        assert_eq!([0, 1, 2, 3].map(is_broken), [false, false, false, true]);
    }
}
