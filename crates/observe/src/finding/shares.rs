//! Sentences on the share of time of a tag's values.

use super::evidence::{Evidence, format_percent};
use crate::analysis::tags::{TagTable, ValueCounts as Value};

/// Limit of the number of values of a tag in a sentence.
const VALUES_TOLD: usize = 3;
/// Smallest share of time that a tag value must have to be named in a sentence.
const SHARE_MIN: f64 = 0.005;
/// Smallest mean number of samples in a turn of a value at which its turns are reported. A value with shorter turns may
/// occur more often than it is seen.
const SAMPLES_A_TURN: f64 = 4.0;

/// Returns a sentence for each tag that changed. A tag whose time is spread over more values comes first.
pub(super) fn share_sentences(seen: &Evidence<'_>) -> Vec<String> {
    let tables = seen.analysis.tags.iter().enumerate();
    let mut spread: Vec<(f64, usize)> =
        tables.filter_map(|(tag, table)| Some((share_outside_most_frequent(table)?, tag))).collect();
    spread.sort_by(|one, other| other.0.total_cmp(&one.0));
    spread.into_iter().map(|(_, tag)| share_sentence(seen, tag)).collect()
}

/// Returns the share of time of all values but the most frequent; `None` for a tag that did not change.
fn share_outside_most_frequent(table: &TagTable) -> Option<f64> {
    let values = values_by_share(table);
    (values.len() > 1).then(|| 1.0 - values[0].1)
}

/// Returns the values of a tag with their shares of time, the largest first.
fn values_by_share(table: &TagTable) -> Vec<(Value, f64)> {
    let share_of = table.time_share_function();
    let mut values: Vec<(Value, f64)> =
        table.values_by_frequency().into_iter().map(|(value, _)| (value, share_of(&value))).collect();
    values.sort_by(|one, other| other.1.total_cmp(&one.1));
    values
}

fn share_sentence(seen: &Evidence<'_>, tag: usize) -> String {
    let values = values_by_share(&seen.analysis.tags[tag]);
    let is_told = |(place, (_, share)): &(usize, &(Value, f64))| *place < 1 || *share >= SHARE_MIN;
    let told: Vec<&(Value, f64)> =
        values.iter().enumerate().filter(is_told).map(|(_, value)| value).take(VALUES_TOLD).collect();
    let mut parts: Vec<String> =
        told.iter().enumerate().map(|(place, value)| describe_value_share(seen, tag, place, value)).collect();
    let rest = values.len() - told.len();
    if rest > 0 {
        let share = 1.0 - told.iter().map(|(_, share)| share).sum::<f64>();
        parts.push(format!("{rest} other{} for {}", if rest == 1 { "" } else { "s" }, format_percent(share.max(0.0))));
    }
    format!("{} is {}.", seen.names.tag(tag), parts.join(", "))
}

/// Returns the text on one value, such as "G1 Evacuation Pause for 32 % (150 a second, 2.1 ms each)".
fn describe_value_share(seen: &Evidence<'_>, tag: usize, rank: usize, (value, share): &(Value, f64)) -> String {
    let name = seen.names.value(tag, value.value);
    match rank {
        0 => format!("{name} for {} {}", format_percent(*share), seen.share_reference_text(tag)),
        _ => format!("{name} for {}{}", format_percent(*share), describe_turns(seen, value).unwrap_or_default()),
    }
}

/// Returns a text on how often the value occurred and how long it stayed; `None` if samples are too far apart to show
/// that.
fn describe_turns(seen: &Evidence<'_>, value: &Value) -> Option<String> {
    let (analysis, period) = (seen.analysis, seen.analysis.periods.mean()?);
    // Without measured periods, each sample counts as one mean period.
    let cycles = if value.cycles > 0 { value.cycles as f64 } else { value.samples as f64 * period };
    let each = cycles / value.turns as f64;
    let looked_s = seen.seconds(analysis.looked_cycles);
    if value.turns < 2 || each < SAMPLES_A_TURN * period || looked_s <= 0.0 {
        return None;
    }
    Some(format!(
        " ({} a second, {} each)",
        super::events::format_frequency(value.turns as f64 / looked_s),
        seen.format_duration(each)
    ))
}
