//! Reading one CPU's ring while its kernel programs write.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use sidelane_timeline::record::Record;

use super::memory::RingSlot;

/// Position of a reader in the ring of one CPU.
#[derive(Debug, Default)]
pub struct RingReader {
    /// Number of the next record, from 0 on.
    next: u64,
    lost: u64,
}

impl RingReader {
    /// Passes the records since the last call to `each`. `written` is the number of records that were begun.
    pub fn read(&mut self, written: &AtomicU64, ring: &[RingSlot], mut each: impl FnMut(Record)) {
        let until = written.load(Ordering::Acquire);
        while self.next < until {
            let place = &ring[(self.next % ring.len() as u64) as usize];
            let is_whole = place.record_number() == self.next as u32 + 1;
            let bytes = place.copy_bytes();
            fence(Ordering::Acquire);
            if self.skip_if_overtaken(written.load(Ordering::Acquire), ring.len() as u64) {
                continue;
            }
            if !is_whole {
                // The record was begun and is not complete. The next call finds it.
                return;
            }
            if let Some(record) = Record::from_bytes(&bytes) {
                each(record);
            }
            self.next += 1;
        }
    }

    /// Handles a writer that has overtaken the reader: the overwritten records are lost. The reader skips an eighth of
    /// the ring more, so that it is not overtaken again at once. Returns whether it was overtaken.
    fn skip_if_overtaken(&mut self, begun_records: u64, slot_count: u64) -> bool {
        let overtaken = begun_records - self.next > slot_count;
        if overtaken {
            let next = begun_records - slot_count + slot_count / 8;
            self.lost += next - self.next;
            self.next = next;
        }
        overtaken
    }

    /// Returns the number of records that were overwritten before they were read.
    pub fn lost_records(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use sidelane_timeline::record::{Kind, Task};

    use super::*;

    fn numbered_record(number: u64) -> Record {
        Record {
            at_ns: number + 1,
            kind: Kind::Woken,
            seq: number as u32 + 1,
            task: Task::default(),
            cpu: 0,
            detail: number as u32,
            other: Task::default(),
            socket: number,
            request: number,
            value: number,
        }
    }

    fn empty_ring(size: usize) -> Vec<RingSlot> {
        (0..size).map(|_| RingSlot::empty()).collect()
    }

    fn write_next_record(written: &AtomicU64, ring: &[RingSlot]) {
        let number = written.fetch_add(1, Ordering::SeqCst);
        ring[number as usize % ring.len()].write(&numbered_record(number).to_bytes());
    }

    fn read_values(reader: &mut RingReader, written: &AtomicU64, ring: &[RingSlot]) -> Vec<u64> {
        let mut values = Vec::new();
        reader.read(written, ring, |record| values.push(record.value));
        values
    }

    #[test]
    fn records_are_read_once_and_in_order() {
        let (written, ring, mut reader) = (AtomicU64::new(0), empty_ring(8), RingReader::default());
        (0..5).for_each(|_| write_next_record(&written, &ring));
        assert_eq!(read_values(&mut reader, &written, &ring), [0, 1, 2, 3, 4]);
        assert_eq!(read_values(&mut reader, &written, &ring), []);
        (0..8).for_each(|_| write_next_record(&written, &ring));
        assert_eq!(read_values(&mut reader, &written, &ring), [5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(reader.lost_records(), 0);
    }

    #[test]
    fn overwritten_records_are_counted() {
        let (written, ring, mut reader) = (AtomicU64::new(0), empty_ring(8), RingReader::default());
        (0..20).for_each(|_| write_next_record(&written, &ring));
        let values = read_values(&mut reader, &written, &ring);
        assert_eq!(values.last(), Some(&19));
        assert_eq!(values.len() as u64 + reader.lost_records(), 20);
    }

    #[test]
    fn unfinished_record_is_waited_for() {
        let (written, ring, mut reader) = (AtomicU64::new(0), empty_ring(8), RingReader::default());
        write_next_record(&written, &ring);
        let begun = written.fetch_add(1, Ordering::SeqCst);
        write_next_record(&written, &ring);
        assert_eq!(read_values(&mut reader, &written, &ring), [0]);
        ring[begun as usize].write(&numbered_record(begun).to_bytes());
        assert_eq!(read_values(&mut reader, &written, &ring), [1, 2]);
    }

    #[test]
    fn records_read_beside_a_writer_are_whole_or_counted() {
        let (written, ring) = (AtomicU64::new(0), empty_ring(64));
        let (count, done) = (200_000, AtomicBool::new(false));
        let (mut reader, mut seen) = (RingReader::default(), 0);
        thread::scope(|threads| {
            threads.spawn(|| {
                (0..count).for_each(|_| write_next_record(&written, &ring));
                done.store(true, Ordering::SeqCst);
            });
            loop {
                let is_last = done.load(Ordering::SeqCst);
                reader.read(&written, &ring, |record| {
                    assert!([record.socket, record.request, record.at_ns - 1].iter().all(|word| *word == record.value));
                    seen += 1;
                });
                if is_last {
                    break;
                }
            }
        });
        assert_eq!(seen + reader.lost_records(), count);
    }
}
