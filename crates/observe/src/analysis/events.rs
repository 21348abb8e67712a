//! A counter as events: how many there were, and how far apart.
//!
//! A counter that seldom changes has no useful rate: it is zero in nearly all periods and huge in the others. What tells
//! something is how many events there were and how far apart. Growth between two samples is exact, however skewed they
//! are, so every sample counts here.

use super::spread::Spread;

/// A counter changes seldom if fewer than one of this many samples shows a change of any size.
const SAMPLES_A_CHANGE: u64 = 10;
/// With fewer events a sample, rates of single samples are those of no event, of one and of two.
const EVENTS_A_SAMPLE: u64 = 2;

/// One reading of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at: u64,
    value: u64,
}

/// The events of one counter.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Number of readings.
    readings: u64,
    /// Number of events.
    pub count: u64,
    /// Number of events in gaps of the observation; their times are unknown.
    pub unseen: u64,
    /// Number of readings that differ from the one before.
    pub changes: u64,
    /// Cycles from one change to the next.
    pub apart: Spread,
    first: Option<Reading>,
    last: Option<Reading>,
    /// The first change, if no event can have happened unseen before.
    first_change: Option<u64>,
    /// The last change, if no event can have happened unseen since.
    last_change: Option<u64>,
    /// Whether events may have happened unseen.
    is_broken: bool,
}

impl Events {
    /// Adds the next reading. Returns the events since the last one; none after a gap.
    #[inline(always)]
    pub fn record(&mut self, at: u64, value: u64, looked: bool) -> u64 {
        self.readings += 1;
        let now = Reading { at, value };
        match self.last.replace(now) {
            Some(before) if before.value != value => self.change(before, now, looked),
            Some(_) => 0,
            None => self.begin(now),
        }
    }

    #[cold]
    fn begin(&mut self, now: Reading) -> u64 {
        self.first = Some(now);
        0
    }

    fn change(&mut self, before: Reading, now: Reading, looked: bool) -> u64 {
        // A counter that fell was set back, and what it had counted by then is not known.
        let grown = now.value.saturating_sub(before.value);
        self.count += grown;
        if !looked || grown == 0 {
            self.unseen += grown;
            (self.last_change, self.is_broken) = (None, true);
            return 0;
        }
        self.changes += 1;
        if !self.is_broken {
            self.first_change.get_or_insert(now.at);
        }
        if let Some(last) = self.last_change.replace(now.at) {
            self.apart.record(now.at.wrapping_sub(last) as f64);
        }
        grown
    }

    /// Adds the events of a later time. Between two times an event is not noticed when it happens.
    pub fn append(&mut self, later: &Events) {
        let Some(first) = later.first else { return };
        self.record(first.at, first.value, false);
        if let (Some(from), Some(to)) = (self.last_change, later.first_change) {
            self.apart.record(to.wrapping_sub(from) as f64);
        }
        self.apart.merge(&later.apart);
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

    /// Resets to no events.
    pub fn clear(&mut self) {
        let mut apart = std::mem::take(&mut self.apart);
        apart.clear();
        *self = Self { apart, ..Self::default() };
    }

    /// Whether the counter changes so seldom that only its events tell something.
    pub fn is_seldom(&self) -> bool {
        self.changes * SAMPLES_A_CHANGE < self.readings || self.count < EVENTS_A_SAMPLE * self.readings
    }

    /// Cycles from the first to the last reading.
    pub fn cycles(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| last.at.wrapping_sub(first.at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(readings: &[(u64, u64)]) -> Events {
        let mut events = Events::default();
        for (at, value) in readings {
            events.record(*at, *value, true);
        }
        events
    }

    #[test]
    fn changes_have_distances_and_growth_is_counted() {
        let events = of(&[(100, 7), (200, 8), (300, 8), (400, 8), (500, 10)]);
        assert_eq!((events.count, events.changes, events.unseen, events.cycles()), (3, 2, 0, 400));
        assert_eq!((events.apart.count(), events.apart.mean()), (1, Some(300.0)));
    }

    #[test]
    fn only_a_pause_with_missed_events_breaks_a_distance() {
        let mut quiet = of(&[(100, 7), (200, 8)]);
        assert_eq!(quiet.record(900, 8, false), 0);
        assert_eq!(quiet.record(1_000, 9, true), 1);
        assert_eq!(quiet.apart.mean(), Some(800.0));
        let mut missed = of(&[(100, 7), (200, 8)]);
        assert_eq!(missed.record(900, 12, false), 0, "of events that nobody saw it is not known beside what they were");
        assert_eq!(missed.record(1_000, 13, true), 1);
        assert_eq!((missed.count, missed.unseen, missed.apart.count()), (6, 4, 0));
    }

    #[test]
    fn a_counter_that_is_set_back_loses_no_sense() {
        let events = of(&[(100, 7), (200, 8), (300, 2), (400, 3)]);
        assert_eq!((events.count, events.changes, events.apart.count()), (2, 2, 0));
    }

    #[test]
    fn a_counter_of_few_changes_or_of_single_events_changes_seldom() {
        let every = |of: u64, step: u64| {
            let mut events = Events::default();
            for number in 0..1_000 {
                events.record(number, number / of * step, true);
            }
            events.is_seldom()
        };
        assert!(every(11, 1_000) && !every(9, 1_000), "one change in ten samples");
        assert!(every(1, 1) && !every(1, 3), "two events a sample");
        assert!(Events { readings: 5, ..Events::default() }.is_seldom());
    }

    proptest! {
        #[test]
        fn no_event_is_lost_at_any_cut(
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
            prop_assert_eq!((first.count, first.cycles()), (whole.count, whole.cycles()));
            prop_assert_eq!(first.changes + u64::from(first.unseen > 0), whole.changes);
            prop_assert!(first.apart.count() <= whole.apart.count());
            if first.unseen == 0 {
                prop_assert_eq!(first.apart.buckets(), whole.apart.buckets());
            }
        }
    }
}
