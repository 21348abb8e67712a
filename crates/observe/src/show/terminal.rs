//! An observation on a terminal: the finding, then tables without empty columns and rare values.

use std::collections::BTreeSet;

use crate::analysis::{Operand, Rate};
use crate::finding::{Finding, derive_finding};
use crate::observed::Observed;
use crate::show::outcome::key_of_rate;
use sidelane_report::{Detail, ResultFile, Row, fold};

/// Limit of the number of lines of the finding, with the cost of observing.
const LINES: usize = 10;
/// Limit of the number of rows of a tag.
const VALUES_SHOWN: usize = 8;
/// Keys of the observer's own row that show the quality of the samples. The cost is not among them: a sentence of the
/// finding has it.
const OWN_KEYS: [&str; 6] =
    ["length_s", "samples_count", "period_p50_cycles", "period_p99_cycles", "of_target_percent", "kept_percent"];
/// Smallest share of time that a tag value must have to get a row, in percent.
const SHARE_MIN_PERCENT: f64 = 0.5;

impl Observed {
    /// Returns `result`, the result of this observation, in the form for a terminal of `width` columns.
    pub fn fit_to_terminal(&self, result: &ResultFile, width: usize, detail: Detail) -> ResultFile {
        let (mut told, rest) = finding_lines(derive_finding(self), width);
        let mut shown = result.clone();
        match detail {
            Detail::Quiet => shown.rows.clear(),
            Detail::Usual => {
                let left_out;
                (shown.rows, left_out) = self.informative_rows();
                told.extend(left_out);
            }
            Detail::All => told.extend(rest),
        }
        shown.settings.insert("finding".into(), told.into());
        shown
    }

    /// Returns the rows that are informative, and a text on what was left out.
    fn informative_rows(&self) -> (Vec<Row>, Option<String>) {
        let analysis = &self.analysis;
        let mut rows = vec![self.own_row().filter_keys(|key| OWN_KEYS.contains(&key))];
        let rates = analysis.recipe().rates.iter().zip(self.rate_rows());
        rows.extend(rates.filter(|(rate, _)| self.is_rate_informative(rate)).map(|(_, row)| row));
        let events = analysis.events.iter().zip(self.event_rows());
        rows.extend(events.filter(|(events, _)| events.changes_seldom() && events.count > 0).map(|(_, row)| row));
        let mut rare = 0;
        let mut values = Vec::new();
        for tag in 0..analysis.tags.len() {
            let all = self.tag_rows(tag);
            let told = all.iter().take(VALUES_SHOWN).filter(|row| share(row) >= SHARE_MIN_PERCENT);
            let told: Vec<Row> = if all.len() > 1 { told.cloned().collect() } else { Vec::new() };
            rare += if all.len() > 1 { all.len() - told.len() } else { 0 };
            values.extend(told);
        }
        rows.extend(without_empty_columns(values, &self.uninformative_rate_keys()));
        (rows, left_out_text(rare))
    }

    /// Returns the keys of tag rows whose rates are not informative, because the counter seldom changes.
    fn uninformative_rate_keys(&self) -> BTreeSet<String> {
        let rates = self.analysis.recipe().rates.iter();
        rates.filter(|rate| !self.is_rate_informative(rate)).map(key_of_rate).collect()
    }

    /// Returns whether a rate is informative: its counter changes often.
    fn is_rate_informative(&self, rate: &Rate) -> bool {
        match (rate.count, rate.per) {
            (Operand::Counter(counter), Operand::Cycles) => !self.analysis.events[counter].changes_seldom(),
            _ => true,
        }
    }
}

/// Returns the lines of the finding that fit, with the cost and the constant signals; then the other sentences.
fn finding_lines(finding: Finding, width: usize) -> (Vec<String>, Vec<String>) {
    let Finding { mut sentences, cost, left_out } = finding;
    let lines = |text: &String| fold(text, width).len();
    let mut room = LINES.saturating_sub(lines(&cost));
    let fits = |sentence: &&String| {
        let rest = room.checked_sub(lines(sentence));
        room = rest.unwrap_or(0);
        rest.is_some()
    };
    let told = sentences.iter().take_while(fits).count();
    let rest = sentences.split_off(told);
    sentences.push(cost);
    sentences.extend(left_out);
    (sentences, rest)
}

fn share(row: &Row) -> f64 {
    row.get("share_percent").unwrap_or(0.0)
}

fn left_out_text(rare: usize) -> Option<String> {
    (rare > 0)
        .then(|| format!("Not shown without -v: {rare} rare values of tags, rates of single samples, histograms."))
}

/// Returns the rows without the columns `left_out`, and without columns that have no number other than zero.
fn without_empty_columns(rows: Vec<Row>, left_out: &BTreeSet<String>) -> Vec<Row> {
    let tells = |row: &Row, key: &str| !left_out.contains(key) && row.get(key).is_some_and(|value| value != 0.0);
    let filled: BTreeSet<String> =
        rows.iter().flat_map(|row| row.keys().filter(|key| tells(row, key)).map(str::to_owned)).collect();
    rows.iter().map(|row| row.filter_keys(|key| filled.contains(key))).collect()
}
