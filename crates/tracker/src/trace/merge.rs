//! Records of several CPUs in one order.

use sidelane_timeline::record::Record;

/// Longest time from an event to its record in the ring. Exceptions are a CPU that the hypervisor takes away in
/// between, and records that are written afterwards.
pub const SETTLED_NS: u64 = 10_000_000;

/// Queue of records that older records may still precede.
#[derive(Debug, Default)]
pub struct RecordMerger {
    pending: Vec<Record>,
}

impl RecordMerger {
    /// Takes in a record that was read from a ring.
    pub fn add(&mut self, record: Record) {
        self.pending.push(record);
    }

    /// Moves the records that no later record can precede to `out`. All CPUs had been read at `now_ns`.
    pub fn take_settled(&mut self, now_ns: u64, out: &mut Vec<Record>) {
        self.take_until(now_ns.saturating_sub(SETTLED_NS), out);
    }

    /// Moves all records to `out`.
    pub fn take_remaining(&mut self, out: &mut Vec<Record>) {
        self.take_until(u64::MAX, out);
    }

    /// Moves records up to `at_ns` to `out`. Each CPU's records are nearly in order, and a stable sort merges them.
    fn take_until(&mut self, at_ns: u64, out: &mut Vec<Record>) {
        self.pending.sort_by_key(|record| record.at_ns);
        let settled = self.pending.partition_point(|record| record.at_ns <= at_ns);
        out.extend(self.pending.drain(..settled));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidelane_timeline::record::{Kind, Task};

    use super::*;

    fn record(at_ns: u64, cpu: u32) -> Record {
        let (task, other) = (Task::default(), Task::default());
        Record { at_ns, kind: Kind::Woken, seq: 1, task, cpu, detail: 0, other, socket: 0, request: 0, value: 0 }
    }

    proptest! {
        #[test]
        fn records_merge_in_order_within_the_settling_time(
            events in prop::collection::vec((0..50_000_000u64, 0..4u32, 0..SETTLED_NS), 0..200),
        ) {
            // Events in the order in which they are seen: by their time with some delay.
            let mut events = events;
            events.sort_by_key(|(at_ns, _, late_ns)| at_ns + late_ns);
            let (mut merge, mut out) = (RecordMerger::default(), Vec::new());
            for (at_ns, cpu, late_ns) in &events {
                merge.add(record(*at_ns, *cpu));
                merge.take_settled(at_ns + late_ns, &mut out);
            }
            merge.take_remaining(&mut out);
            prop_assert_eq!(out.len(), events.len());
            prop_assert!(out.is_sorted_by_key(|record| record.at_ns));
        }
    }
}
