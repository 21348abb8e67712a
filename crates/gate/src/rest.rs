//! Naps in place, by which a batch thread waits while the service needs its core.

use std::sync::atomic::Ordering;

use sidelane_formats::hist_record;
use sidelane_formats::nap::Nap;
use sidelane_policy::Nanos;

use crate::chunk::Chunk;
use crate::clock::now_ns;
use crate::decide::Verdict;
use crate::lane::Lane;

/// Naps until the policy allows the thread to run on, or the thread is moved off the lane. `tid` is the thread's id as
/// the kernel program knows it.
pub(crate) fn nap_until_allowed(lane: &Lane, tid: u32, nap: Nap) {
    let began_ns = now_ns();
    record_nap_start(lane, tid, began_ns);
    let mut chunk = Chunk::begin(lane, began_ns);
    loop {
        nap_while_busy(lane, nap);
        let now_ns = now_ns();
        if lane.has_thread_left() || may_run(lane, now_ns) {
            break;
        }
        chunk.renew_if_old(lane, now_ns);
        // Threads that take turns on the lane may all nap here, so the thread on the CPU writes its own id.
        lane.gate.nap_tid.store(tid, Ordering::Relaxed);
    }
    let ended_ns = now_ns();
    chunk.close(lane, ended_ns);
    if !lane.has_thread_left() && !lane.busy() {
        hist_record(&lane.gate.on_hist, ended_ns.saturating_sub(lane.idle_since_ns()));
    }
    let _ = lane.gate.nap_tid.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Naps until the service is idle, without accounting, policy or lock, for POSIX signal handlers.
pub(crate) fn nap_until_idle(lane: &Lane, nap: Nap) {
    while lane.busy() && !lane.has_thread_left() {
        nap_while_busy(lane, nap);
    }
}

fn record_nap_start(lane: &Lane, tid: u32, now_ns: Nanos) {
    lane.gate.naps.fetch_add(1, Ordering::Relaxed);
    lane.gate.nap_since_ns.store(now_ns, Ordering::Relaxed);
    lane.gate.nap_tid.store(tid, Ordering::Relaxed);
    // A reaction is measured from the start of a busy period, when the service begins to run, and only under
    // borrow-idle. Batch that is switched in beside a busy service would measure the time from its own start. The
    // overlap shows that case.
    if lane.is_borrow_idle() && lane.busy_since_ns() >= lane.turn_since_ns() {
        hist_record(&lane.gate.off_hist, lane.busy_run_ns(now_ns));
    }
}

fn nap_while_busy(lane: &Lane, nap: Nap) {
    // The end of a short idle period changes no memory that a nap could watch, so the thread waits with PAUSE.
    let nap = if lane.busy() { nap } else { Nap::Pause };
    if let Some(watched) = lane.request_words().next() {
        nap.wait(&watched.busy, || !lane.busy());
    }
}

fn may_run(lane: &Lane, now_ns: Nanos) -> bool {
    match lane.state.decide(lane.limits, now_ns, &lane.observe()) {
        Some(verdict) => matches!(verdict, Verdict::GoOn { .. }),
        None => !lane.busy(),
    }
}
