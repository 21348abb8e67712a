//! The batch lane that a thread is on, and what the thread can see of the service's request lanes.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_formats::{GateWord, LaneLimits, LaneWord};
use sidelane_policy::Nanos;
use sidelane_policy::borrow::{LaneObservation, PolicyKind};

use crate::arrays::Arrays;
use crate::clock::Moment;
use crate::decide::SharedPolicy;

/// Two words of shared memory, each with the value that it had.
pub(crate) type PassWords = [(&'static AtomicU64, u64); 2];

/// A batch lane. The calling thread was on it a moment ago.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    cpu: u32,
    arrays: &'static Arrays,
    pub(crate) own: &'static LaneWord,
    pub(crate) limits: &'static LaneLimits,
    pub(crate) gate: &'static GateWord,
    pub(crate) state: &'static SharedPolicy,
}

/// The CPU that the calling thread runs on.
pub(crate) fn this_cpu() -> u32 {
    // SAFETY: reads a value that the kernel keeps for this thread; cannot fail on x86-64.
    unsafe { libc::sched_getcpu() as u32 }
}

impl Lane {
    /// The lane `cpu`, if it is a batch lane.
    pub(crate) fn of(arrays: &'static Arrays, cpu: u32) -> Option<Self> {
        let index = cpu as usize;
        let limits = arrays.limits.get(index).filter(|limits| limits.request_count.load(Ordering::Relaxed) > 0)?;
        let (own, gate) = (arrays.lanes.get(index)?, arrays.gates.get(index)?);
        Some(Self { cpu, arrays, own, limits, gate, state: arrays.states.get(index)? })
    }

    /// When the arrays were mapped.
    pub(crate) fn opened(&self) -> Moment {
        self.arrays.opened
    }

    /// Whether the calling thread has been moved off the lane.
    pub(crate) fn left(&self) -> bool {
        this_cpu() != self.cpu
    }

    /// The CPUs that the service runs on beside this one.
    fn request_cpus(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let limits = self.limits;
        let count = limits.request_count.load(Ordering::Relaxed) as usize;
        limits.requests.iter().take(count).map(|cpu| cpu.load(Ordering::Relaxed) as usize)
    }

    /// The words of the request lanes.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &'static LaneWord> + Clone + use<> {
        let lanes = self.arrays.lanes;
        self.request_cpus().filter_map(|cpu| lanes.get(cpu))
    }

    /// Whether the service needs one of the request lanes.
    #[inline]
    pub(crate) fn busy(&self) -> bool {
        self.requests().any(LaneWord::busy)
    }

    /// The policy's observation. The service's use of the batch lane itself is left to the lane
    /// holder, which is summoned for it.
    pub(crate) fn sample(&self) -> LaneObservation {
        let requests = self.request_cpus().filter_map(|cpu| self.arrays.requests.get(cpu));
        sidelane_formats::sample::sample(self.requests(), requests, self.arrays.service, self.limits)
    }

    /// Since when the service has needed one of its lanes; meaningful while it does.
    pub(crate) fn busy_since_ns(&self) -> Nanos {
        sidelane_formats::sample::busy_since(self.requests())
    }

    /// For how long the service has run in the current busy period; 0 if it was woken and does not
    /// run yet.
    pub(crate) fn ran_ns(&self, now_ns: Nanos) -> Nanos {
        let since =
            self.requests().map(|word| word.lc_since_ns.load(Ordering::Acquire)).filter(|since_ns| *since_ns != 0);
        since.min().map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Since when the service has needed none of its lanes; meaningful while it needs none.
    pub(crate) fn idle_since_ns(&self) -> Nanos {
        sidelane_formats::sample::idle_since(self.requests())
    }

    /// Whether the policy is borrow-idle: every start of the service then ends batch's turn.
    pub(crate) fn borrows_idle(&self) -> bool {
        self.limits.policy.load(Ordering::Relaxed) == PolicyKind::BorrowIdle as u32
    }

    /// When the calling thread was last switched in here.
    pub(crate) fn turn_since_ns(&self) -> Nanos {
        self.own.since_ns.load(Ordering::Relaxed)
    }

    /// Total time that threads of the service have run beside this lane; `None` if that cannot be
    /// read.
    pub(crate) fn lc_ns(&self, now_ns: Nanos) -> Option<Nanos> {
        self.requests().map(|word| Some(word.snapshot()?.lc_ns(now_ns))).sum()
    }

    /// How long the service surely ran beside this lane since `since_ns`: on a request lane where it
    /// runs now, since it began to.
    pub(crate) fn surely_beside_ns(&self, since_ns: Nanos, now_ns: Nanos) -> Nanos {
        let began =
            self.requests().map(|word| word.lc_since_ns.load(Ordering::Acquire)).filter(|began_ns| *began_ns != 0);
        began.map(|began_ns| now_ns.saturating_sub(began_ns.max(since_ns))).sum()
    }

    /// Two words that change when the policy has to decide anew, with their values now: the running
    /// request's word, and the start of the busy period. `None` with several request lanes.
    pub(crate) fn pass_words(&self) -> Option<PassWords> {
        let cpu = self.limits.requests[0].load(Ordering::Relaxed) as usize;
        let one = self.limits.request_count.load(Ordering::Relaxed) == 1;
        let request = self.arrays.requests.get(cpu).filter(|_| one)?;
        let words = [&request.stamp_ns, &self.arrays.lanes.get(cpu)?.busy_since_ns];
        Some(words.map(|word| (word, word.load(Ordering::Acquire))))
    }
}
