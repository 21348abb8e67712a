//! An observation on a terminal: what stands out, then tables without what is empty or rare.

use std::collections::BTreeSet;

use crate::analysis::{Operand, Rate};
use crate::finding::{Finding, finding};
use crate::observed::Observed;
use crate::show::outcome::key_of_rate;
use sidelane_report::{Detail, ResultFile, Row, fold};

/// The most lines of what stands out, with the cost of observing.
const LINES: usize = 10;
/// The most rows of a tag.
const VALUES_SHOWN: usize = 8;
/// Of the observer's own row, what says how good the samples are. What it cost is told in a sentence.
const OWN_KEYS: [&str; 6] =
    ["length_s", "samples_count", "period_p50_cycles", "period_p99_cycles", "of_target_percent", "kept_percent"];
/// A value with a smaller share of the time has no row.
const SHARE_MIN_PERCENT: f64 = 0.5;

impl Observed {
    /// `result`, which is this observation's, as a terminal of `width` columns shows it.
    pub fn shown(&self, result: &ResultFile, width: usize, detail: Detail) -> ResultFile {
        let (mut told, rest) = finding_lines(finding(self), width);
        let mut shown = result.clone();
        match detail {
            Detail::Quiet => shown.rows.clear(),
            Detail::Usual => {
                let left_out;
                (shown.rows, left_out) = self.telling_rows();
                told.extend(left_out);
            }
            Detail::All => told.extend(rest),
        }
        shown.settings.insert("finding".into(), told.into());
        shown
    }

    /// The rows that tell something, and what was left out.
    fn telling_rows(&self) -> (Vec<Row>, Option<String>) {
        let analysis = &self.analysis;
        let mut rows = vec![self.own_row().only(|key| OWN_KEYS.contains(&key))];
        let rates = analysis.recipe().rates.iter().zip(self.rate_rows());
        rows.extend(rates.filter(|(rate, _)| self.is_rate(rate)).map(|(_, row)| row));
        let events = analysis.events.iter().zip(self.event_rows());
        rows.extend(events.filter(|(events, _)| events.is_seldom() && events.count > 0).map(|(_, row)| row));
        let mut rare = 0;
        let mut values = Vec::new();
        for tag in 0..analysis.tags.len() {
            let all = self.tag_rows(tag);
            let told = all.iter().take(VALUES_SHOWN).filter(|row| share(row) >= SHARE_MIN_PERCENT);
            let told: Vec<Row> = if all.len() > 1 { told.cloned().collect() } else { Vec::new() };
            rare += if all.len() > 1 { all.len() - told.len() } else { 0 };
            values.extend(told);
        }
        rows.extend(without_empty_columns(values, &self.keys_of_events()));
        (rows, left_out(rare))
    }

    /// The keys under which tags' values have rates that tell nothing.
    fn keys_of_events(&self) -> BTreeSet<String> {
        let rates = self.analysis.recipe().rates.iter();
        rates.filter(|rate| !self.is_rate(rate)).map(key_of_rate).collect()
    }

    /// Whether a rate tells something: its counter changes often.
    fn is_rate(&self, rate: &Rate) -> bool {
        match (rate.count, rate.per) {
            (Operand::Counter(counter), Operand::Cycles) => !self.analysis.events[counter].is_seldom(),
            _ => true,
        }
    }
}

/// As many sentences as there is room for, what observing cost, and what did not change; then the rest.
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

fn left_out(rare: usize) -> Option<String> {
    (rare > 0)
        .then(|| format!("Not shown without -v: {rare} rare values of tags, rates of single samples, histograms."))
}

/// The rows without the columns `left_out`, and without those in which no row has a number other than zero.
fn without_empty_columns(rows: Vec<Row>, left_out: &BTreeSet<String>) -> Vec<Row> {
    let tells = |row: &Row, key: &str| !left_out.contains(key) && row.get(key).is_some_and(|value| value != 0.0);
    let filled: BTreeSet<String> =
        rows.iter().flat_map(|row| row.keys().filter(|key| tells(row, key)).map(str::to_owned)).collect();
    rows.iter().map(|row| row.only(|key| filled.contains(key))).collect()
}
