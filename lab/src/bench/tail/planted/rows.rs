//! The rows and the picture that compare planted with named causes.

use std::collections::{BTreeMap, BTreeSet};

use super::Samples;
use super::cause::{Attribution, PlantedCause};
use super::named::PlantedRunResult;
use sidelane_report::chart::{BarRow, Bars, Quantity};
use sidelane_report::{Row, Unit};
use sidelane_stats::ranks::median;

type Counts = BTreeMap<Option<Attribution>, u64>;

/// Returns two rows for each planted cause: its figures, and how often the trace named each cause for its requests.
pub(super) fn planted_rows(samples: &Samples) -> Vec<Row> {
    let planted = || PlantedCause::ALL.iter().filter(|planted| samples.has(*planted));
    let causes: BTreeSet<Option<Attribution>> = all_attributions(samples).collect();
    let summaries = planted().map(|planted| row(planted, samples));
    summaries.chain(planted().map(|planted| confusion_row(planted, samples, &causes))).collect()
}

/// Returns the statements of traces on planted requests; a statement of several runs occurs several times.
fn all_attributions(samples: &Samples) -> impl Iterator<Item = Option<Attribution>> {
    samples.0.iter().flat_map(|sample| sample.figures.of_planted.keys().copied())
}

/// Returns a line of the confusion matrix, with a column for each of `causes`.
fn confusion_row(planted: &'static PlantedCause, samples: &Samples, causes: &BTreeSet<Option<Attribution>>) -> Row {
    let mut row = Row::new(format!("named/{}", planted.name));
    let counts = counts(planted, samples);
    for cause in causes {
        row.put(&format!("{}_count", attribution_key(*cause)), counts.get(cause).copied().unwrap_or(0) as f64);
    }
    row
}

fn row(planted: &'static PlantedCause, samples: &Samples) -> Row {
    let sum = |of: fn(&PlantedRunResult) -> u64| samples.sum(planted, |run| of(run) as f64);
    let client_us = samples.of_variant(planted).flat_map(|run| &run.figures.planted_ns).map(|ns| *ns as f64 / 1e3);
    let mut row = Row::new(format!("planted/{}", planted.name));
    row.put("client_p50_us", median(client_us));
    row.put("slow_count", sum(|run| run.slow_and_named_counts().0));
    row.put(
        "named_percent",
        sum(|run| run.slow_and_named_counts().1) * 100.0 / sum(|run| run.slow_and_named_counts().0),
    );
    row.put("wrongly_percent", sum(PlantedRunResult::wrongly_named_count) * 100.0 / sum(|run| run.others));
    row.put("not_explained_percent", sum(|run| run.not_explained_ns) * 100.0 / sum(|run| run.tail_ns));
    row.put("rebuilt_percent", sum(|run| run.whole) * 100.0 / sum(|run| run.asked));
    row
}

fn counts(planted: &'static PlantedCause, samples: &Samples) -> Counts {
    let mut all = Counts::new();
    for (named, count) in samples.of_variant(planted).flat_map(|run| &run.figures.of_planted) {
        *all.entry(*named).or_default() += count;
    }
    all
}

/// Returns the key of a statement in results, such as `run_queue`.
fn attribution_key(attribution: Option<Attribution>) -> String {
    let cause = match attribution {
        None => return "nothing".to_owned(),
        Some(Attribution::Abandoned) => return "abandoned".to_owned(),
        Some(Attribution::Cause(cause)) => cause,
    };
    let text = serde_json::to_value(cause).ok().and_then(|value| value.as_str().map(str::to_owned));
    text.unwrap_or_default().replace('-', "_")
}

/// Returns the bar chart of the causes that the trace named, per hundred slow requests with each planted cause.
pub(super) fn confusion_chart(samples: &Samples) -> Option<Bars> {
    let wanted = samples.0.iter().map(|sample| Some(sample.variant.claim));
    let named: BTreeSet<Option<Attribution>> = all_attributions(samples).chain(wanted).collect();
    let percent = |counts: &Counts, cause: &Option<Attribution>| {
        let all: u64 = counts.values().sum();
        (all > 0).then(|| counts.get(cause).copied().unwrap_or(0) as f64 * 100.0 / all as f64)
    };
    let line = |planted: &'static PlantedCause| {
        let counts = counts(planted, samples);
        BarRow { name: planted.name.to_owned(), values: named.iter().map(|cause| percent(&counts, cause)).collect() }
    };
    let bars = Bars {
        title: "Planted against named".to_owned(),
        caption: "Of a hundred slow requests of each planted cause, what the trace named for them.".to_owned(),
        of: "planted".to_owned(),
        columns: named
            .iter()
            .map(|cause| Quantity { name: attribution_text(*cause).to_owned(), unit: Unit::Percent })
            .collect(),
        rows: PlantedCause::ALL.iter().filter(|planted| samples.has(*planted)).map(line).collect(),
    };
    Some(bars).filter(|bars| !bars.rows.is_empty())
}

fn attribution_text(attribution: Option<Attribution>) -> &'static str {
    attribution.map_or("nothing", Attribution::text)
}
