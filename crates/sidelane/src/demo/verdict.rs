//! From runs to one result: a row a setting, the checks, and what is real and what is not.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::{DemoOptions, Pace, Run, settings};
use crate::bench::median::median;
use crate::experiment::run::BesideFigures;
use crate::experiment::setting::Setting;
use crate::experiment::stage::Stage;
use crate::lane::books::reaction_figures;
use crate::lane::histogram::Histogram;
use crate::lane::topology::{Lanes, PairKind};
use crate::machine;
use crate::report::{Check, Curve, ResultFile, Row, Unit};

const OVERLAP_LIMIT_PERCENT: f64 = 1.0;
const OFF_P50_LIMIT_NS: f64 = 5_000.0;
const OFF_P99_LIMIT_NS: f64 = 20_000.0;
const SHARE_OF_IDLE_LIMIT_PERCENT: f64 = 90.0;
const P99_OVER_ALONE_LIMIT: f64 = 1.05;

/// Puts the result together.
pub(super) fn judge(options: &DemoOptions, stage: &Stage, pace: Pace, runs: &[Run], lanes: &Lanes) -> ResultFile {
    let mut result = ResultFile::new(machine::describe(lanes.kind), describe(options, stage, pace, lanes));
    let settings = settings::all();
    result.rows = settings.iter().map(|setting| row(*setting, runs, lanes)).collect();
    result.checks = checks(result.rows.last().expect("four settings"));
    result.notes = notes(stage, runs, lanes);
    result.curves = settings.iter().filter_map(|setting| curve(*setting, runs)).collect();
    result.timelines = runs.iter().filter_map(|run| run.figures.beside.as_ref()?.timeline.clone()).collect();
    result.timelines.sort_by_key(|timeline| settings.iter().position(|setting| setting.name == timeline.setting));
    result
}

fn describe(options: &DemoOptions, stage: &Stage, pace: Pace, lanes: &Lanes) -> Map<String, serde_json::Value> {
    let settings = json!({
        "title": "Sidelane demo: full-text search beside batch work",
        "explanation": explanation(stage, lanes),
        "lanes": stage.place.lanes(),
        "load_percent": options.load * 100.0,
        "rate_per_s": stage.rate_per_s(options.load),
        "mean_service_us": stage.mean_service_us,
        "batch": options.batch,
        "rounds_count": pace.rounds,
        "run_s": pace.run.as_secs_f64(),
        "quick": options.quick,
    });
    settings.as_object().cloned().unwrap_or_default()
}

fn explanation(stage: &Stage, lanes: &Lanes) -> Vec<String> {
    let what = "One thread serves full-text searches over real English text on the request lane; a batch job wants \
                the other lane of the pair. An open-loop client sends requests at random times, and counts each \
                latency from the moment it should have been sent."
        .to_owned();
    let pair = match lanes.kind {
        PairKind::Smt => format!(
            "CPUs {} are two lanes of one core (SMT siblings): whatever batch does beside a request takes execution \
             resources from it.",
            stage.place.lanes()
        ),
        PairKind::Declared => format!(
            "CPUs {} are declared to be a pair: they are not known to share a core. Real here are the service, \
             the load, the batch job, the kernel's accounting, the reactions, the overlap and batch's share of the \
             idle time. Not real is the harm: batch on another core slows a request little, so unmanaged batch \
             looks better in latency than it would on SMT lanes. Its overlap shows what it would do there.",
            stage.place.lanes()
        ),
    };
    vec![what, pair]
}

fn notes(stage: &Stage, runs: &[Run], lanes: &Lanes) -> Vec<String> {
    let mut notes = BTreeSet::new();
    if lanes.kind == PairKind::Declared {
        notes.insert("lanes: a declared pair, no shared core; see the explanation".to_owned());
    }
    if stage.place.client_on_batch_lane() {
        notes.insert(
            "client: no third core here, so it shares the batch lane at a real-time priority above everything; its \
             own time there is lost to batch, and a request's wake-up comes from the batch lane"
                .to_owned(),
        );
    }
    notes.extend(beside(runs, Setting::borrow_idle()).flat_map(|figures| figures.notes.iter().cloned()));
    let lag_us = runs.iter().map(|run| run.figures.latencies.send_lag_p99_us).fold(0.0, f64::max);
    if lag_us > 1_000.0 {
        notes.insert(format!(
            "client: in its worst run it sent 1 % of requests over {lag_us:.0} µs late: a busy machine"
        ));
    }
    notes.into_iter().collect()
}

fn of(runs: &[Run], setting: Setting) -> impl Iterator<Item = &Run> + Clone {
    runs.iter().filter(move |run| run.setting == setting)
}

fn beside(runs: &[Run], setting: Setting) -> impl Iterator<Item = &BesideFigures> + Clone {
    of(runs, setting).filter_map(|run| run.figures.beside.as_ref())
}

/// Medians over the rounds; ratios are taken within a round first.
fn row(setting: Setting, runs: &[Run], lanes: &Lanes) -> Row {
    let mut row = Row::new(setting.name);
    let latency = |figure: fn(&Run) -> f64| median(of(runs, setting).map(figure));
    row.put("p50_us", latency(|run| run.figures.latencies.p50_us));
    row.put("p99_us", latency(|run| run.figures.latencies.p99_us));
    row.put("max_us", of(runs, setting).map(|run| run.figures.latencies.max_us).reduce(f64::max));
    row.put("p99_over_alone", p99_over_alone(setting, runs));
    row.put("requests_count", Some(of(runs, setting).map(|run| run.figures.latencies.requests).sum::<u64>() as f64));
    if setting == Setting::ALONE {
        return row;
    }
    let figures = beside(runs, setting);
    row.put("batch_work_ratio", median(figures.clone().map(|figures| figures.batch_work_ratio)));
    let share = |figures: &BesideFigures| figures.books.batch_share_of_idle_percent(lanes);
    row.put("batch_share_of_idle_percent", median(figures.clone().filter_map(share)));
    row.put("overlap_percent", median(figures.clone().filter_map(|figures| figures.books.overlap_percent(lanes))));
    let busy = |figures: &BesideFigures| figures.books.lc_ns(lanes) as f64 * 100.0 / figures.books.at_ns as f64;
    row.put("lc_busy_percent", median(figures.clone().map(busy)));
    row.put("stolen_percent", median(figures.clone().filter_map(|figures| figures.books.stolen_percent(lanes))));
    let gaps = figures.clone().filter_map(|figures| figures.books.stolen_gap_max_us(lanes));
    row.put("stolen_gap_max_us", gaps.reduce(f64::max));
    if setting == Setting::borrow_idle() {
        put_reactions(&mut row, figures);
    }
    row
}

fn put_reactions<'a>(row: &mut Row, figures: impl Iterator<Item = &'a BesideFigures> + Clone) {
    let (mut off, mut on) = (Histogram::default(), Histogram::default());
    for figures in figures.clone() {
        off.add(figures.books.reaction_off());
        on.add(figures.books.reaction_on());
    }
    for (key, value) in reaction_figures(&off, &on) {
        row.put(key, value);
    }
    let per_s = |summons: fn(&crate::lane::books::LaneBooks) -> u64| {
        median(figures.clone().map(|figures| figures.books.sum(summons) as f64 * 1e9 / figures.books.at_ns as f64))
    };
    row.put("holds_per_s", per_s(|lane| lane.summons));
    row.put("lc_paid_holds_per_s", per_s(|lane| lane.lc_summons));
    row.put("lc_cost_per_switch_ns", median(figures.filter_map(|figures| figures.books.cost_per_switch_ns())));
}

fn p99_over_alone(setting: Setting, runs: &[Run]) -> Option<f64> {
    let pairs = of(runs, setting).filter_map(|run| {
        let alone = of(runs, Setting::ALONE).find(|alone| alone.round == run.round)?;
        Some(run.figures.latencies.p99_us / alone.figures.latencies.p99_us)
    });
    median(pairs)
}

fn checks(borrow_idle: &Row) -> Vec<Check> {
    let figure = |key| borrow_idle.get(key);
    vec![
        Check::at_most(
            "overlap, of the service's time",
            figure("overlap_percent"),
            OVERLAP_LIMIT_PERCENT,
            Unit::Percent,
        ),
        Check::at_most("service on to batch off, p50", figure("reaction_off_p50_ns"), OFF_P50_LIMIT_NS, Unit::Ns),
        Check::at_most("service on to batch off, p99", figure("reaction_off_p99_ns"), OFF_P99_LIMIT_NS, Unit::Ns),
        Check::at_least(
            "batch's share of the idle time",
            figure("batch_share_of_idle_percent"),
            SHARE_OF_IDLE_LIMIT_PERCENT,
            Unit::Percent,
        ),
        Check::at_most(
            "p99 over alone, median of pairs",
            figure("p99_over_alone"),
            P99_OVER_ALONE_LIMIT,
            Unit::OverAlone,
        ),
    ]
}

/// The curve of the setting's middle round by p99: a real run, not a blend of several.
fn curve(setting: Setting, runs: &[Run]) -> Option<Curve> {
    let mut sorted: Vec<&Run> = of(runs, setting).collect();
    sorted.sort_by(|one, other| one.figures.latencies.p99_us.total_cmp(&other.figures.latencies.p99_us));
    let middle = sorted.get(sorted.len() / 2)?;
    Some(Curve { setting: setting.name.to_owned(), points: middle.figures.latencies.curve.clone() })
}
