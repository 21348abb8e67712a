//! Samples by tag value: how often and for how long each value was read, with the rates and events during that time.
//!
//! The table has a fixed size, since the observer allocates nothing. Values that do not fit are counted together. Equal
//! values mostly follow each other, so the table remembers the entry of the last value.

/// Limit of the number of values in a table; a power of two. A large program executes some thousand different methods.
pub const VALUES_MAX: usize = 1 << 14;
/// Number of table entries that are tried for a value before it is counted as one that does not fit.
const PROBES_MAX: usize = 64;
/// Hash multiplier for values that differ in few bits (2^64 ÷ the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Counts of one tag value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueCounts {
    /// Value of the tag.
    pub value: u64,
    /// Number of samples with this value.
    pub samples: u64,
    /// Total length of the value's periods, in cycles; 0 if periods were not measured.
    pub cycles: u64,
    /// Number of times that this value followed another value.
    pub turns: u64,
}

/// Sums of one rate over its valid samples, during one tag value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSum {
    /// Number of valid samples.
    pub samples: u64,
    /// Growth of the rate's numerator over these samples.
    pub count: u64,
    /// Growth of the rate's denominator over these samples.
    pub per: u64,
}

impl RateSum {
    /// Returns the mean of the rate; `None` if the denominator did not grow.
    pub fn mean(&self) -> Option<f64> {
        (self.per > 0).then(|| self.count as f64 / self.per as f64)
    }

    /// Adds the growth of numerator and denominator in one sample.
    #[inline(always)]
    pub fn add(&mut self, count: u64, per: u64) {
        self.samples += 1;
        self.count += count;
        self.per += per;
    }

    /// Adds the sums of another part of the observation.
    pub fn merge(&mut self, other: &RateSum) {
        self.samples += other.samples;
        self.count += other.count;
        self.per += other.per;
    }
}

/// Table of samples by the values of one tag.
pub struct TagTable {
    seen: Box<[ValueCounts]>,
    /// Sums of rates: `rates` of them for each entry of the table.
    sums: Box<[RateSum]>,
    rates: usize,
    /// Numbers of events: `counters` of them for each entry of the table.
    events: Box<[u64]>,
    counters: usize,
    last: usize,
    /// First and last value that were counted; `None` if none was counted yet.
    ends: Option<(u64, u64)>,
    /// Sum of the counts of all values without an entry in the table; the field `value` has no meaning here.
    others: ValueCounts,
}

/// Index of a value's entry in the table; the last index is for all values that do not fit.
type EntryIndex = usize;
const NO_PLACE: EntryIndex = VALUES_MAX;

impl TagTable {
    /// Returns an empty table, with room for `rates` rates and `counters` counters at each value.
    pub fn new(rates: usize, counters: usize) -> Self {
        Self {
            seen: vec![ValueCounts::default(); VALUES_MAX].into(),
            sums: vec![RateSum::default(); (VALUES_MAX + 1) * rates].into(),
            rates,
            events: vec![0; (VALUES_MAX + 1) * counters].into(),
            counters,
            last: NO_PLACE,
            ends: None,
            others: ValueCounts::default(),
        }
    }

    /// Counts `samples` consecutive samples with `value`, whose periods last `cycles` together. Returns the index of
    /// the value's entry.
    #[inline(always)]
    pub fn add_samples(&mut self, value: u64, samples: u64, cycles: u64) -> EntryIndex {
        if self.last != NO_PLACE && self.seen[self.last].value == value {
            let seen = &mut self.seen[self.last];
            seen.samples += samples;
            seen.cycles += cycles;
            return self.last;
        }
        self.begin_turn(value, samples, cycles)
    }

    fn begin_turn(&mut self, value: u64, samples: u64, cycles: u64) -> EntryIndex {
        self.last = self.find_entry(value);
        self.ends = Some((self.ends.map_or(value, |ends| ends.0), value));
        let seen = match self.last {
            NO_PLACE => &mut self.others,
            place => &mut self.seen[place],
        };
        seen.value = value;
        seen.samples += samples;
        seen.cycles += cycles;
        seen.turns += 1;
        self.last
    }

    /// Adds one valid sample of a rate to the table entry with index `place`.
    #[inline(always)]
    pub fn add_rate(&mut self, place: EntryIndex, rate: usize, count: u64, per: u64) {
        self.sums[place * self.rates + rate].add(count, per);
    }

    /// Adds events of a counter to the table entry with index `place`.
    #[inline(always)]
    pub fn add_events(&mut self, place: EntryIndex, counter: usize, count: u64) {
        self.events[place * self.counters + counter] += count;
    }

    /// Returns the index of the value's entry, or of a free entry for it; `NO_PLACE` if the value does not fit. An
    /// entry without counts is free.
    fn find_entry(&self, value: u64) -> EntryIndex {
        let start = (value.wrapping_mul(SPREAD) >> (64 - VALUES_MAX.trailing_zeros())) as usize;
        for probe in 0..PROBES_MAX {
            let place = (start + probe) % VALUES_MAX;
            let seen = &self.seen[place];
            if seen.samples == 0 || seen.value == value {
                return place;
            }
        }
        NO_PLACE
    }

    /// Adds the counts of a later table of the same tag.
    pub fn merge(&mut self, other: &TagTable) {
        let goes_on = self.ends.zip(other.ends).filter(|(own, others)| own.1 == others.0).map(|(own, _)| own.1);
        for (from, seen) in other.seen.iter().enumerate().filter(|(_, seen)| seen.samples > 0) {
            let place = self.find_entry(seen.value);
            let into = if place == NO_PLACE { &mut self.others } else { &mut self.seen[place] };
            *into = add_counts(seen, into);
            self.merge_rates(place, other.rates_at(from));
            self.merge_events(place, other.events_at(from));
        }
        self.others = add_counts(&other.others, &self.others);
        self.merge_rates(NO_PLACE, other.rates_at(NO_PLACE));
        self.merge_events(NO_PLACE, other.events_at(NO_PLACE));
        self.last = NO_PLACE;
        goes_on.into_iter().for_each(|value| self.merge_split_turn(value));
        self.ends = match (self.ends, other.ends) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (own, others) => own.or(others),
        };
    }

    /// Counts one turn less for a value that ends one table and begins the next: its turn was counted in both tables.
    fn merge_split_turn(&mut self, value: u64) {
        let seen = match self.find_entry(value) {
            NO_PLACE => &mut self.others,
            place => &mut self.seen[place],
        };
        seen.turns = seen.turns.saturating_sub(1);
    }

    fn merge_events(&mut self, place: EntryIndex, others: &[u64]) {
        let events = &mut self.events[place * self.counters..][..self.counters];
        events.iter_mut().zip(others).for_each(|(count, other)| *count += other);
    }

    fn events_at(&self, place: EntryIndex) -> &[u64] {
        &self.events[place * self.counters..][..self.counters]
    }

    fn merge_rates(&mut self, place: EntryIndex, others: &[RateSum]) {
        let sums = &mut self.sums[place * self.rates..][..self.rates];
        sums.iter_mut().zip(others).for_each(|(sum, other)| sum.merge(other));
    }

    fn rates_at(&self, place: EntryIndex) -> &[RateSum] {
        &self.sums[place * self.rates..][..self.rates]
    }

    /// Resets the table to empty.
    pub fn clear(&mut self) {
        self.seen.fill(ValueCounts::default());
        self.sums.fill(RateSum::default());
        self.events.fill(0);
        self.ends = None;
        self.others = ValueCounts::default();
        self.last = NO_PLACE;
    }

    /// Returns all values with the sums of their rates, the most frequent value first.
    pub fn values_by_frequency(&self) -> Vec<(ValueCounts, &[RateSum])> {
        let seen = self.seen.iter().enumerate().filter(|(_, seen)| seen.samples > 0);
        let mut all: Vec<_> = seen.map(|(place, seen)| (*seen, self.rates_at(place))).collect();
        all.sort_by_key(|(seen, _)| (std::cmp::Reverse(seen.samples), seen.value));
        all
    }

    /// Returns the values at which `counter` had events, each with the number of these events.
    pub fn values_with_events(&self, counter: usize) -> Vec<(ValueCounts, u64)> {
        let seen = self.seen.iter().chain([&self.others]).enumerate();
        let all = seen.map(|(place, seen)| (*seen, self.events_at(place)[counter]));
        all.filter(|(_, events)| *events > 0).collect()
    }

    /// Returns a function for the share of time of a value, 0 to 1. Without measured periods, samples are counted
    /// instead of cycles.
    pub fn time_share_function(&self) -> impl Fn(&ValueCounts) -> f64 + use<> {
        let all = self.seen.iter().chain([&self.others]);
        let (samples, cycles) =
            all.fold((0, 0), |(samples, cycles), seen| (samples + seen.samples, cycles + seen.cycles));
        move |seen| {
            if cycles > 0 { seen.cycles as f64 / cycles as f64 } else { seen.samples as f64 / samples.max(1) as f64 }
        }
    }

    /// Returns the counts of all values that did not fit into the table.
    pub fn counts_of_values_without_entry(&self) -> ValueCounts {
        self.others
    }

    /// Returns how often the value changed from one sample to the next. Each change of an observed word moved its cache
    /// line to the observer at least once.
    pub fn turn_count(&self) -> u64 {
        self.seen.iter().map(|seen| seen.turns).sum::<u64>() + self.others.turns
    }
}

fn add_counts(left: &ValueCounts, right: &ValueCounts) -> ValueCounts {
    ValueCounts {
        value: left.value,
        samples: left.samples + right.samples,
        cycles: left.cycles + right.cycles,
        turns: left.turns + right.turns,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_are_found_by_tag_value() {
        let mut table = TagTable::new(1, 1);
        for (value, count) in [(7, 10), (7, 30), (9, 5), (7, 20)] {
            let place = table.add_samples(value, 1, 100);
            table.add_rate(place, 0, count, 100);
        }
        let hottest = table.values_by_frequency();
        assert_eq!(hottest[0].0, ValueCounts { value: 7, samples: 3, cycles: 300, turns: 2 });
        assert_eq!(hottest[0].1[0].mean(), Some(0.2));
        assert_eq!(hottest[1].0, ValueCounts { value: 9, samples: 1, cycles: 100, turns: 1 });
        assert_eq!(table.turn_count(), 3);
        assert_eq!(table.time_share_function()(&hottest[0].0), 0.75);
    }

    #[test]
    fn values_that_do_not_fit_are_counted_together() {
        let mut table = TagTable::new(1, 1);
        let values = VALUES_MAX as u64 + 1_000;
        for value in 0..values {
            let place = table.add_samples(value, 2, 1);
            table.add_rate(place, 0, 1, 1);
        }
        let placed: u64 = table.values_by_frequency().iter().map(|(seen, _)| seen.samples).sum();
        assert!(
            table.counts_of_values_without_entry().samples >= 2_000,
            "{:?}",
            table.counts_of_values_without_entry()
        );
        assert_eq!(placed + table.counts_of_values_without_entry().samples, 2 * values);
        assert_eq!(table.turn_count(), values);
    }

    proptest! {
        #[test]
        fn merged_tables_equal_one_table(
            values in prop::collection::vec(0_u64..50, 0..400),
            cut in 0_usize..400,
        ) {
            let (mut whole, mut first, mut second) = (TagTable::new(1, 1), TagTable::new(1, 1), TagTable::new(1, 1));
            let mut model = BTreeMap::new();
            for (number, value) in values.iter().enumerate() {
                let half = if number < cut { &mut first } else { &mut second };
                for table in [&mut whole, half] {
                    let place = table.add_samples(*value, 1, 3);
                    table.add_rate(place, 0, *value, 3);
                }
                *model.entry(*value).or_insert(0) += 1;
            }
            first.merge(&second);
            let samples = |table: &TagTable| -> BTreeMap<u64, u64> {
                table.values_by_frequency().iter().map(|(seen, _)| (seen.value, seen.samples)).collect()
            };
            prop_assert_eq!(samples(&first), model.clone());
            prop_assert_eq!(samples(&whole), model);
            prop_assert_eq!(first.turn_count(), whole.turn_count());
            let rates = |table: &TagTable| table.values_by_frequency().iter().map(|(_, rates)| rates[0]).collect::<Vec<_>>();
            prop_assert_eq!(rates(&first), rates(&whole));
        }
    }
}
