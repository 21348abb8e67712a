//! Policy state of this process for each lane, behind a lock that no thread waits for.
//!
//! Elfen keeps `lane_status` in a per-CPU variable (Fig. 9(b)). Here, too, each process has one state for each lane,
//! and threads of the process that take turns on the lane share it. A thread that finds the lock taken naps until the
//! service is idle, which is right under every policy.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sidelane_formats::LaneLimits;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::{AnyRule, Borrow, BorrowConfig, LaneObservation, PolicyKind};

/// Returns a new state of the lending policy that the lane's limits name.
fn policy_for(limits: &LaneLimits) -> Borrow<AnyRule> {
    // The default for a policy that this version does not know is borrow-idle, which never lends the lane beside a
    // request.
    let kind = PolicyKind::try_from(limits.policy.load(Ordering::Relaxed)).unwrap_or_default();
    kind.policy(BorrowConfig {
        min_idle_ns: limits.min_idle_ns.load(Ordering::Relaxed),
        learns_min_idle: false,
        // A thread that naps in SCHED_IDLE starves no other thread, so no hold is too long.
        evict_after_ns: Nanos::MAX,
        // Lending in advance costs no wakeup, since the thread checks its lane itself. So any budget suffices.
        lend_ahead_min_ns: 0,
    })
}

/// Decision for a batch thread: nap or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The thread has to nap. It asks again when the observation changes, or at `until_ns`.
    Nap { until_ns: Option<Nanos> },
    /// The thread may run. It asks again when the observation changes, or at `until_ns`.
    GoOn { until_ns: Option<Nanos> },
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;

/// Policy of one lane in this process. All zero means: not locked, and no policy chosen yet.
pub(crate) struct SharedPolicy {
    lock: AtomicU32,
    /// Total run time of the service beside the lane at the moment when a thread was last permitted to run beside it.
    /// 0: the time since that moment is accounted for.
    let_go_lc_ns: AtomicU64,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    begun: bool,
    policy: MaybeUninit<Borrow<AnyRule>>,
    /// Latest time that the policy was given. Threads may ask in another order than they read the clock, but the
    /// policy's time must not decrease.
    now_ns: Nanos,
}

// SAFETY: only the thread that has the lock touches `inner`.
unsafe impl Sync for SharedPolicy {}

impl SharedPolicy {
    /// Records that a thread continues beside the running service. `service_ns` is the service's total run time so far.
    pub(crate) fn record_pass_start(&self, service_ns: Nanos) {
        self.let_go_lc_ns.store(service_ns.max(1), Ordering::Relaxed);
    }

    /// Returns how long the service has run beside the thread since the thread was permitted to continue, at most
    /// `limit_ns`. `service_ns` is the service's total run time so far. The permission lasts for `limit_ns` at most, so
    /// later time does not count as permitted.
    pub(crate) fn take_shared_time_ns(&self, service_ns: Nanos, limit_ns: Nanos) -> Nanos {
        match self.let_go_lc_ns.swap(0, Ordering::Relaxed) {
            0 => 0,
            since_ns => service_ns.saturating_sub(since_ns).min(limit_ns),
        }
    }

    /// Asks the policy for a decision; `None` if another thread is asking.
    pub(crate) fn decide(&self, limits: &LaneLimits, now_ns: Nanos, observation: &LaneObservation) -> Option<Verdict> {
        self.lock.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: locked; a POSIX signal handler that arrives here finds it locked too.
        let verdict = unsafe { &mut *self.inner.get() }.decide(limits, now_ns, observation);
        self.lock.store(FREE, Ordering::Release);
        Some(verdict)
    }
}

impl Inner {
    fn decide(&mut self, limits: &LaneLimits, now_ns: Nanos, observation: &LaneObservation) -> Verdict {
        if !self.begun {
            self.policy.write(policy_for(limits));
            self.begun = true;
        }
        // SAFETY: `policy` was written when the state was initialised.
        let policy = unsafe { self.policy.assume_init_mut() };
        self.now_ns = self.now_ns.max(now_ns);
        let state = policy.observe(self.now_ns, observation).state;
        let until_ns = policy.next_wakeup();
        if state.lets_batch_run() { Verdict::GoOn { until_ns } } else { Verdict::Nap { until_ns } }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::{LendingLimits, Requests, RunningRequest};

    use super::*;

    fn new_shared_policy() -> SharedPolicy {
        // SAFETY: the state's memory starts as all zero, so all zero is a valid state.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    fn lane_observation(request_busy: bool, request_since: Nanos) -> LaneObservation {
        LaneObservation { request_busy, request_since, ..LaneObservation::default() }
    }

    #[test]
    fn nap_lasts_while_the_service_is_busy_and_briefly_after() {
        let (state, limits) = (new_shared_policy(), LaneLimits { min_idle_ns: 1_000.into(), ..Default::default() });
        let ask = |now_ns, seen: LaneObservation| state.decide(&limits, now_ns, &seen).unwrap();
        assert_eq!(ask(5_000, lane_observation(false, 1_000)), Verdict::GoOn { until_ns: None });
        assert!(matches!(ask(6_000, lane_observation(true, 5_900)), Verdict::Nap { .. }));
        // Under borrow-idle the thread naps for as long as the service is busy.
        assert!(matches!(ask(60_000_000_000, lane_observation(true, 5_900)), Verdict::Nap { .. }));
        let until_ns = Some(60_000_002_000);
        assert_eq!(ask(60_000_001_500, lane_observation(false, 60_000_001_000)), Verdict::Nap { until_ns });
        assert_eq!(ask(60_000_002_000, lane_observation(false, 60_000_001_000)), Verdict::GoOn { until_ns: None });
    }

    /// The lane's limits choose the policy and the request's age at which batch may start, as they do for a
    /// lane holder.
    #[test]
    fn deadline_policy_runs_only_beside_young_requests() {
        let policy = (PolicyKind::Deadline as u32).into();
        let (state, lane_limits) =
            (new_shared_policy(), LaneLimits { budget_ns: 1_000.into(), policy, ..Default::default() });
        let ask = |now_ns, number, arrived| {
            let running = Some(RunningRequest { number, arrived, started: arrived, waited: number > 1 });
            let requests = Some(Requests { queue_len: 0, running });
            let limits = LendingLimits { budget_ns: 1_000, ..LendingLimits::default() };
            state
                .decide(&lane_limits, now_ns, &LaneObservation { requests, limits, ..lane_observation(true, 5_000) })
                .unwrap()
        };
        assert_eq!(ask(5_100, 1, 5_000), Verdict::GoOn { until_ns: Some(6_000) });
        assert!(matches!(ask(6_000, 1, 5_000), Verdict::Nap { .. }));
        assert_eq!(ask(6_200, 2, 5_900), Verdict::GoOn { until_ns: Some(6_900) });
    }

    #[test]
    fn pass_lasts_for_the_given_time() {
        let state = new_shared_policy();
        assert_eq!(state.take_shared_time_ns(500, 100), 0);
        state.record_pass_start(500);
        assert_eq!((state.take_shared_time_ns(560, 100), state.take_shared_time_ns(570, 100)), (60, 0));
        state.record_pass_start(600);
        assert_eq!(state.take_shared_time_ns(900, 100), 100);
    }

    #[test]
    fn held_lock_is_not_waited_for() {
        let state = new_shared_policy();
        state.lock.store(LOCKED, Ordering::Relaxed);
        assert_eq!(state.decide(&LaneLimits::default(), 1, &lane_observation(true, 0)), None);
    }

    #[test]
    fn older_clock_value_of_another_thread_is_harmless() {
        let (state, limits) = (new_shared_policy(), LaneLimits::default());
        for now_ns in [9_000, 8_000] {
            assert!(matches!(state.decide(&limits, now_ns, &lane_observation(true, 7_000)), Some(Verdict::Nap { .. })));
        }
    }
}
