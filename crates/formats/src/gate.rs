//! Shared memory of the instrumented gate, between an agent and batch programs that check their own lane. `abi/gate.h`
//! is the wire format.

use crate::sync::{AtomicU32, AtomicU64};

/// Version of the environment variable [`GATE_ENV`] and of the arrays that it names.
pub const GATE_VERSION: u32 = 2;
/// Name of the environment variable with the arrays that a batch program maps.
pub const GATE_ENV: &str = "SIDELANE_GATE";
/// Largest number of request lanes of one batch lane.
pub const GATE_PARTNERS: usize = 7;
/// Number of buckets in [`GateWord::off_hist`] and [`GateWord::on_hist`].
pub const GATE_HIST_BUCKETS: usize = 1024;

/// The lending limits of a batch lane: `struct sidelane_lane_limits`. Written by the agent.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct LaneLimits {
    /// Time for which batch may run beside a request; under the deadline policy, the age limit of that request.
    pub budget_ns: AtomicU64,
    /// Idle time of the request lanes after which batch runs again.
    pub min_idle_ns: AtomicU64,
    /// Number of the policy: `enum sidelane_policy`.
    pub policy: AtomicU32,
    /// Time that a request loses to batch, in millionths of the time beside batch.
    pub contention_cost_ppm: AtomicU32,
    /// Number of request lanes of this batch lane's core; 0 if the lane is no batch lane, or batch must not check it
    /// any more.
    pub request_count: AtomicU32,
    /// CPU numbers of the request lanes; the first `request_count` are valid.
    pub requests: [AtomicU32; GATE_PARTNERS],
    /// Age that each waiting request adds under the deadline policy.
    pub queued_ns: AtomicU64,
}

/// Accounting of the instrumented gate: `struct sidelane_gate_word`. Written by the batch thread on the lane.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct GateWord {
    /// Thread id of the batch thread that naps on this lane; 0 for none.
    pub nap_tid: AtomicU32,
    /// Number of naps begun; wraps.
    pub naps: AtomicU32,
    /// Start of the current or last nap.
    pub nap_since_ns: AtomicU64,
    /// Total time of all naps so far, without the part since `nap_mark_ns`.
    pub napped_ns: AtomicU64,
    /// Part of `napped_ns` in which service (LC) threads ran on the request lanes. Batch napped then, so this time is
    /// no overlap.
    pub napped_lc_ns: AtomicU64,
    /// Number of checks by batch that found the service busy (`busy_lanes` of the service word was not 0).
    pub slow_paths: AtomicU64,
    /// Time that batch ran beside running service (LC) threads because the policy permitted it.
    pub lent_lc_ns: AtomicU64,
    /// Number of threads that promised to check often on this lane.
    pub promises: AtomicU64,
    /// Start of the part of the present nap that is not yet in `napped_ns`. It is 0 without a nap, and while the
    /// napping thread adds that part.
    pub nap_mark_ns: AtomicU64,
    /// Histogram of the time from the moment when the service became idle to the end of batch's nap, in nanoseconds.
    pub on_hist: [AtomicU32; GATE_HIST_BUCKETS],
    /// Histogram of the time from the service's start to the start of batch's nap, in nanoseconds. The time is 0 if the
    /// service was woken and did not run yet.
    pub off_hist: [AtomicU32; GATE_HIST_BUCKETS],
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<LaneLimits>() == 64);
    assert!(offset_of!(LaneLimits, requests) == 28);
    assert!(offset_of!(LaneLimits, queued_ns) == 56);
    assert!(size_of::<GateWord>() == 64 + 2 * 4 * GATE_HIST_BUCKETS);
    assert!(offset_of!(GateWord, on_hist) == 64);
};
