//! The times at which tags changed, as exactly as samples show. They are used for traces of a log only, since a live
//! observation keeps bins.

use super::analysis::series::Series;
use super::sample::{Layout, Sample};

/// Limit of the number of turns of all tags. Each turn is two events of a trace, and a trace with more than two million
/// events opens slowly.
pub const TURNS_MAX: usize = 1_000_000;

/// Time span in which every sample of a tag had the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Time of the first sample of the turn, in cycles.
    pub from: u64,
    /// Time of the first sample with another value, or of the last sample before a gap, in cycles.
    pub to: u64,
    /// Value of the tag in the turn.
    pub value: u64,
}

/// Turns of all tags, recorded sample by sample.
pub struct Turns {
    layout: Layout,
    /// Turns by tag, in the order of the tags.
    pub tags: Vec<Vec<Turn>>,
    /// Values of the counters over time, in the order of the counters.
    pub counters: Vec<Series>,
    open: Vec<Option<Turn>>,
    /// Time at which the limit of turns was reached, in cycles; `None` if it was not.
    full_at: Option<u64>,
}

impl Turns {
    /// Returns a record without turns.
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            tags: vec![Vec::new(); layout.tags],
            counters: vec![Series::default(); layout.counters],
            open: vec![None; layout.tags],
            full_at: None,
        }
    }

    /// Adds the next sample.
    pub fn record(&mut self, sample: &Sample) {
        for (counter, value) in self.counters.iter_mut().zip(sample.values) {
            counter.record(sample.start, value as f64);
        }
        for tag in 0..self.layout.tags {
            // Tags are read after the counters, so their time is the end of the sample.
            self.record_tag_value(tag, sample.end, sample.tag(self.layout, tag));
        }
    }

    fn record_tag_value(&mut self, tag: usize, at_cycles: u64, value: u64) {
        if let Some(turn) = &mut self.open[tag] {
            turn.to = at_cycles;
            if turn.value == value {
                return;
            }
        }
        self.end_turn(tag);
        self.open[tag] = Some(Turn { from: at_cycles, to: at_cycles, value });
    }

    fn end_turn(&mut self, tag: usize) {
        let Some(turn) = self.open[tag].take() else { return };
        if self.tags.iter().map(Vec::len).sum::<usize>() < TURNS_MAX {
            self.tags[tag].push(turn);
        } else {
            self.full_at.get_or_insert(turn.from);
        }
    }

    /// Marks a gap: the next sample does not continue the last one.
    pub fn mark_gap(&mut self) {
        (0..self.layout.tags).for_each(|tag| self.end_turn(tag));
    }

    /// Returns all turns. The error is the time in cycles at which the limit of turns was reached.
    pub fn finish(mut self) -> Result<Self, u64> {
        self.mark_gap();
        self.full_at.map_or(Ok(self), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { counters: 1, tags: 1 };

    fn sample(at: u64, tag: u64) -> Sample {
        let mut sample = Sample { start: at, end: at + 1, ..Sample::default() };
        sample.values[..2].copy_from_slice(&[at * 10, tag]);
        sample
    }

    fn record_turns(samples: impl Iterator<Item = Sample>) -> Turns {
        let mut turns = Turns::new(LAYOUT);
        samples.for_each(|sample| turns.record(&sample));
        turns
    }

    #[test]
    fn a_turn_lasts_until_another_value_is_read() {
        let mut turns = record_turns([(100, 7), (200, 7), (300, 9)].into_iter().map(|(at, tag)| sample(at, tag)));
        turns.mark_gap();
        turns.record(&sample(900, 9));
        let whole = turns.finish().ok().unwrap();
        let expected = [(101, 301, 7), (301, 301, 9), (901, 901, 9)];
        assert_eq!(whole.tags[0], expected.map(|(from, to, value)| Turn { from, to, value }));
        assert_eq!(whole.counters[0].bins().map(|(_, bin)| bin.samples).sum::<u64>(), 4);
    }

    #[test]
    fn too_many_turns_give_the_time_of_the_limit() {
        let many = TURNS_MAX as u64 + 5;
        assert!(record_turns((1..TURNS_MAX as u64).map(|number| sample(number, number))).finish().is_ok());
        let full_at = record_turns((0..many).map(|number| sample(number, number))).finish().err();
        assert_eq!(full_at, Some(TURNS_MAX as u64 + 1));
    }
}
