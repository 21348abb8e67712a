//! The most recent records of a trace, in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use sidelane_timeline::builder::CPUS_MAX;
use sidelane_timeline::record::{Kind, Record};

/// Records in the order of time, of which the oldest are dropped for new ones.
#[derive(Debug)]
pub struct Recent {
    records: VecDeque<Record>,
    records_max: usize,
    length_ns: u64,
    /// Sequence number of the last dropped record of each CPU.
    gone: Vec<u32>,
    /// Time of the last dropped record.
    gone_ns: u64,
    /// Dropped records about processes, by process id. They stay true, such as the runtime of a process.
    tasks: BTreeMap<u32, Record>,
}

/// The most processes whose dropped records are stored.
const PROCESSES_MAX: usize = 4_096;

impl Recent {
    /// Creates a buffer for the records of the last `length_ns`, and at most `records_max` records.
    pub fn new(length_ns: u64, records_max: usize) -> Self {
        Self {
            records: VecDeque::new(),
            records_max: records_max.max(1),
            length_ns,
            gone: Vec::new(),
            gone_ns: 0,
            tasks: BTreeMap::new(),
        }
    }

    /// Adds the newest record, and drops the oldest records if necessary.
    pub fn push(&mut self, record: &Record) {
        if self.records.len() >= self.records_max {
            self.make_room();
        }
        self.records.push_back(*record);
        let oldest_ns = record.at_ns.saturating_sub(self.length_ns);
        while self.records.front().is_some_and(|first| first.at_ns < oldest_ns) {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        let Some(oldest) = self.records.pop_front() else { return };
        self.gone_ns = self.gone_ns.max(oldest.at_ns);
        if oldest.kind == Kind::Tasks && self.tasks.len() < PROCESSES_MAX {
            self.tasks.insert(oldest.task.pid, oldest);
        }
        if oldest.seq == 0 || oldest.cpu >= CPUS_MAX {
            return;
        }
        let cpu = oldest.cpu as usize;
        if cpu >= self.gone.len() {
            self.gone.resize(cpu + 1, 0);
        }
        let before = &mut self.gone[cpu];
        // Records of one CPU are nearly in the order of their sequence numbers.
        if *before == 0 || oldest.seq.wrapping_sub(*before) as i32 > 0 {
            *before = oldest.seq;
        }
    }

    /// Returns the sequence number of the last dropped record of each CPU, by its number; 0 for none.
    pub fn last_dropped_seqs(&self) -> &[u32] {
        &self.gone
    }

    /// Returns the time of the newest dropped record; 0 for none.
    pub fn last_dropped_ns(&self) -> u64 {
        self.gone_ns
    }

    /// Returns the records from `from_ns` to `to_ns`, both included.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Record> {
        let first = self.records.partition_point(|record| record.at_ns < from_ns);
        self.records.range(first..).take_while(move |record| record.at_ns <= to_ns)
    }

    /// Returns all records. Those about processes that are still true come first, although they were dropped.
    pub fn all(&self) -> impl Iterator<Item = Record> {
        let begin_ns = self.records.front().map_or(self.gone_ns, |first| first.at_ns);
        let known = self.tasks.values().map(move |record| Record { at_ns: begin_ns, ..*record });
        known.chain(self.records.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::record;
    use super::*;
    use sidelane_timeline::record::Kind;

    fn record_times_ns(recent: &Recent) -> Vec<u64> {
        recent.all().map(|record| record.at_ns).collect()
    }

    #[test]
    fn oldest_records_make_room() {
        let mut recent = Recent::new(100, 3);
        [10, 20, 30, 40].into_iter().for_each(|at_ns| recent.push(&record(at_ns, Kind::Woken)));
        assert_eq!(record_times_ns(&recent), [20, 30, 40]);
        recent.push(&record(135, Kind::Woken));
        assert_eq!(record_times_ns(&recent), [40, 135], "30 is too long ago");
    }

    #[test]
    fn last_dropped_number_of_each_cpu_is_known() {
        let mut recent = Recent::new(1_000, 2);
        let of = |at_ns, cpu, seq| Record { cpu, seq, ..record(at_ns, Kind::Woken) };
        let records = [of(10, 2, 7), of(11, 0, 4), of(12, 2, 6), of(13, 2, 0), of(14, u32::MAX, 9), of(15, 0, 5)];
        records.iter().for_each(|record| recent.push(record));
        assert_eq!((recent.last_dropped_seqs(), recent.last_dropped_ns()), (&[4, 0, 7][..], 13));
    }

    #[test]
    fn records_about_processes_are_never_dropped() {
        let mut recent = Recent::new(100, 2);
        [(10, Kind::Tasks), (20, Kind::Woken), (30, Kind::Woken), (40, Kind::Woken)]
            .into_iter()
            .for_each(|(at_ns, kind)| recent.push(&record(at_ns, kind)));
        let kinds: Vec<_> = recent.all().map(|record| (record.at_ns, record.kind)).collect();
        assert_eq!(kinds, [(30, Kind::Tasks), (30, Kind::Woken), (40, Kind::Woken)]);
    }

    #[test]
    fn records_between_two_times_include_both_ends() {
        let mut recent = Recent::new(1_000, 10);
        [10, 20, 30, 40].into_iter().for_each(|at_ns| recent.push(&record(at_ns, Kind::Woken)));
        let between = |from, to| recent.between(from, to).map(|record| record.at_ns).collect::<Vec<_>>();
        assert_eq!((between(20, 30), between(11, 19), between(31, 99)), (vec![20, 30], vec![], vec![40]));
    }
}
