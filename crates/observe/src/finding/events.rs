//! Sentences on counters that change in few samples, as single events.

use super::evidence::{Evidence, format_percent};
use crate::analysis::events::Events;
use sidelane_report::Unit;

/// Number of distances from which the 1st and 99th percentiles are shown. With fewer distances, the least and the
/// greatest are shown.
const DISTANCES_FOR_PERCENTILES: u64 = 100;
/// Number of events needed to relate a counter to the value of a tag.
const EVENTS_MIN: u64 = 10;
/// Smallest excess of a tag value's share of events over its share of time at which the value is reported.
const LIFT_MIN: f64 = 0.1;
/// Smallest excess of events at a reported tag value, in standard deviations of the number to expect by chance.
const DEVIATIONS_MIN: f64 = 3.0;

/// Returns a sentence for each counter that seldom changed. Sentences on events that mostly occur at one value of a tag
/// come first.
pub(super) fn event_sentences(seen: &Evidence<'_>) -> Vec<String> {
    let all = seen.analysis.events.iter().enumerate();
    let seldom = all.filter(|(_, events)| events.changes_seldom() && events.count > 0);
    let mut told: Vec<(f64, String)> = seldom.map(|(counter, events)| event_sentence(seen, counter, events)).collect();
    told.sort_by(|one, other| other.0.total_cmp(&one.0));
    told.into_iter().map(|(_, sentence)| sentence).collect()
}

/// Returns the sentence on a counter, with a number that orders sentences: larger comes first.
fn event_sentence(seen: &Evidence<'_>, counter: usize, events: &Events) -> (f64, String) {
    let beside = strongest_tag_excess(seen, counter);
    let lift = beside.as_ref().map_or(0.0, |(lift, _)| *lift);
    let beside = beside.map_or_else(String::new, |(_, beside)| format!("; {beside}"));
    (
        lift,
        format!(
            "{}: {}{}{beside}.",
            seen.counter_name(counter),
            describe_event_count(seen, events),
            describe_event_distances(seen, events)
        ),
    )
}

fn describe_event_count(seen: &Evidence<'_>, events: &Events) -> String {
    let seconds = seen.seconds(events.observed_cycles());
    match events.count {
        1 => "1 event".to_owned(),
        few if few < EVENTS_MIN || seconds <= 0.0 => format!("{few} events"),
        many => format!("{} events a second", format_frequency(many as f64 / seconds)),
    }
}

/// Returns a text on the distances between the events.
fn describe_event_distances(seen: &Evidence<'_>, events: &Events) -> String {
    let distances = &events.distances;
    let [low, high] = match distances.count() {
        0 => return String::new(),
        few if few < DISTANCES_FOR_PERCENTILES => [distances.min(), distances.max()],
        _ => [1.0, 99.0].map(|percent| distances.percentile(percent)),
    };
    let time = |cycles: Option<f64>| seen.format_duration(cycles.unwrap_or_default());
    format!(", with a median distance of {} ({} to {})", time(distances.percentile(50.0)), time(low), time(high))
}

/// Returns the tag value at which more events occurred than its share of the time explains, with the excess.
fn strongest_tag_excess(seen: &Evidence<'_>, counter: usize) -> Option<(f64, String)> {
    let tags = (0..seen.analysis.tags.len()).filter(|tag| !seen.change_together(counter, *tag));
    let of_tags = tags.filter_map(|tag| excess_at_tag_value(seen, counter, tag));
    of_tags.max_by(|one, other| one.0.total_cmp(&other.0))
}

fn excess_at_tag_value(seen: &Evidence<'_>, counter: usize, tag: usize) -> Option<(f64, String)> {
    let table = &seen.analysis.tags[tag];
    let (share_of, events) = (table.time_share_function(), table.values_with_events(counter));
    let all: u64 = events.iter().map(|(_, events)| events).sum();
    let lift = |value: &_, events: u64| events as f64 / all as f64 - share_of(value);
    let (value, most) = events.iter().max_by(|one, other| lift(&one.0, one.1).total_cmp(&lift(&other.0, other.1)))?;
    let (share, lift) = (share_of(value), lift(value, *most));
    let chance = (share * (1.0 - share) / all as f64).sqrt();
    let stands_out = all >= EVENTS_MIN && lift >= LIFT_MIN.max(DEVIATIONS_MIN * chance);
    let sentence = || {
        let (tag_name, value) = (seen.names.tag(tag), seen.names.value(tag, value.value));
        let (events, time) = (format_percent(*most as f64 / all as f64), format_percent(share));
        format!("{events} of them while {tag_name} is {value}, {time} {}", seen.share_reference_text(tag))
    };
    stands_out.then(|| (lift, sentence()))
}

/// Returns a text for a frequency in events per second.
pub(super) fn format_frequency(per_s: f64) -> String {
    Unit::Count.human(if per_s < 100.0 { per_s } else { per_s.round() })
}
