//! Threads with long requests on little cores: lines 11 to 17.

use super::seats::{MAX_THREADS, ThreadPlacement};
use super::seen::{BigLittleCores, Thread};
use super::table::Table;
use crate::Nanos;

/// A thread whose request has been on a little core for longer than the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongRequest {
    pub(super) thread: Thread,
    pub(super) since: Nanos,
    /// Its core.
    pub(super) little: usize,
}

/// `ThreadsOnLittle`, the longest first.
pub(super) struct ThreadsOnLittle {
    list: [LongRequest; MAX_THREADS],
    len: usize,
}

impl ThreadsOnLittle {
    pub(super) fn find(
        now: Nanos,
        threshold_ns: Nanos,
        table: &Table,
        seats: &ThreadPlacement,
        cores: &BigLittleCores,
    ) -> Self {
        // Line 11.
        let mut found = Self { list: [LongRequest::default(); MAX_THREADS], len: 0 };
        // Lines 12 to 14.
        for entry in table.iter().filter(|entry| now.saturating_sub(entry.since) > threshold_ns) {
            // Lines 15 and 16.
            let little = seats.of(entry.thread).and_then(|seat| seat.cpu).filter(|cpu| cores.little.contains(*cpu));
            if let Some(little) = little {
                found.list[found.len] = LongRequest { thread: entry.thread, since: entry.since, little };
                found.len += 1;
            }
        }
        // Line 17. Of requests that began together the lower thread comes first, so that nothing is left to chance.
        found.list[..found.len].sort_unstable_by_key(|long| (long.since, long.thread));
        found
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = LongRequest> + '_ {
        self.list[..self.len].iter().copied()
    }
}
