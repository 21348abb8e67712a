//! Batch lane that a thread is on, and the state of the service's request lanes that the thread can read.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_formats::{GateWord, LaneLimits, LaneWord};
use sidelane_policy::Nanos;
use sidelane_policy::borrow::{LaneObservation, PolicyKind};

use crate::arrays::Arrays;
use crate::clock::Moment;
use crate::decide::SharedPolicy;

/// Two words of shared memory, each with an earlier value. A change of either ends a thread's permission to run beside
/// the service.
pub(crate) type PassWords = [(&'static AtomicU64, u64); 2];

/// Batch lane that the calling thread was on a moment ago.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    cpu: u32,
    arrays: &'static Arrays,
    pub(crate) own: &'static LaneWord,
    pub(crate) limits: &'static LaneLimits,
    pub(crate) gate: &'static GateWord,
    pub(crate) state: &'static SharedPolicy,
}

/// Returns the CPU that the calling thread runs on.
pub(crate) fn this_cpu() -> u32 {
    // SAFETY: reads a value that the kernel keeps for this thread; cannot fail on x86-64.
    unsafe { libc::sched_getcpu() as u32 }
}

impl Lane {
    /// Returns the lane of the CPU `cpu`; `None` if it is not a batch lane.
    pub(crate) fn find(arrays: &'static Arrays, cpu: u32) -> Option<Self> {
        let index = cpu as usize;
        let limits = arrays.limits.get(index).filter(|limits| limits.request_count.load(Ordering::Relaxed) > 0)?;
        let (own, gate) = (arrays.lanes.get(index)?, arrays.gates.get(index)?);
        Some(Self { cpu, arrays, own, limits, gate, state: arrays.states.get(index)? })
    }

    /// Returns the moment at which the arrays were mapped.
    pub(crate) fn arrays_mapped_at(&self) -> Moment {
        self.arrays.opened
    }

    /// Returns whether the calling thread has been moved off the lane.
    pub(crate) fn has_thread_left(&self) -> bool {
        this_cpu() != self.cpu
    }

    /// Returns the CPUs of the request lanes beside this lane.
    fn request_cpus(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let limits = self.limits;
        let count = limits.request_count.load(Ordering::Relaxed) as usize;
        limits.requests.iter().take(count).map(|cpu| cpu.load(Ordering::Relaxed) as usize)
    }

    /// Returns the lane words of the request lanes: the state of each lane in shared memory.
    pub(crate) fn request_words(&self) -> impl Iterator<Item = &'static LaneWord> + Clone + use<> {
        let lanes = self.arrays.lanes;
        self.request_cpus().filter_map(|cpu| lanes.get(cpu))
    }

    /// Returns whether the service needs one of the request lanes.
    #[inline]
    pub(crate) fn busy(&self) -> bool {
        self.request_words().any(LaneWord::busy)
    }

    /// Returns the policy's observation. The observation leaves out the service's use of the batch lane itself, for
    /// which the kernel program summons the lane holder.
    pub(crate) fn observe(&self) -> LaneObservation {
        let requests = self.request_cpus().filter_map(|cpu| self.arrays.requests.get(cpu));
        sidelane_formats::sample::observe_lane(self.request_words(), requests, self.arrays.service, self.limits)
    }

    /// Returns the time since which the service has needed one of its lanes; valid only while it needs one.
    pub(crate) fn busy_since_ns(&self) -> Nanos {
        sidelane_formats::sample::busy_since(self.request_words())
    }

    /// Returns how long the service has run in the current busy period; 0 if it was woken and does not run yet.
    pub(crate) fn busy_run_ns(&self, now_ns: Nanos) -> Nanos {
        let since =
            self.request_words().map(|word| word.lc_since_ns.load(Ordering::Acquire)).filter(|since_ns| *since_ns != 0);
        since.min().map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Returns the time since which the service has needed none of its lanes; valid only while it needs none.
    pub(crate) fn idle_since_ns(&self) -> Nanos {
        sidelane_formats::sample::idle_since(self.request_words())
    }

    /// Returns whether the policy is borrow-idle: every start of the service then ends batch's turn.
    pub(crate) fn is_borrow_idle(&self) -> bool {
        self.limits.policy.load(Ordering::Relaxed) == PolicyKind::BorrowIdle as u32
    }

    /// Returns the time of the last switch to the calling thread on this lane.
    pub(crate) fn turn_since_ns(&self) -> Nanos {
        self.own.since_ns.load(Ordering::Relaxed)
    }

    /// Returns the total time that threads of the service have run beside this lane; `None` if it cannot be read.
    pub(crate) fn service_total_ns(&self, now_ns: Nanos) -> Option<Nanos> {
        let mut times_ns = self.request_words().map(|word| Some(word.snapshot()?.service_time_ns(now_ns)));
        times_ns.try_fold(0, |total_ns: Nanos, time_ns| Some(total_ns.saturating_add(time_ns?)))
    }

    /// Returns the time that the service certainly ran beside this lane since `since_ns`. For a request lane on which
    /// it runs now, that is the time since its turn began.
    pub(crate) fn min_service_run_ns(&self, since_ns: Nanos, now_ns: Nanos) -> Nanos {
        let began =
            self.request_words().map(|word| word.lc_since_ns.load(Ordering::Acquire)).filter(|began_ns| *began_ns != 0);
        let turns_ns = began.map(|began_ns| now_ns.saturating_sub(began_ns.max(since_ns)));
        turns_ns.fold(0, Nanos::saturating_add)
    }

    /// Returns two words with their present values: the stamp of the running request, and the start of the busy period.
    /// A change of either means that the policy has to decide again. `None` with several request lanes.
    pub(crate) fn pass_words(&self) -> Option<PassWords> {
        let cpu = self.limits.requests[0].load(Ordering::Relaxed) as usize;
        let one = self.limits.request_count.load(Ordering::Relaxed) == 1;
        let request = self.arrays.requests.get(cpu).filter(|_| one)?;
        let words = [&request.stamp_ns, &self.arrays.lanes.get(cpu)?.busy_since_ns];
        Some(words.map(|word| (word, word.load(Ordering::Acquire))))
    }
}
