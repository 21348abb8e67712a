//! Requests under way: lines 1 and 4 to 8.
//!
//! Problem. The paper's table grows with each end that is missed. With its pipe such a request stays for ever: an end
//! that comes after its begin was forgotten is read as a begin.
//!
//! Approach. A thread works on one request at a time (§III-C). So when a thread begins a request and still has one, the
//! end of that was missed. And the table is bounded: when it is full, the request that began first is dropped. Both are
//! counted.

use super::seen::{Request, Thread};
use crate::Nanos;

/// The most requests under way that are remembered.
pub const MAX_REQUESTS: usize = 512;

/// A request under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) thread: Thread,
    pub(super) since: Nanos,
    /// Its work until `settled`, as time on a big core.
    pub(super) work_ns: Nanos,
    /// Time up to which its work is counted.
    pub(super) settled: Nanos,
}

/// Requests that left the table without an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostRequests {
    /// Dropped since the table was full.
    pub dropped: u64,
    /// Replaced since their thread began another request, or ended.
    pub unended: u64,
}

/// The table (line 1).
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: [Entry; MAX_REQUESTS],
    len: usize,
    lost: LostRequests,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { entries: [Entry::default(); MAX_REQUESTS], len: 0, lost: LostRequests::default() }
    }

    pub(super) fn lost(&self) -> LostRequests {
        self.lost
    }

    /// Returns the requests in it.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries[..self.len].iter()
    }

    /// Returns the request that a thread works on.
    pub(super) fn of(&mut self, thread: Thread) -> Option<&mut Entry> {
        self.entries[..self.len].iter_mut().find(|entry| entry.thread == thread)
    }

    pub(super) fn contains(&self, request: Request) -> bool {
        self.iter().any(|entry| entry.request == request)
    }

    /// Adds a request (line 8).
    pub(super) fn begin(&mut self, now: Nanos, thread: Thread, request: Request, since: Nanos) {
        self.forget(thread);
        self.end(request);
        if self.len == MAX_REQUESTS {
            self.drop_first();
        }
        self.entries[self.len] = Entry { request, thread, since: since.min(now), work_ns: 0, settled: now };
        self.len += 1;
    }

    /// Removes a request (line 6).
    pub(super) fn end(&mut self, request: Request) -> Option<Entry> {
        let at = self.iter().position(|entry| entry.request == request)?;
        Some(self.take(at))
    }

    /// Forgets the request of a thread whose end was not reported.
    pub(super) fn forget(&mut self, thread: Thread) {
        let at = self.iter().position(|entry| entry.thread == thread);
        if let Some(at) = at {
            self.take(at);
            self.lost.unended += 1;
        }
    }

    fn drop_first(&mut self) {
        let first = self.iter().enumerate().min_by_key(|(_, entry)| entry.since);
        if let Some(at) = first.map(|(at, _)| at) {
            self.take(at);
            self.lost.dropped += 1;
        }
    }

    fn take(&mut self, at: usize) -> Entry {
        self.len -= 1;
        self.entries.swap(at, self.len);
        self.entries[self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_drops_and_counts_the_oldest_request() {
        let mut table = Table::new();
        for number in 0..=MAX_REQUESTS as u32 {
            table.begin(1000, number, u64::from(number), 1000 - u64::from(number == 7));
        }
        assert_eq!(table.lost(), LostRequests { dropped: 1, unended: 0 });
        assert!(!table.contains(7) && table.contains(0) && table.iter().count() == MAX_REQUESTS);
    }

    #[test]
    fn new_request_of_a_thread_ends_its_previous_one() {
        let mut table = Table::new();
        table.begin(10, 1, 100, 5);
        table.begin(20, 1, 101, 20);
        assert_eq!((table.end(100), table.lost().unended), (None, 1));
        assert_eq!(table.end(101).map(|entry| entry.since), Some(20));
    }

    #[test]
    fn a_begin_in_the_future_is_now() {
        let mut table = Table::new();
        table.begin(10, 1, 100, 99);
        assert_eq!(table.of(1).map(|entry| entry.since), Some(10));
    }
}
