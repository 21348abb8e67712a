//! The books of a nap: how long it was, and how much of that the service ran.
//!
//! To the kernel a thread that naps is a thread that runs: its books call the nap batch's time, and
//! overlap. So the nap's time is kept here, for the agent to subtract. That must not make overlap
//! look smaller than it is, so only time in which this very thread was on the lane counts: chunks of
//! a microsecond, each left out up to the last switch that the lane saw in it, and altogether if it
//! took longer than a nap can (a signal handler ran).

use std::sync::atomic::Ordering;

use sidelane_policy::Nanos;

use crate::lane::Lane;

/// Chunks are closed at this age: short enough to lose little to a switch.
const CHUNK_NS: Nanos = 1_000;
/// Older than this it was not all nap: the longest takes 10 µs. Much longer, since a virtual CPU may be
/// taken off its physical one in between, and no one is beside the service then.
const CHUNK_MAX_NS: Nanos = 200_000;

/// A span of napping that is not in the books yet.
pub(crate) struct Chunk {
    since_ns: Nanos,
    lc_ns: Option<Nanos>,
    switches: u32,
}

impl Chunk {
    pub(crate) fn begin(lane: &Lane, now_ns: Nanos) -> Self {
        lane.gate.nap_mark_ns.store(now_ns, Ordering::Release);
        Self { since_ns: now_ns, lc_ns: lane.lc_ns(now_ns), switches: lane.own.switches() }
    }

    /// Closes the chunk if it is old enough, and begins the next.
    pub(crate) fn go_on(&mut self, lane: &Lane, now_ns: Nanos) {
        if now_ns.saturating_sub(self.since_ns) >= CHUNK_NS {
            self.close(lane, now_ns);
            *self = Self::begin(lane, now_ns);
        }
    }

    /// Enters what was napped up to now, in this turn of the thread: what it napped before a switch is in
    /// no books but the kernel program's.
    pub(crate) fn close(&self, lane: &Lane, now_ns: Nanos) {
        // First, so that a nap that is cut short before this is the kernel program's to enter, and after it not.
        lane.gate.nap_mark_ns.store(0, Ordering::SeqCst);
        let whole = lane.own.switches() == self.switches;
        let since_ns = self.since_ns.max(lane.turn_since_ns());
        let napped_ns = now_ns.saturating_sub(since_ns);
        if napped_ns > CHUNK_MAX_NS || lane.left() {
            return;
        }
        lane.gate.napped_ns.fetch_add(napped_ns, Ordering::Relaxed);
        if let (true, Some(before_ns), Some(after_ns)) = (whole, self.lc_ns, lane.lc_ns(now_ns)) {
            let lc_ns = after_ns.saturating_sub(before_ns);
            lane.gate.napped_lc_ns.fetch_add(lc_ns, Ordering::Relaxed);
        }
    }
}
