//! The table rows of a sweep.

use super::samples::{Figures, SampleKey};
use super::sweep::SweepResult;
use crate::experiment::setting::Setting;
use sidelane_policy::borrow::Budget;
use sidelane_report::Row;

/// Returns a row for each load, batch kernel and setting, with medians over the rounds. Ratios are computed within a
/// round first.
pub(super) fn sweep_rows(swept: &SweepResult) -> Vec<Row> {
    let plan = &swept.sweep.plan;
    let batches = || [""].into_iter().chain(plan.batches.iter().copied());
    let mut rows = Vec::new();
    for load in &plan.loads {
        let settings = swept.sweep.settings(*load);
        for batch in batches() {
            let own = settings.iter().filter(|setting| setting.beside.is_none() == batch.is_empty());
            let ran = |setting: &&Setting| swept.samples.has(SampleKey::new(*load, batch, setting.name));
            rows.extend(own.filter(ran).map(|setting| row(swept, *load, batch, setting)));
        }
    }
    rows
}

/// Returns the name of a row, such as `search/alone` or `search+matrix/borrow_idle`.
fn row_name(service: &str, batch: &str, setting: &Setting) -> String {
    let separator = if batch.is_empty() { "" } else { "+" };
    format!("{service}{separator}{batch}/{}", setting.name)
}

fn row(swept: &SweepResult, load: u8, batch: &'static str, setting: &Setting) -> Row {
    let (cell, samples) = (SampleKey::new(load, batch, setting.name), &swept.samples);
    let median = |figure: fn(&Figures) -> Option<f64>| samples.median(cell, figure);
    let over_alone = samples
        .compare_by_round(cell, cell.with_setting(Setting::ALONE.name), |one, alone| Some(one.p99_us / alone.p99_us));
    let contention_cost = samples
        .of_variant(cell)
        .last()
        .and_then(|last| last.figures.contention_cost)
        .filter(|_| setting.learns_contention_cost());
    let mut row = Row::new(row_name(swept.sweep.plan.service, batch, setting));
    row.put("load_percent", f64::from(load));
    row.put("p50_us", median(|run| Some(run.p50_us)));
    row.put("p95_us", median(|run| Some(run.p95_us)));
    row.put("p99_us", median(|run| Some(run.p99_us)));
    row.put("client_p99_us", median(|run| run.client_p99_us));
    row.put("p99_over_alone", sidelane_stats::ranks::median(over_alone));
    row.put("slo_us", swept.sweep.objective.slo_us);
    row.put("budget_us", setting_budget_us(setting));
    row.put("utilisation_ratio", median(|run| Some(run.utilisation())));
    row.put("service_utilisation_ratio", median(|run| Some(run.lc_utilisation)));
    row.put("batch_utilisation_ratio", median(|run| run.batch_utilisation));
    row.put("batch_work_ratio", median(|run| run.batch_work_ratio));
    row.put("overlap_percent", median(|run| run.overlap_percent));
    row.put("lent_overlap_percent", median(|run| run.lent_overlap_percent));
    row.put("contention_cost_learned_percent", contention_cost.map(|contention_cost| 100.0 * contention_cost.mean));
    row.put("contention_cost_margin_percent", contention_cost.map(|contention_cost| 100.0 * contention_cost.margin()));
    row.put("requests_count", samples.sum(cell, |run| run.requests));
    row.put("rounds_count", samples.of_variant(cell).count() as f64);
    row
}

/// Returns the time by which batch may delay a request; under the policy `deadline` the request age until which batch
/// may run.
fn setting_budget_us(setting: &Setting) -> Option<f64> {
    match setting.beside?.hold?.budget {
        Budget::Given(ns) => Some(ns as f64 / 1e3),
        Budget::None | Budget::Slo(_) => None,
    }
}
