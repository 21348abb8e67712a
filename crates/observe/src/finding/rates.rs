//! Sentences on rates that differ between the values of a tag.

use super::evidence::{Evidence, format_percent};
use crate::analysis::tags::{RateSum, ValueCounts as Value};
use crate::analysis::{Operand, Rate};
use crate::cost::EVENTS_MIN;
use crate::show::view::{RateUnit, format_rate, rate_unit};

/// Smallest share of time that a tag value must have for its rates to be compared.
const SHARE_MIN: f64 = 0.01;
/// Smallest quotient of two rates at which their difference is reported.
const QUOTIENT_MIN: f64 = 1.25;

/// One value of a tag, with a rate during that value.
struct RateDuringValue {
    value: u64,
    share: f64,
    mean: f64,
    per: u64,
}

impl RateDuringValue {
    fn from_sum(value: &Value, sum: &RateSum, share: f64) -> Option<Self> {
        Some(Self { value: value.value, share, mean: sum.mean()?, per: sum.per })
    }

    /// Returns the number of events to expect during this tag value if the rate were `mean_rate`.
    fn expected_events(&self, mean_rate: f64) -> f64 {
        self.per as f64 * mean_rate
    }
}

/// Returns a sentence for each tag and rate that differs between the tag's values. The greatest difference over the
/// longest time comes first.
pub(super) fn rate_sentences(seen: &Evidence<'_>) -> Vec<String> {
    let rates = seen.analysis.recipe().rates.iter().enumerate().filter(|(_, rate)| is_rate_comparable(seen, rate));
    let pairs = rates.flat_map(|(number, rate)| {
        let tags = (0..seen.analysis.tags.len()).filter(|tag| !changes_with_tag(seen, rate, *tag));
        tags.filter_map(move |tag| compare_rate_over_tag(seen, (number, rate), tag))
    });
    let mut told: Vec<(f64, String)> = pairs.collect();
    told.sort_by(|one, other| other.0.total_cmp(&one.0));
    told.into_iter().map(|(_, sentence)| sentence).collect()
}

/// Returns whether the rate is compared between tag values. Cycles per cycle describe only the observer. A counter that
/// seldom changes is reported as events.
fn is_rate_comparable(seen: &Evidence<'_>, rate: &Rate) -> bool {
    match (rate.count, rate.per) {
        (Operand::Counter(counter), Operand::Cycles) => !seen.analysis.events[counter].changes_seldom(),
        (Operand::Counter(_), _) => true,
        _ => false,
    }
}

fn changes_with_tag(seen: &Evidence<'_>, rate: &Rate, tag: usize) -> bool {
    matches!(rate.count, Operand::Counter(counter) if seen.change_together(counter, tag))
}

fn compare_rate_over_tag(seen: &Evidence<'_>, (number, rate): (usize, &Rate), tag: usize) -> Option<(f64, String)> {
    let table = &seen.analysis.tags[tag];
    let share_of = table.time_share_function();
    let hottest = table.values_by_frequency();
    let values =
        hottest.iter().filter_map(|(value, sums)| RateDuringValue::from_sum(value, &sums[number], share_of(value)));
    let mut values: Vec<RateDuringValue> = values.filter(|value| value.share >= SHARE_MIN).collect();
    values.sort_by(|one, other| other.mean.total_cmp(&one.mean));
    let (fast, slow) = (values.first()?, values.last()?);
    // With fewer events the difference between the two rates may be chance.
    let enough = fast.expected_events(fast.mean).min(slow.expected_events(fast.mean)) >= EVENTS_MIN as f64;
    let quotient = fast.mean / slow.mean;
    // If the slow rate is zero, the sentence says "nothing" and has no quotient.
    (enough && quotient >= QUOTIENT_MIN).then(|| {
        let weight = fast.share.min(slow.share) * quotient.min(100.0).ln();
        (weight, rate_sentence(seen, rate, tag, (fast, slow)))
    })
}

fn rate_sentence(
    seen: &Evidence<'_>,
    rate: &Rate,
    tag: usize,
    (fast, slow): (&RateDuringValue, &RateDuringValue),
) -> String {
    let words = |mean: f64| match mean {
        0.0 => "nothing".to_owned(),
        mean => format_rate(rate, mean, &seen.clock),
    };
    let times = match (slow.mean, rate_unit(rate)) {
        (0.0, _) => String::new(),
        (_, RateUnit::PerSecond) => format!(", {:.1} times as many", fast.mean / slow.mean),
        (_, RateUnit::Quotient) => format!(", {:.1} times as high", fast.mean / slow.mean),
    };
    format!(
        "{}: {} while {} is {} ({} {}), {} while it is {} ({}){times}.",
        rate.name,
        words(fast.mean),
        seen.names.tag(tag),
        seen.names.value(tag, fast.value),
        format_percent(fast.share),
        seen.share_reference_text(tag),
        words(slow.mean),
        seen.names.value(tag, slow.value),
        format_percent(slow.share)
    )
}
