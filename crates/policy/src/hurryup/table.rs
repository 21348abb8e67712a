//! Requests under way: lines 1 and 4 to 8 of Algorithm 1.
//!
//! Problem. The paper's table grows with each end that is missed. With its pipe such a request stays for ever. If an
//! end comes after its start was forgotten, it is read as a start.
//!
//! Approach. A thread works on one request at a time (§III-C). So when a thread begins a request while it has another
//! one, the end of that request was missed. The table is also bounded: when it is full, the request that began first
//! is dropped. Both are counted.

use super::event::{Request, Thread};
use crate::Nanos;

/// Largest number of requests under way that are remembered.
pub const MAX_REQUESTS: usize = 512;

/// Request under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) thread: Thread,
    pub(super) since: Nanos,
    /// Work of the request until `settled`, as time on a big core.
    pub(super) work_ns: Nanos,
    /// Time up to which the work of the request is counted.
    pub(super) settled: Nanos,
}

/// Counts of requests that left the table without an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostRequests {
    /// Number of requests that were dropped because the table was full.
    pub dropped: u64,
    /// Number of requests whose thread began another one, or ended.
    pub unended: u64,
}

/// Table of requests under way (line 1 of Algorithm 1).
#[derive(Clone, Debug)]
pub(super) struct ThreadRequestTable {
    entries: [Entry; MAX_REQUESTS],
    len: usize,
    lost: LostRequests,
}

impl ThreadRequestTable {
    pub(super) fn new() -> Self {
        Self { entries: [Entry::default(); MAX_REQUESTS], len: 0, lost: LostRequests::default() }
    }

    pub(super) fn lost(&self) -> LostRequests {
        self.lost
    }

    /// Returns the requests in the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries[..self.len].iter()
    }

    /// Returns the request that a thread works on.
    pub(super) fn request_of(&mut self, thread: Thread) -> Option<&mut Entry> {
        self.entries[..self.len].iter_mut().find(|entry| entry.thread == thread)
    }

    pub(super) fn contains(&self, request: Request) -> bool {
        self.iter().any(|entry| entry.request == request)
    }

    /// Adds a request (line 8 of Algorithm 1).
    pub(super) fn begin_request(&mut self, now: Nanos, thread: Thread, request: Request, since: Nanos) {
        self.drop_request_of(thread);
        self.remove_request(request);
        if self.len == MAX_REQUESTS {
            self.drop_oldest();
        }
        self.entries[self.len] = Entry { request, thread, since: since.min(now), work_ns: 0, settled: now };
        self.len += 1;
    }

    /// Removes a request (line 6 of Algorithm 1).
    pub(super) fn remove_request(&mut self, request: Request) -> Option<Entry> {
        let at = self.iter().position(|entry| entry.request == request)?;
        Some(self.remove_at(at))
    }

    /// Removes the request of a thread, if its end was not reported, and counts it.
    pub(super) fn drop_request_of(&mut self, thread: Thread) {
        let at = self.iter().position(|entry| entry.thread == thread);
        if let Some(at) = at {
            self.remove_at(at);
            self.lost.unended += 1;
        }
    }

    fn drop_oldest(&mut self) {
        let first = self.iter().enumerate().min_by_key(|(_, entry)| entry.since);
        if let Some(at) = first.map(|(at, _)| at) {
            self.remove_at(at);
            self.lost.dropped += 1;
        }
    }

    fn remove_at(&mut self, index: usize) -> Entry {
        self.len -= 1;
        self.entries.swap(index, self.len);
        self.entries[self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_drops_and_counts_the_oldest_request() {
        let mut table = ThreadRequestTable::new();
        for number in 0..=MAX_REQUESTS as u32 {
            table.begin_request(1000, number, u64::from(number), 1000 - u64::from(number == 7));
        }
        assert_eq!(table.lost(), LostRequests { dropped: 1, unended: 0 });
        assert!(!table.contains(7) && table.contains(0) && table.iter().count() == MAX_REQUESTS);
    }

    #[test]
    fn new_request_of_a_thread_ends_its_previous_one() {
        let mut table = ThreadRequestTable::new();
        table.begin_request(10, 1, 100, 5);
        table.begin_request(20, 1, 101, 20);
        assert_eq!((table.remove_request(100), table.lost().unended), (None, 1));
        assert_eq!(table.remove_request(101).map(|entry| entry.since), Some(20));
    }

    #[test]
    fn request_start_in_the_future_counts_as_now() {
        let mut table = ThreadRequestTable::new();
        table.begin_request(10, 1, 100, 99);
        assert_eq!(table.request_of(1).map(|entry| entry.since), Some(10));
    }
}
