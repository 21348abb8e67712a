//! The instrumented gate: what an agent and batch programs that check their own lane share.
//! `abi/gate.h` is the wire format.

use crate::sync::{AtomicU32, AtomicU64};

/// The version of the environment variable [`GATE_ENV`] and of the arrays that it names.
pub const GATE_VERSION: u32 = 2;
/// The environment variable with the arrays that a batch program maps.
pub const GATE_ENV: &str = "SIDELANE_GATE";
/// The most request lanes of one batch lane.
pub const GATE_PARTNERS: usize = 7;
/// Buckets of [`GateWord::off_hist`] and [`GateWord::on_hist`].
pub const GATE_HIST_BUCKETS: usize = 1024;

/// The lending limits of a batch lane: `struct sidelane_lane_limits`. Written by the agent.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct LaneLimits {
    /// How long batch may run beside a request; by deadline, that request's age limit.
    pub budget_ns: AtomicU64,
    /// How long the request lanes must be idle before batch runs again.
    pub min_idle_ns: AtomicU64,
    /// `enum sidelane_policy`.
    pub policy: AtomicU32,
    /// Loss of a request in millionths of the co-running.
    pub contention_cost_ppm: AtomicU32,
    /// Request lanes of this batch lane's core; 0: not a batch lane.
    pub request_count: AtomicU32,
    /// Their CPUs.
    pub requests: [AtomicU32; GATE_PARTNERS],
    /// By deadline, the age that each waiting request counts for.
    pub queued_ns: AtomicU64,
}

/// The accounting of a gate: `struct sidelane_gate_word`. Written by the batch thread on the lane.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct GateWord {
    /// Thread that naps here, 0 for none.
    pub nap_tid: AtomicU32,
    /// Naps begun; wraps.
    pub naps: AtomicU32,
    /// Start of the current or last nap.
    pub nap_since_ns: AtomicU64,
    /// Time napped, without the time since `nap_mark_ns`.
    pub napped_ns: AtomicU64,
    /// The part in which LC threads ran on the request lanes: no overlap.
    pub napped_lc_ns: AtomicU64,
    /// Checks that found the check word set.
    pub slow_paths: AtomicU64,
    /// Time that threads ran beside LC threads with the policy's leave.
    pub lent_lc_ns: AtomicU64,
    /// Promises to check that threads made on this lane.
    pub promises: AtomicU64,
    /// Start of the nap that is not in `napped_ns` yet; 0 while `nap_tid` adds it, or without a
    /// nap.
    pub nap_mark_ns: AtomicU64,
    /// Time from the service being idle to the end of a nap, in nanoseconds.
    pub on_hist: [AtomicU32; GATE_HIST_BUCKETS],
    /// Time from the service running to the nap of batch, in nanoseconds; 0 if the service did not
    /// run yet.
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
