//! Accounting of a nap: its length, and the part of it in which the service ran.
//!
//! To the kernel a thread that naps is a thread that runs. So the kernel's accounting counts the nap as batch time, and
//! as overlap. Therefore the nap's time is counted here, and the agent subtracts it. Subtracting too much would make
//! the overlap look smaller than it is, so only time in which this thread was on the lane counts. Naps are counted in
//! chunks of a microsecond. The part of a chunk before the lane's last context switch is left out, since the kernel
//! program adds that. In the rest of the chunk, a running service is counted from the start of its turn. A chunk that
//! took longer than a nap can, because a POSIX signal handler ran in it, is left out as a whole.

use std::sync::atomic::Ordering;

use sidelane_policy::Nanos;

use crate::lane::Lane;

/// Age at which a chunk, the uncounted part of a nap, is counted. It is so short that a context switch loses little
/// time.
const CHUNK_NS: Nanos = 1_000;
/// Largest age of a chunk that counts: an older chunk is not all nap, since the longest nap takes 10 µs. The limit is
/// much higher, because a virtual CPU may lose its physical CPU during a nap; nothing runs beside the service then.
const CHUNK_MAX_NS: Nanos = 200_000;

/// Part of a nap that is not in the accounting yet.
pub(crate) struct Chunk {
    since_ns: Nanos,
    lc_ns: Option<Nanos>,
    switches: u32,
}

impl Chunk {
    pub(crate) fn begin(lane: &Lane, now_ns: Nanos) -> Self {
        lane.gate.nap_mark_ns.store(now_ns, Ordering::Release);
        Self { since_ns: now_ns, lc_ns: lane.service_total_ns(now_ns), switches: lane.own.switches() }
    }

    /// Counts the chunk of the nap if it is old enough, and begins the next chunk.
    pub(crate) fn renew_if_old(&mut self, lane: &Lane, now_ns: Nanos) {
        if now_ns.saturating_sub(self.since_ns) >= CHUNK_NS {
            self.close(lane, now_ns);
            *self = Self::begin(lane, now_ns);
        }
    }

    /// Adds the nap up to now, as far as it is in the thread's current turn on the CPU. The kernel program alone counts
    /// the part before the last context switch.
    pub(crate) fn close(&self, lane: &Lane, now_ns: Nanos) {
        // The mark is cleared first. The kernel program adds a nap that a context switch ends before this line, and
        // does not add one that ends after it.
        lane.gate.nap_mark_ns.store(0, Ordering::SeqCst);
        let whole = lane.own.switches() == self.switches;
        let since_ns = self.since_ns.max(lane.turn_since_ns());
        let napped_ns = now_ns.saturating_sub(since_ns);
        if napped_ns > CHUNK_MAX_NS || lane.has_thread_left() {
            return;
        }
        lane.gate.napped_ns.fetch_add(napped_ns, Ordering::Relaxed);
        let lc_ns = match (self.lc_ns, lane.service_total_ns(now_ns)) {
            (Some(before_ns), Some(after_ns)) if whole => after_ns.saturating_sub(before_ns),
            _ => lane.min_service_run_ns(since_ns, now_ns),
        };
        lane.gate.napped_lc_ns.fetch_add(lc_ns, Ordering::Relaxed);
    }
}
