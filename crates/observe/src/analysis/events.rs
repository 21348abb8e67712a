//! A counter as events: the number of events, and the time between them.
//!
//! A counter that seldom changes has no useful rate: the rate is zero in nearly all periods and huge in the others. The
//! number of events and the distances between them are informative instead. The growth of a counter between two samples
//! is exact even if reading was delayed at one end. So these events use all samples, also those that rates discard.

use super::spread::Distribution;

/// Mean number of samples per change above which a counter changes so seldom that its rate is not useful.
const SAMPLES_A_CHANGE: u64 = 10;
/// Mean number of events per sample below which a rate is not useful. With fewer events, the rate of a single sample
/// can only be that of 0, 1 or 2 events.
const EVENTS_A_SAMPLE: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at: u64,
    value: u64,
}

/// The events of one counter.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Number of readings of the counter.
    readings: u64,
    /// Number of events that the counter counted.
    pub count: u64,
    /// Number of events in gaps of the observation; the times of these events are unknown.
    pub unseen: u64,
    /// Number of readings that differ from the reading before.
    pub changes: u64,
    /// Distribution of the cycles from one change of the counter to the next.
    pub distances: Distribution,
    first: Option<Reading>,
    last: Option<Reading>,
    /// Time of the first change, in cycles; `None` if an event may have happened unseen before.
    first_change: Option<u64>,
    /// Time of the last change, in cycles; `None` if an event may have happened unseen since.
    last_change: Option<u64>,
    /// Whether events may have happened unseen since the last reading.
    is_broken: bool,
}

impl Events {
    /// Adds the next reading of the counter. Returns the number of events since the last reading; 0 after a gap.
    #[inline(always)]
    pub fn record(&mut self, at_cycles: u64, value: u64, was_observed: bool) -> u64 {
        self.readings += 1;
        let now = Reading { at: at_cycles, value };
        match self.last.replace(now) {
            Some(before) if before.value != value => self.record_change(before, now, was_observed),
            Some(_) => 0,
            None => self.record_first(now),
        }
    }

    #[cold]
    fn record_first(&mut self, now: Reading) -> u64 {
        self.first = Some(now);
        0
    }

    fn record_change(&mut self, before: Reading, now: Reading, was_observed: bool) -> u64 {
        // A counter that fell was reset, so its count up to the reset is unknown.
        let grown = now.value.saturating_sub(before.value);
        self.count += grown;
        if !was_observed || grown == 0 {
            self.unseen += grown;
            (self.last_change, self.is_broken) = (None, true);
            return 0;
        }
        self.changes += 1;
        if !self.is_broken {
            self.first_change.get_or_insert(now.at);
        }
        if let Some(last) = self.last_change.replace(now.at) {
            self.distances.record(now.at.wrapping_sub(last) as f64);
        }
        grown
    }

    /// Adds the events of a later analysis. An event between the two analyses has no exact time.
    pub fn append(&mut self, later: &Events) {
        let Some(first) = later.first else { return };
        self.record(first.at, first.value, false);
        if let (Some(from), Some(to)) = (self.last_change, later.first_change) {
            self.distances.record(to.wrapping_sub(from) as f64);
        }
        self.distances.merge(&later.distances);
        self.readings += later.readings - 1;
        self.count += later.count;
        self.unseen += later.unseen;
        self.changes += later.changes;
        self.first_change = self.first_change.or(later.first_change.filter(|_| !self.is_broken));
        let goes_on = later.changes == 0 && !later.is_broken;
        self.last_change = if goes_on { self.last_change } else { later.last_change };
        self.last = later.last;
        self.is_broken |= later.is_broken;
    }

    /// Resets the counter's events to none.
    pub fn clear(&mut self) {
        let mut apart = std::mem::take(&mut self.distances);
        apart.clear();
        *self = Self { distances: apart, ..Self::default() };
    }

    /// Returns whether the counter changes so seldom that only its events are informative, not its rate.
    pub fn changes_seldom(&self) -> bool {
        self.changes * SAMPLES_A_CHANGE < self.readings || self.count < EVENTS_A_SAMPLE * self.readings
    }

    /// Returns the time from the first to the last reading, in cycles.
    pub fn observed_cycles(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| last.at.wrapping_sub(first.at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events_from_readings(readings: &[(u64, u64)]) -> Events {
        let mut events = Events::default();
        for (at, value) in readings {
            events.record(*at, *value, true);
        }
        events
    }

    #[test]
    fn changes_have_distances_and_growth_is_counted() {
        let events = events_from_readings(&[(100, 7), (200, 8), (300, 8), (400, 8), (500, 10)]);
        assert_eq!((events.count, events.changes, events.unseen, events.observed_cycles()), (3, 2, 0, 400));
        assert_eq!((events.distances.count(), events.distances.mean()), (1, Some(300.0)));
    }

    #[test]
    fn distance_spans_a_pause_without_missed_events() {
        let mut quiet = events_from_readings(&[(100, 7), (200, 8)]);
        assert_eq!(quiet.record(900, 8, false), 0);
        assert_eq!(quiet.record(1_000, 9, true), 1);
        assert_eq!(quiet.distances.mean(), Some(800.0));
        let mut missed = events_from_readings(&[(100, 7), (200, 8)]);
        assert_eq!(
            missed.record(900, 12, false),
            0,
            "of events that no look saw it is not known beside what they were"
        );
        assert_eq!(missed.record(1_000, 13, true), 1);
        assert_eq!((missed.count, missed.unseen, missed.distances.count()), (6, 4, 0));
    }

    #[test]
    fn counter_reset_is_not_counted_as_events() {
        let events = events_from_readings(&[(100, 7), (200, 8), (300, 2), (400, 3)]);
        assert_eq!((events.count, events.changes, events.distances.count()), (2, 2, 0));
    }

    #[test]
    fn a_counter_of_few_changes_or_of_single_events_changes_seldom() {
        let every = |of: u64, step: u64| {
            let mut events = Events::default();
            for number in 0..1_000 {
                events.record(number, number / of * step, true);
            }
            events.changes_seldom()
        };
        assert!(every(11, 1_000) && !every(9, 1_000), "one change in ten samples");
        assert!(every(1, 1) && !every(1, 3), "two events a sample");
        assert!(Events { readings: 5, ..Events::default() }.changes_seldom());
    }

    proptest! {
        #[test]
        fn no_event_is_lost_where_two_analyses_are_joined(
            steps in prop::collection::vec((1_u64..1_000, 0_u64..3), 2..100),
            cut in 0_usize..100,
        ) {
            let (mut whole, mut first, mut second) = (Events::default(), Events::default(), Events::default());
            let (mut at, mut value) = (0, 5);
            for (number, (step, grown)) in steps.iter().enumerate() {
                (at, value) = (at + step, value + grown);
                whole.record(at, value, true);
                if number < cut { &mut first } else { &mut second }.record(at, value, true);
            }
            first.append(&second);
            prop_assert_eq!((first.count, first.observed_cycles()), (whole.count, whole.observed_cycles()));
            prop_assert_eq!(first.changes + u64::from(first.unseen > 0), whole.changes);
            prop_assert!(first.distances.count() <= whole.distances.count());
            if first.unseen == 0 {
                prop_assert_eq!(first.distances.buckets(), whole.distances.buckets());
            }
        }
    }
}
