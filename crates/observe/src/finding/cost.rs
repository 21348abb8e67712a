//! What observing cost the target.

use crate::cost::{EVENTS_MIN, Slowdown};
use sidelane_report::Unit;

/// The cost with its interval, or why it cannot be told.
pub(super) fn sentence(slowdown: Option<&Slowdown>) -> String {
    match slowdown.map(measured) {
        Some(Ok(cost)) => format!("Observing cost the target {cost}."),
        Some(Err(why)) => format!("What observing cost cannot be told: {why}."),
        None => "What observing cost cannot be told: no counter says what the target gets done; name one with \
                 --progress."
            .to_owned(),
    }
}

fn measured(slowdown: &Slowdown) -> Result<String, String> {
    let Slowdown { counter, percent, low_percent, high_percent, pairs, events_a_pair } = slowdown;
    let events = Unit::Count.human(events_a_pair.round());
    let Some(percent) = percent else {
        return Err(format!(
            "{counter} counts {events} events in a pair of windows with and without the observer, and {} are needed",
            Unit::Count.human(EVENTS_MIN as f64)
        ));
    };
    let (Some(low), Some(high)) = (low_percent, high_percent) else {
        return Err(format!("{pairs} pairs of windows with and without the observer are too few"));
    };
    let words = |percent: f64| Unit::Percent.human(percent);
    let interval = format!("{} to {}, by {counter} in {pairs} pairs", words(*low), words(*high));
    if *low > 0.0 { Ok(format!("{} of its speed ({interval})", words(*percent))) } else { Err(interval) }
}
