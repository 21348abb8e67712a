//! Buffer of records that wait for pauses which may lie before them in time.

use std::collections::VecDeque;

use sidelane_timeline::record::Record;

/// The most records in the buffer: 32 MB.
const HELD_MAX: usize = 1 << 19;

/// Buffer that merges records of the kernel with records of pauses. Each of the two streams is in the order of time,
/// but pauses of several JVMs have to be sorted.
#[derive(Debug, Default)]
pub struct MergeBuffer {
    kernel: VecDeque<Record>,
    pauses: VecDeque<Record>,
}

impl MergeBuffer {
    /// Adds records of the kernel, in the order of time, and records of pauses.
    pub fn add(&mut self, kernel: impl Iterator<Item = Record>, pauses: impl Iterator<Item = Record>) {
        self.kernel.extend(kernel);
        self.pauses.extend(pauses);
        self.pauses.make_contiguous().sort_by_key(|record| record.at_ns);
    }

    /// Moves all records from before `told_ns` to `into`, in the order of time. If the buffer has too many records,
    /// moves the oldest, too.
    pub fn release(&mut self, complete_until_ns: u64, into: &mut Vec<Record>) {
        while let Some(at_ns) = self.kernel.front().map(|record| record.at_ns) {
            if at_ns >= complete_until_ns && self.kernel.len() <= HELD_MAX {
                return;
            }
            self.release_pauses(at_ns, into);
            into.extend(self.kernel.pop_front());
        }
        self.release_pauses(complete_until_ns, into);
    }

    /// Returns the time of the oldest record in the buffer.
    pub fn oldest_ns(&self) -> u64 {
        let oldest = self.kernel.front().into_iter().chain(self.pauses.front());
        oldest.map(|record| record.at_ns).min().unwrap_or(u64::MAX)
    }

    /// Moves the pauses up to and including `until_ns` to `into`.
    fn release_pauses(&mut self, until_ns: u64, into: &mut Vec<Record>) {
        while self.pauses.front().is_some_and(|pause| pause.at_ns <= until_ns) {
            into.extend(self.pauses.pop_front());
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_timeline::record::Kind;

    use super::super::super::sample::record;
    use super::*;

    fn released_times_ns(buffer: &mut MergeBuffer, complete_until_ns: u64) -> Vec<u64> {
        let mut records = Vec::new();
        buffer.release(complete_until_ns, &mut records);
        records.iter().map(|record| record.at_ns).collect()
    }

    #[test]
    fn pauses_come_between_the_records_around_them() {
        let mut held = MergeBuffer::default();
        let kernel = [10, 20, 30, 40].map(|at_ns| record(at_ns, Kind::Woken));
        held.add(kernel.into_iter(), [record(35, Kind::PauseEnded), record(15, Kind::PauseBegan)].into_iter());
        assert_eq!(released_times_ns(&mut held, 20), [10]);
        assert_eq!(released_times_ns(&mut held, 36), [15, 20, 30]);
        assert_eq!(released_times_ns(&mut held, u64::MAX), [35, 40]);
    }

    #[test]
    fn pause_after_the_last_record_is_not_held_back() {
        let mut held = MergeBuffer::default();
        held.add(std::iter::empty(), [record(15, Kind::PauseBegan)].into_iter());
        assert_eq!(released_times_ns(&mut held, 16), [15]);
    }

    #[test]
    fn full_buffer_releases_its_oldest_records() {
        let mut held = MergeBuffer::default();
        held.add((0..HELD_MAX as u64 + 3).map(|at_ns| record(at_ns, Kind::Woken)), std::iter::empty());
        assert_eq!(released_times_ns(&mut held, 0), [0, 1, 2]);
    }
}
