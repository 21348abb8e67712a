//! Sentence on the cost of observing for the target.

use crate::cost::{EVENTS_MIN, Slowdown};
use sidelane_report::Unit;

/// Returns a sentence with the slowdown and its confidence interval, or with the reason why it is unknown.
pub(super) fn cost_sentence(slowdown: Option<&Slowdown>) -> String {
    match slowdown.map(describe_slowdown) {
        Some(Ok(cost)) => format!("Observing slowed the target down by {cost}."),
        Some(Err(why)) => format!("The cost of observing is not known: {why}."),
        None => "The cost of observing is not known: no counter shows the target's progress; name one with --progress."
            .to_owned(),
    }
}

fn describe_slowdown(slowdown: &Slowdown) -> Result<String, String> {
    let Slowdown { counter, percent, low_percent, high_percent, pairs, events_a_pair } = slowdown;
    let events = Unit::Count.human(events_a_pair.round());
    let Some(percent) = percent else {
        return Err(format!(
            "{counter} has {events} events in a pair of windows with and without the observer, and {} are needed",
            Unit::Count.human(EVENTS_MIN as f64)
        ));
    };
    let (Some(low), Some(high)) = (low_percent, high_percent) else {
        return Err(format!("there are only {pairs} pairs of windows with and without the observer"));
    };
    let words = |percent: f64| Unit::Percent.human(percent);
    let interval = format!("{} to {}, by {counter} in {pairs} pairs", words(*low), words(*high));
    if *low > 0.0 {
        Ok(format!("{} of its speed ({interval})", words(*percent)))
    } else {
        Err(format!("it is within its error of 0 ({interval})"))
    }
}
