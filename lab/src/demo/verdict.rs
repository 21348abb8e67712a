//! The result of the demo: a row for each setting, the checks, and a text on which parts are real.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Run, Subject, settings};
use crate::experiment::comparison::Report;
use crate::experiment::fixture::Fixture;
use crate::experiment::run::BesideFigures;
use crate::experiment::setting::Setting;
use crate::experiment::sibling::EmulatedSibling;
use crate::note::LabNote;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_host::topology::{Lanes, PairKind};
use sidelane_report::{Check, Curve, ResultFile, Row, Unit, finding};
use sidelane_requests::at_socket::SocketTimes;
use sidelane_requests::can_track;
use sidelane_stats::interval::{bootstrap_interval, median_interval};
use sidelane_stats::ranks::median;
use sidelane_tracker::accounting::reaction_percentiles;
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::ledger::Ledger;

const SERVICE: &str = "search";
/// Largest p99 of the client's sending delay; a client with a larger delay is too busy itself.
const SEND_LAG_LIMIT_US: u64 = 1_000;
const OVERLAP_LIMIT_PERCENT: f64 = 1.0;
const OFF_P50_LIMIT_NS: f64 = 5_000.0;
const OFF_P99_LIMIT_NS: f64 = 20_000.0;
const IDLE_USED_LIMIT_PERCENT: f64 = 97.0;

/// Makes the result file from all runs of `rounds` rounds.
pub(super) fn build_result(subject: &Subject<'_>, (runs, rounds): (&[Run], u64), lanes: &Lanes) -> ResultFile {
    let Subject { options, fixture, adaptation, .. } = *subject;
    let settings = settings::compared_settings();
    let report = Report {
        rows: settings.iter().map(|setting| row(*setting, runs, lanes)).collect(),
        checks: checks(runs, lanes, adaptation.p99_bound()),
        notes: notes_as_text(&notes(fixture, runs, lanes)),
        ..Report::with_settings(settings_json(subject, runs, lanes))
    };
    let mut result = report.into_result_file(lanes.kind, options.round_options, rounds);
    result.curves = settings.iter().filter_map(|setting| curve(*setting, runs)).collect();
    result.timelines = runs.iter().filter_map(|run| run.figures.beside.as_ref()?.timeline.clone()).collect();
    let idle_time = ledger(runs, lanes);
    let finding = format!("{} With Sidelane, {idle_time}.", finding::sharing_finding(&result, "search"));
    result.settings.insert("finding".into(), finding.into());
    result.timelines.sort_by_key(|timeline| settings.iter().position(|setting| setting.name == timeline.setting));
    result
}

fn settings_json(subject: &Subject<'_>, runs: &[Run], lanes: &Lanes) -> Value {
    let Subject { options, fixture, plan, adaptation } = subject;
    json!({
        "title": "Sidelane demo: full-text search beside batch work",
        "explanation": explanation(fixture, lanes),
        "lanes": fixture.place.lanes(),
        "sibling": fixture.sibling.as_ref().map(EmulatedSibling::title),
        "load_percent": adaptation.load * 100.0,
        "rate_per_s": fixture.rate_per_s(adaptation.load),
        "adaptation": adaptation.sentence(),
        "mean_service_us": fixture.mean_service_us,
        "batch": options.batch,
        "rounds_count": runs_of_setting(runs, Setting::ALONE).count(),
        "rounds_limit_count": plan.limit.rounds,
        "run_s": plan.run.as_secs_f64(),
    })
}

fn explanation(fixture: &Fixture, lanes: &Lanes) -> Vec<String> {
    let what = "One thread serves full-text searches over real English text on the request lane; a batch job wants \
                the other lane of the pair. An open-loop client sends requests at random times, and counts each \
                latency from the moment it should have been sent."
        .to_owned();
    let pair = match (lanes.kind, &fixture.sibling) {
        (_, Some(sibling)) => sibling.explanation(&fixture.place.lanes()),
        (PairKind::Smt, None) => format!(
            "CPUs {} are two lanes of one core (SMT siblings): whatever batch does beside a request takes execution \
             resources from it.",
            fixture.place.lanes()
        ),
        (PairKind::Declared, None) => format!(
            "CPUs {} are declared to be a pair: they are not known to share a core. Real here are the service, \
             the load, the batch job, the kernel's accounting, the reactions, the overlap and batch's share of the \
             idle time. Not real is the harm: batch on another core slows a request little, so unmanaged batch \
             looks better in latency than it would on SMT lanes. Its overlap shows what it would do there.",
            fixture.place.lanes()
        ),
    };
    [what, pair].into_iter().chain(socket_latency_note(fixture)).collect()
}

/// Returns a note if the checks use latencies at the socket instead of the client's.
fn socket_latency_note(fixture: &Fixture) -> Option<String> {
    let words = "The client has no CPU of its own here and is in the way of what it measures. So p99 over alone and \
                 the curves are of the time from a request's arrival at the service's socket to its response (socket \
                 p50 and p99), which all settings, the service alone too, are watched for alike; p50, p99 and max are \
                 the client's.";
    (fixture.place.is_client_on_batch_lane() && can_track().is_ok()).then(|| words.to_owned())
}

fn notes(fixture: &Fixture, runs: &[Run], lanes: &Lanes) -> BTreeSet<Note> {
    let most = |figure: fn(&Run) -> f64| runs.iter().map(figure).fold(0.0, f64::max).round() as u64;
    let mut notes = BTreeSet::new();
    if lanes.kind == PairKind::Declared {
        notes.insert(LabNote::DeclaredPair.into());
    }
    notes.extend(fixture.sibling.as_ref().map(EmulatedSibling::note).map(Note::from));
    if fixture.place.is_client_on_batch_lane() {
        let percent = most(|run| run.figures.latencies.cpu_percent);
        notes.insert(LabNote::ClientOnBatchLane { service: SERVICE, percent }.into());
    }
    if fixture.place.is_client_on_batch_lane()
        && runs_of_setting(runs, Setting::ALONE).any(|run| run.figures.at_socket.is_none())
    {
        notes.insert(LabNote::SocketsUnseen.into());
    }
    notes.extend(figures_beside_batch(runs, Setting::borrow_idle()).flat_map(|figures| figures.notes.iter().cloned()));
    let lag_us = most(|run| run.figures.latencies.send_lag_p99_us);
    if lag_us > SEND_LAG_LIMIT_US {
        notes.insert(LabNote::ClientLate { service: SERVICE, lag_us }.into());
    }
    notes
}

fn runs_of_setting(runs: &[Run], setting: Setting) -> impl Iterator<Item = &Run> + Clone {
    runs.iter().filter(move |run| run.setting == setting)
}

fn figures_beside_batch(runs: &[Run], setting: Setting) -> impl Iterator<Item = &BesideFigures> + Clone {
    runs_of_setting(runs, setting).filter_map(|run| run.figures.beside.as_ref())
}

/// Returns the row of a setting: medians over the rounds. Ratios are computed within a round first.
fn row(setting: Setting, runs: &[Run], lanes: &Lanes) -> Row {
    let mut row = Row::new(setting.name);
    let latency = |figure: fn(&Run) -> f64| median(runs_of_setting(runs, setting).map(figure));
    row.put("p50_us", latency(|run| run.figures.latencies.p50_us));
    row.put("p99_us", latency(|run| run.figures.latencies.p99_us));
    let at_socket = |figure: fn(&SocketTimes) -> f64| {
        median(runs_of_setting(runs, setting).filter_map(|run| run.figures.at_socket.as_ref()).map(figure))
    };
    row.put("socket_p50_us", at_socket(|seen| seen.p50_us));
    row.put("socket_p99_us", at_socket(|seen| seen.p99_us));
    row.put("max_us", runs_of_setting(runs, setting).map(|run| run.figures.latencies.max_us).reduce(f64::max));
    let over_alone = median_interval(p99_over_alone(setting, runs));
    row.put("p99_over_alone", over_alone.map(|ratio| ratio.measured));
    row.put("p99_low_over_alone", over_alone.and_then(|ratio| ratio.low));
    row.put("p99_high_over_alone", over_alone.and_then(|ratio| ratio.high));
    row.put(
        "requests_count",
        Some(runs_of_setting(runs, setting).map(|run| run.figures.latencies.requests).sum::<u64>() as f64),
    );
    if setting == Setting::ALONE {
        return row;
    }
    let figures = figures_beside_batch(runs, setting);
    row.put("batch_work_ratio", median(figures.clone().map(|figures| figures.batch_work_ratio)));
    let share = |figures: &BesideFigures| figures.accounting.batch_share_of_idle_percent(lanes);
    row.put("batch_share_of_idle_percent", median(figures.clone().filter_map(share)));
    row.put("overlap_percent", median(figures.clone().filter_map(|figures| figures.accounting.overlap_percent(lanes))));
    let busy =
        |figures: &BesideFigures| figures.accounting.service_ns(lanes) as f64 * 100.0 / figures.accounting.at_ns as f64;
    row.put("service_busy_percent", median(figures.clone().map(busy)));
    row.put("stolen_percent", median(figures.clone().filter_map(|figures| figures.accounting.stolen_percent(lanes))));
    let gaps = figures.clone().filter_map(|figures| figures.accounting.stolen_gap_max_us(lanes));
    row.put("stolen_gap_max_us", gaps.reduce(f64::max));
    if setting == Setting::borrow_idle() {
        put_reactions(&mut row, figures);
        for (key, value) in ledger(runs, lanes).figures() {
            row.put(key, value);
        }
    }
    row
}

/// Returns the ledger of the batch lanes under borrow idle, of all rounds.
fn ledger(runs: &[Run], lanes: &Lanes) -> Ledger {
    let figures = figures_beside_batch(runs, Setting::borrow_idle());
    figures.map(|figures| figures.accounting.ledger(&lanes.batch_cpus())).sum()
}

fn put_reactions<'a>(row: &mut Row, figures: impl Iterator<Item = &'a BesideFigures> + Clone) {
    let (mut off, mut on) = (Histogram::default(), Histogram::default());
    for figures in figures.clone() {
        off.add(figures.accounting.batch_off_latencies());
        on.add(figures.accounting.batch_on_latencies());
    }
    for (key, value) in reaction_percentiles(&off, &on) {
        row.put(key, value);
    }
    let per_s = |summons: fn(&sidelane_tracker::accounting::LaneAccounting) -> u64| {
        median(
            figures
                .clone()
                .map(|figures| figures.accounting.sum(summons) as f64 * 1e9 / figures.accounting.at_ns as f64),
        )
    };
    row.put("holds_per_s", per_s(|lane| lane.summons));
    row.put("service_summons_per_s", per_s(|lane| lane.lc_summons));
    row.put("cost_per_switch_ns", median(figures.filter_map(|figures| figures.accounting.cost_per_switch_ns())));
}

/// Returns p99 over the p99 alone for each round in which the setting took part.
fn p99_over_alone(setting: Setting, runs: &[Run]) -> impl Iterator<Item = f64> {
    runs_of_setting(runs, setting).filter_map(|run| {
        let alone = runs_of_setting(runs, Setting::ALONE).find(|alone| alone.round == run.round)?;
        Some(run.figures.p99_us() / alone.figures.p99_us())
    })
}

/// Checks Sidelane's promises under borrow idle. Percentiles of the reaction time are over all rounds together.
pub(super) fn checks(runs: &[Run], lanes: &Lanes, p99_bound: f64) -> Vec<Check> {
    let figures: Vec<&BesideFigures> = figures_beside_batch(runs, Setting::borrow_idle()).collect();
    let each =
        |figure: &dyn Fn(&BesideFigures) -> Option<f64>| median_interval(figures.iter().filter_map(|run| figure(run)));
    let off = |percentile| bootstrap_interval(&figures, |drawn| batch_off_latency_ns(drawn, percentile));
    let overlap = each(&|run| run.accounting.overlap_percent(lanes));
    let used = each(&|run| run.accounting.ledger(&lanes.batch_cpus()).used_percent());
    let p99 = median_interval(p99_over_alone(Setting::borrow_idle(), runs));
    let most = Check::interval_at_most;
    vec![
        most("overlap, of the service's time", overlap, OVERLAP_LIMIT_PERCENT, Unit::Percent),
        most("service on to batch off, p50", off(50.0), OFF_P50_LIMIT_NS, Unit::Ns),
        most("service on to batch off, p99", off(99.0), OFF_P99_LIMIT_NS, Unit::Ns),
        Check::interval_at_least("idle time used by batch and others", used, IDLE_USED_LIMIT_PERCENT, Unit::Percent),
        most("p99 over alone, median of pairs", p99, p99_bound, Unit::OverAlone),
    ]
}

/// Returns a percentile, over these runs, of the time from the service's start on its lane until batch is off the other
/// lane, in nanoseconds.
fn batch_off_latency_ns(runs: &[&&BesideFigures], percentile: f64) -> Option<f64> {
    let mut all = Histogram::default();
    runs.iter().for_each(|run| all.add(run.accounting.batch_off_latencies()));
    all.percentile_ns(percentile).map(|ns| ns as f64)
}

/// Returns the latency curve of the setting's round with the median p99, which is a real run and no average.
fn curve(setting: Setting, runs: &[Run]) -> Option<Curve> {
    let mut sorted: Vec<&Run> = runs_of_setting(runs, setting).collect();
    sorted.sort_by(|one, other| one.figures.p99_us().total_cmp(&other.figures.p99_us()));
    let middle = sorted.get(sorted.len() / 2)?;
    Some(Curve { setting: setting.name.to_owned(), points: middle.figures.curve().to_vec() })
}
