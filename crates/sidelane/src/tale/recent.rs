//! The last records of a trace, in bounded memory.

use std::collections::VecDeque;

use sidelane_tale::record::Record;

/// Records in the order of time, the oldest of which make room.
#[derive(Debug)]
pub struct Recent {
    records: VecDeque<Record>,
    records_max: usize,
    length_ns: u64,
}

impl Recent {
    /// Keeps those of the last `length_ns`, and no more than `records_max`.
    pub fn new(length_ns: u64, records_max: usize) -> Self {
        Self { records: VecDeque::new(), records_max: records_max.max(1), length_ns }
    }

    /// Adds the newest.
    pub fn push(&mut self, record: &Record) {
        if self.records.len() >= self.records_max {
            self.records.pop_front();
        }
        self.records.push_back(*record);
        let oldest_ns = record.at_ns.saturating_sub(self.length_ns);
        while self.records.front().is_some_and(|first| first.at_ns < oldest_ns) {
            self.records.pop_front();
        }
    }

    /// Those from `from_ns` up to and with `to_ns`.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Record> {
        let first = self.records.partition_point(|record| record.at_ns < from_ns);
        self.records.range(first..).take_while(move |record| record.at_ns <= to_ns)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::record;
    use super::*;
    use sidelane_tale::record::Kind;

    fn at(recent: &Recent) -> Vec<u64> {
        recent.all().map(|record| record.at_ns).collect()
    }

    #[test]
    fn the_oldest_make_room() {
        let mut recent = Recent::new(100, 3);
        [10, 20, 30, 40].into_iter().for_each(|at_ns| recent.push(&record(at_ns, Kind::Woken)));
        assert_eq!(at(&recent), [20, 30, 40]);
        recent.push(&record(135, Kind::Woken));
        assert_eq!(at(&recent), [40, 135], "30 is too long ago");
    }

    #[test]
    fn a_stretch_has_both_its_ends() {
        let mut recent = Recent::new(1_000, 10);
        [10, 20, 30, 40].into_iter().for_each(|at_ns| recent.push(&record(at_ns, Kind::Woken)));
        let between = |from, to| recent.between(from, to).map(|record| record.at_ns).collect::<Vec<_>>();
        assert_eq!((between(20, 30), between(11, 19), between(31, 99)), (vec![20, 30], vec![], vec![40]));
    }
}
