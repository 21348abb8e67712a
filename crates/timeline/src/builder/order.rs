//! Sorting of trace records by time. Each CPU's records come in order. Records of different CPUs are out of order by a
//! bounded time, the horizon.

use std::collections::VecDeque;

use crate::record::Record;

/// A queue of records, each of which waits until no earlier one can come.
#[derive(Debug)]
pub struct ReorderBuffer {
    waiting: VecDeque<Record>,
    horizon_ns: u64,
    newest_ns: u64,
    /// Time up to which all records have been taken from the queue.
    released_ns: u64,
}

/// The most records in the queue. One more record releases the oldest before its time.
const WAITING_MAX: usize = 65_536;

fn key(record: &Record) -> (u64, u32, u32) {
    (record.at_ns, record.cpu, record.seq)
}

impl ReorderBuffer {
    pub fn new(horizon_ns: u64) -> ReorderBuffer {
        ReorderBuffer { waiting: VecDeque::new(), horizon_ns, newest_ns: 0, released_ns: 0 }
    }

    /// Adds a record to the queue. Returns false if the record is too late to be sorted.
    pub fn push(&mut self, record: Record) -> bool {
        if record.at_ns < self.released_ns {
            return false;
        }
        self.newest_ns = self.newest_ns.max(record.at_ns);
        let mut at = self.waiting.len();
        while at > 0 && key(&self.waiting[at - 1]) > key(&record) {
            at -= 1;
        }
        if at == self.waiting.len() {
            self.waiting.push_back(record);
        } else {
            self.waiting.insert(at, record);
        }
        true
    }

    /// Returns the next record in the order of time; `None` if an earlier one may still come.
    pub fn pop(&mut self) -> Option<Record> {
        let front_ns = self.waiting.front()?.at_ns;
        if self.newest_ns.saturating_sub(front_ns) <= self.horizon_ns && self.waiting.len() < WAITING_MAX {
            return None;
        }
        self.released_ns = front_ns;
        self.waiting.pop_front()
    }

    /// Advances the time: no later call adds a record from before `now_ns`.
    pub fn advance(&mut self, now_ns: u64) {
        self.newest_ns = self.newest_ns.max(now_ns.saturating_add(self.horizon_ns));
    }

    /// Returns the time up to which all records have been taken from the queue.
    pub fn released_until_ns(&self) -> u64 {
        self.released_ns.max(self.newest_ns.saturating_sub(self.horizon_ns))
    }

    /// Returns the heap memory of the queue, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Record>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, Task};

    fn record(at_ns: u64) -> Record {
        let (task, other) = (Task::default(), Task::default());
        Record { at_ns, kind: Kind::Woken, seq: 0, task, cpu: 0, detail: 0, other, socket: 0, request: 0, value: 0 }
    }

    #[test]
    fn records_come_in_order_unless_one_is_later_than_the_horizon() {
        let mut order = ReorderBuffer::new(100);
        let pushed = [500, 450, 480, 601].map(|at_ns| order.push(record(at_ns)));
        assert_eq!(pushed, [true; 4]);
        assert!(order.heap_bytes() >= 4 * size_of::<Record>());
        let mut next = || order.pop().map(|record| record.at_ns);
        assert_eq!([next(), next(), next(), next()], [Some(450), Some(480), Some(500), None]);
        assert_eq!([499, 500].map(|at_ns| order.push(record(at_ns))), [false, true], "499 is too late");
        assert_eq!(order.released_until_ns(), 501);
    }
}
