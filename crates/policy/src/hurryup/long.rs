//! Threads with long requests on little cores: lines 11 to 17 of Algorithm 1.

use super::event::{BigLittleCores, Thread};
use super::table::ThreadRequestTable;
use super::thread_placement::{MAX_THREADS, ThreadPlacement};
use crate::Nanos;

/// Thread whose request has been on a little core for longer than the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongRequest {
    pub(super) thread: Thread,
    pub(super) since: Nanos,
    /// Little core that the thread runs on.
    pub(super) little: usize,
}

/// List of threads with long requests, the longest request first: `ThreadsOnLittle` of Algorithm 1.
pub(super) struct ThreadsOnLittle {
    list: [LongRequest; MAX_THREADS],
    len: usize,
}

impl ThreadsOnLittle {
    pub(super) fn find(
        now: Nanos,
        threshold_ns: Nanos,
        table: &ThreadRequestTable,
        placement: &ThreadPlacement,
        cores: &BigLittleCores,
    ) -> Self {
        // Line 11 of Algorithm 1: the list starts empty.
        let mut found = Self { list: [LongRequest::default(); MAX_THREADS], len: 0 };
        // Lines 12 to 14 of Algorithm 1: requests that have been under way for longer than the threshold.
        for entry in table.iter().filter(|entry| now.saturating_sub(entry.since) > threshold_ns) {
            // Lines 15 and 16 of Algorithm 1: only threads on little cores come into the list.
            let little = placement
                .placed_thread(entry.thread)
                .and_then(|placed| placed.cpu)
                .filter(|cpu| cores.little.contains(*cpu));
            if let Some(little) = little {
                found.list[found.len] = LongRequest { thread: entry.thread, since: entry.since, little };
                found.len += 1;
            }
        }
        // Line 17 of Algorithm 1: the longest request comes first. If requests began at the same time, the lower thread
        // number comes first, so that the order does not depend on chance.
        found.list[..found.len].sort_unstable_by_key(|long| (long.since, long.thread));
        found
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = LongRequest> + '_ {
        self.list[..self.len].iter().copied()
    }
}
