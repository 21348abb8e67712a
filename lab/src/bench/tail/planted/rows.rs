//! The rows and the picture that compare planted with named causes.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::{Claim, Planted};
use super::named::Named;
use sidelane_report::chart::{BarRow, Bars, Quantity};
use sidelane_report::{Row, Unit};
use sidelane_stats::ranks::median;

type Counts = BTreeMap<Option<Claim>, u64>;

/// Returns a row for each planted cause, and then a row with the causes that were named for it.
pub(super) fn of(seen: &[Named]) -> Vec<Row> {
    let planted = || Planted::ALL.iter().map(|planted| (planted, of_cause(seen, planted)));
    let summaries = planted().filter_map(|(planted, runs)| row(planted, &runs));
    let causes: BTreeSet<Option<Claim>> = seen.iter().flat_map(|run| run.of_planted.keys().copied()).collect();
    let named = planted().filter(|(_, runs)| !runs.is_empty()).map(|(planted, runs)| named(planted, &runs, &causes));
    summaries.chain(named).collect()
}

/// Returns a line of the confusion matrix, with a column for each of `causes`.
fn named(planted: &Planted, runs: &[&Named], causes: &BTreeSet<Option<Claim>>) -> Row {
    let mut row = Row::new(format!("named/{}", planted.name));
    let counts = counts(runs);
    for cause in causes {
        row.put(&format!("{}_count", key(*cause)), counts.get(cause).copied().unwrap_or(0) as f64);
    }
    row
}

fn of_cause<'a>(seen: &'a [Named], planted: &Planted) -> Vec<&'a Named> {
    seen.iter().filter(|run| run.planted == planted).collect()
}

fn row(planted: &Planted, runs: &[&Named]) -> Option<Row> {
    let sum = |of: fn(&Named) -> u64| runs.iter().map(|run| of(run)).sum::<u64>() as f64;
    if runs.is_empty() {
        return None;
    }
    let mut row = Row::new(format!("planted/{}", planted.name));
    row.put("client_p50_us", median(runs.iter().flat_map(|run| &run.planted_ns).map(|ns| *ns as f64 / 1e3)));
    row.put("slow_count", sum(|run| run.right().0));
    row.put("named_percent", sum(|run| run.right().1) * 100.0 / sum(|run| run.right().0));
    row.put("wrongly_percent", sum(Named::wrong) * 100.0 / sum(|run| run.others));
    row.put("not_explained_percent", sum(|run| run.not_explained_ns) * 100.0 / sum(|run| run.tail_ns));
    row.put("rebuilt_percent", sum(|run| run.whole) * 100.0 / sum(|run| run.asked));
    Some(row)
}

fn counts(runs: &[&Named]) -> Counts {
    let mut all = Counts::new();
    for (named, count) in runs.iter().flat_map(|run| &run.of_planted) {
        *all.entry(*named).or_default() += count;
    }
    all
}

/// Returns the key of a statement in results, such as `run_queue`.
fn key(named: Option<Claim>) -> String {
    let cause = match named {
        None => return "nothing".to_owned(),
        Some(Claim::Abandoned) => return "abandoned".to_owned(),
        Some(Claim::Cause(cause)) => cause,
    };
    let text = serde_json::to_value(cause).ok().and_then(|value| value.as_str().map(str::to_owned));
    text.unwrap_or_default().replace('-', "_")
}

/// Returns the picture of the causes that were named for a hundred slow requests with each planted cause.
pub(super) fn confusion(seen: &[Named]) -> Option<Bars> {
    let runs = |planted: &Planted| of_cause(seen, planted);
    let named: BTreeSet<Option<Claim>> =
        seen.iter().flat_map(|run| run.of_planted.keys().copied().chain([Some(run.planted.claim)])).collect();
    let percent = |counts: &Counts, cause: &Option<Claim>| {
        let all: u64 = counts.values().sum();
        (all > 0).then(|| counts.get(cause).copied().unwrap_or(0) as f64 * 100.0 / all as f64)
    };
    let line = |planted: &Planted| {
        let counts = counts(&runs(planted));
        BarRow { name: planted.name.to_owned(), values: named.iter().map(|cause| percent(&counts, cause)).collect() }
    };
    let bars = Bars {
        title: "Planted against named".to_owned(),
        caption: "Of a hundred slow requests of each planted cause, what the trace named for them.".to_owned(),
        of: "planted".to_owned(),
        columns: named.iter().map(|cause| Quantity { name: text(*cause).to_owned(), unit: Unit::Percent }).collect(),
        rows: Planted::ALL.iter().filter(|planted| !runs(planted).is_empty()).map(line).collect(),
    };
    Some(bars).filter(|bars| !bars.rows.is_empty())
}

fn text(named: Option<Claim>) -> &'static str {
    named.map_or("nothing", Claim::text)
}
