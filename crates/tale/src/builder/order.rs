//! Puts records in the order of time. They come nearly so: each CPU's in its order, and those of different CPUs within a
//! horizon.

use std::collections::VecDeque;

use crate::record::Record;

/// Records that wait until no earlier one can come.
#[derive(Debug)]
pub struct Order {
    waiting: VecDeque<Record>,
    horizon_ns: u64,
    newest_ns: u64,
    /// Up to here records have been given out.
    released_ns: u64,
}

/// The most records that wait; one more lets the oldest go before its time.
const WAITING_MAX: usize = 65_536;

fn key(record: &Record) -> (u64, u32, u32) {
    (record.at_ns, record.cpu, record.seq)
}

impl Order {
    pub fn new(horizon_ns: u64) -> Order {
        Order { waiting: VecDeque::new(), horizon_ns, newest_ns: 0, released_ns: 0 }
    }

    /// Takes a record in. False if it came too late to be put in order.
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

    /// The next record, if none that is earlier can come any more.
    pub fn pop(&mut self) -> Option<Record> {
        let front_ns = self.waiting.front()?.at_ns;
        if self.newest_ns.saturating_sub(front_ns) <= self.horizon_ns && self.waiting.len() < WAITING_MAX {
            return None;
        }
        self.released_ns = front_ns;
        self.waiting.pop_front()
    }

    /// No record from before `now_ns` comes any more.
    pub fn advance(&mut self, now_ns: u64) {
        self.newest_ns = self.newest_ns.max(now_ns.saturating_add(self.horizon_ns));
    }

    /// Up to here all records have been given out that will ever be.
    pub fn done_ns(&self) -> u64 {
        self.released_ns.max(self.newest_ns.saturating_sub(self.horizon_ns))
    }

    /// Bytes that it takes beside itself.
    pub fn bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Record>()
    }
}
