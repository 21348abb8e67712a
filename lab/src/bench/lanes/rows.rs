//! The table rows of a sweep.

use super::samples::{Figures, SampleKey};
use super::sweep::Sweep;
use crate::experiment::setting::Setting;
use sidelane_policy::borrow::Budget;
use sidelane_report::Row;

/// Returns a row for each load, batch kernel and setting, with medians over the rounds. Ratios are computed within a
/// round first.
pub(super) fn of_sweep(sweep: &Sweep) -> Vec<Row> {
    let mut rows = Vec::new();
    for load in &sweep.plan.loads {
        let settings = sweep.settings(*load);
        rows.extend(
            settings.iter().filter(|setting| setting.beside.is_none()).map(|alone| row(sweep, *load, "", alone)),
        );
        for batch in &sweep.plan.batches {
            let at = |setting: &Setting| SampleKey { load: *load, batch, setting: setting.name };
            let ran = |setting: &&Setting| sweep.samples.at(at(setting)).next().is_some();
            let beside = settings.iter().filter(|setting| setting.beside.is_some()).filter(ran);
            rows.extend(beside.map(|setting| row(sweep, *load, batch, setting)));
        }
    }
    rows
}

/// Returns the name of a row, such as `search/alone` or `search+matrix/borrow_idle`.
fn name(service: &str, batch: &str, setting: &Setting) -> String {
    let separator = if batch.is_empty() { "" } else { "+" };
    format!("{service}{separator}{batch}/{}", setting.name)
}

fn row(sweep: &Sweep, load: u8, batch: &str, setting: &Setting) -> Row {
    let at = SampleKey { load, batch, setting: setting.name };
    let median = |figure: fn(&Figures) -> Option<f64>| sweep.samples.median(at, figure);
    let mut row = Row::new(name(sweep.plan.service, batch, setting));
    row.put("load_percent", f64::from(load));
    row.put("p50_us", median(|run| Some(run.p50_us)));
    row.put("p95_us", median(|run| Some(run.p95_us)));
    row.put("p99_us", median(|run| Some(run.p99_us)));
    row.put("client_p99_us", median(|run| run.client_p99_us));
    let p99_us = |run: &Figures| Some(run.p99_us);
    row.put("p99_over_alone", sidelane_stats::ranks::median(sweep.samples.ratios(at, Setting::ALONE.name, p99_us)));
    row.put("slo_us", sweep.promise.slo_us);
    row.put("budget_us", spends_us(setting));
    row.put("utilisation_ratio", median(|run| Some(run.utilisation())));
    row.put("service_utilisation_ratio", median(|run| Some(run.lc_utilisation)));
    row.put("batch_utilisation_ratio", median(|run| run.batch_utilisation));
    row.put("batch_work_ratio", median(|run| run.batch_work_ratio));
    row.put("overlap_percent", median(|run| run.overlap_percent));
    row.put("lent_overlap_percent", median(|run| run.lent_overlap_percent));
    let contention_cost = sweep.samples.contention_cost(at).filter(|_| setting.learns_contention_cost());
    row.put("contention_cost_learned_percent", contention_cost.map(|contention_cost| 100.0 * contention_cost.mean));
    row.put("contention_cost_margin_percent", contention_cost.map(|contention_cost| 100.0 * contention_cost.margin()));
    row.put("requests_count", sweep.samples.at(at).map(|run| run.figures.requests).sum::<f64>());
    row.put("rounds_count", sweep.samples.at(at).count() as f64);
    row
}

/// Returns the time by which batch may delay a request. Under `deadline` it is the request age until which batch may
/// run.
fn spends_us(setting: &Setting) -> Option<f64> {
    match setting.beside?.hold?.budget {
        Budget::Given(ns) => Some(ns as f64 / 1e3),
        Budget::None | Budget::Slo(_) => None,
    }
}
