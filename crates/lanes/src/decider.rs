//! The part that all keepers of a batch lane share: samples the lanes, asks the policy, evicts batch and restores it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use std::{io, mem};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sidelane_formats::sample::{observe_lane, running_requests};
use sidelane_formats::{LaneWord, hist_record};
use sidelane_host::clock::now_ns;
use sidelane_host::eventfd::EventFd;
use sidelane_host::topology::BatchLane;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::{
    AnyRule, Borrow, Decision, LaneObservation, LaneReason, LaneState, LendingLimits, PolicyKind, Requests, WakeState,
};
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::LaneMemory;

use super::fault_injection::SummonsDelay;
use super::log::{LaneAudit, LaneDecision};

/// Actuator that evicts batch from a lane and restores it. Both calls may block.
pub trait Evictor: Send + Sync {
    /// Evicts batch: soon after this call no batch thread runs on `cpu`. On an error batch is where it was, and the
    /// lane must still be held.
    fn evict(&self, cpu: u32) -> io::Result<()>;
    /// Restores batch: it may run on `cpu` again.
    fn restore(&self, cpu: u32) -> io::Result<()>;
    /// Returns whether the last eviction has taken effect, or never will. Waits at most 1 ms for that. In this time
    /// batch has the lane, because a batch thread stops only when it runs.
    fn has_batch_left(&self, _cpu: u32) -> bool {
        true
    }
    /// Returns whether the last eviction has yet to take effect, without waiting.
    fn is_batch_leaving(&self, _cpu: u32) -> bool {
        false
    }
    /// Notes that evicted batch runs on its lane beside the service. The lane is held again.
    fn notify_batch_back(&self, _cpu: u32) {}
}

#[derive(Clone)]
pub struct KeeperResources {
    /// Memory shared with the kernel program.
    pub memory: Arc<LaneMemory>,
    /// Actuator that moves batch.
    pub evictor: Arc<dyn Evictor>,
    /// Audit log of the keeper's decisions.
    pub audit: LaneAudit,
}

/// Counts of a keeper since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeeperCounts {
    /// Number of holds begun.
    pub holds: u64,
    /// Number of holds that lasted until batch was evicted.
    pub evictions: u64,
    /// Number of evictions and restores that failed.
    pub evictor_errors: u64,
    /// Number of times that self-checking batch broke its promise and ran beside the service.
    pub promises_broken: u64,
    /// Time that the keeper spent napping.
    pub napped_ns: u64,
    /// Time in which batch ran beside requests that had waited, before the keeper noticed. Known only for emitted
    /// requests. The kernel program counts it as lent.
    pub late_ns: u64,
}

impl std::ops::Add for KeeperCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            holds: self.holds + other.holds,
            evictions: self.evictions + other.evictions,
            evictor_errors: self.evictor_errors + other.evictor_errors,
            promises_broken: self.promises_broken + other.promises_broken,
            napped_ns: self.napped_ns + other.napped_ns,
            late_ns: self.late_ns + other.late_ns,
        }
    }
}

/// State shared by a keeper's thread and the thread that started it.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Whether the keeper is not on its lane any more.
    pub(super) displaced: AtomicBool,
    /// Number of arrivals of service threads on the batch lane that have been handled.
    visitors_known: AtomicU32,
    napped_ns: AtomicU64,
    holds: AtomicU64,
    evictions: AtomicU64,
    evictor_errors: AtomicU64,
    pub(super) promises_broken: AtomicU64,
    late_ns: AtomicU64,
    /// Whether batch is kept off the lane; written to [`sidelane_policy::borrow::LendingLimits::kept_off`].
    kept_off: AtomicBool,
    /// Idle time after which batch gets the lane; written to [`sidelane_policy::borrow::LendingLimits::min_idle_ns`].
    min_idle_ns: AtomicU64,
    /// Index of the [`LaneReason`] why batch may not run on the lane, plus 1; 0 if batch may run.
    kept_by: AtomicU8,
    summons_delay: SummonsDelay,
    changed: EventFd,
}

impl Shared {
    pub(super) fn new(batch_lane: &LaneWord) -> io::Result<Self> {
        Ok(Self {
            stop: AtomicBool::new(false),
            displaced: AtomicBool::new(false),
            visitors_known: AtomicU32::new(batch_lane.lc_visitors()),
            napped_ns: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            evictor_errors: AtomicU64::new(0),
            promises_broken: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
            kept_off: AtomicBool::new(false),
            min_idle_ns: AtomicU64::new(0),
            kept_by: AtomicU8::new(0),
            summons_delay: SummonsDelay::from_environment(),
            changed: EventFd::new()?,
        })
    }

    /// Returns whether threads of the service came to the batch lane that have not been handled.
    pub(super) fn has_service_visitors(&self, batch_lane: &LaneWord) -> bool {
        batch_lane.lc_visitors() != self.visitors_known.load(Ordering::Acquire)
    }

    pub(super) fn acknowledge_visitors_gone(&self, batch_lane: &LaneWord) {
        self.visitors_known.store(batch_lane.lc_visitors(), Ordering::Release);
        self.changed.notify();
    }

    /// Sets the idle time after which batch gets the lane.
    pub(super) fn set_idle_threshold(&self, threshold: IdleThreshold) {
        let (kept_off, min_idle_ns) = match threshold {
            IdleThreshold::Never => (true, 0),
            IdleThreshold::AfterIdle(ns) => (false, ns),
        };
        let changes = self.kept_off.swap(kept_off, Ordering::Relaxed) != kept_off;
        if self.min_idle_ns.swap(min_idle_ns, Ordering::Relaxed) != min_idle_ns || changes {
            self.changed.notify();
        }
    }

    fn publish_state(&self, state: LaneState, why: LaneReason) {
        let kept_by = if state.lets_batch_run() { 0 } else { why as u8 + 1 };
        self.kept_by.store(kept_by, Ordering::Relaxed);
    }

    /// Returns why batch may not run on the lane; `None` if it may.
    pub(super) fn block_reason(&self) -> Option<LaneReason> {
        let place = self.kept_by.load(Ordering::Relaxed).checked_sub(1)?;
        LaneReason::ALL.get(usize::from(place)).copied()
    }

    pub(super) fn is_kept_off(&self) -> bool {
        self.kept_off.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> KeeperCounts {
        KeeperCounts {
            holds: self.holds.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            evictor_errors: self.evictor_errors.load(Ordering::Relaxed),
            promises_broken: self.promises_broken.load(Ordering::Relaxed),
            napped_ns: self.napped_ns.load(Ordering::Relaxed),
            late_ns: self.late_ns.load(Ordering::Relaxed),
        }
    }

    /// Wakes the keeper, which then samples its lane.
    pub(super) fn wake(&self) {
        self.changed.notify();
    }

    /// Asks the keeper's thread to end.
    pub(super) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.changed.notify();
    }

    /// Blocks until a summons or an event, at most `timeout_ns`. Returns whether one came, even if just after the
    /// timeout.
    pub(super) fn sleep(&self, ring: &SummonsRing, timeout_ns: Option<Nanos>) -> bool {
        let timeout = timeout_ns.map(timespec);
        let mut poll_fds =
            [PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN), PollFd::new(&self.changed, PollFlags::IN)];
        // An interrupted or refused sleep only means one more check of the lane. Each sleep is refused if the limit of
        // open files was lowered to less than two; a real-time thread that never sleeps would have the lane for itself.
        let polled = poll(&mut poll_fds, timeout.as_ref());
        if polled == Err(Errno::INVAL) {
            std::thread::sleep(REFUSED_SLEEP);
        }
        let woken = polled != Ok(0);
        let (summoned, rung) =
            (poll_fds[0].revents().contains(PollFlags::IN), poll_fds[1].revents().contains(PollFlags::IN));
        if summoned {
            self.summons_delay.sleep();
        }
        if rung {
            self.changed.clear();
        }
        ring.take() || woken
    }
}

/// Sleep of a keeper in place of one that the kernel refuses.
const REFUSED_SLEEP: Duration = Duration::from_millis(1);

/// Longest sleep of a keeper beside a lane that is lent while requests are emitted. No signal tells the keeper that a
/// request starts that had to wait. So this is the longest time for which such a request shares its core. It is also
/// the longest hold beside a request that batch may run beside. It costs batch one wakeup per millisecond. That is 3 %
/// of its lane on a virtual machine where a wakeup takes 28 µs, 2 µs of them for the check.
const REFRESH_EVERY_NS: Nanos = 1_000_000;

/// Least CPU time of batch, in the 1 ms that it gets to leave its lane, that shows that it stays. If batch ran for
/// less, other threads had the lane.
const RAN_MIN_NS: Nanos = 300_000;

/// Policy of one lane, with its observations and actions.
pub(super) struct Decider {
    pub(super) cpu: u32,
    pub(super) request_lanes: Vec<u32>,
    pub(super) memory: Arc<LaneMemory>,
    pub(super) shared: Arc<Shared>,
    pub(super) policy: Borrow<AnyRule>,
    /// State of the lane: the wanted state, unless batch could not be evicted.
    pub(super) state: LaneState,
    /// State that was decided last.
    wanted: LaneState,
    /// Whether a request that had to wait must not share its core. Read from the lending limits, which are written
    /// before the lane's keeper starts.
    pub(super) spares_waited: bool,
    /// Whether the last eviction has taken effect.
    pub(super) has_left: bool,
    /// Reason of the last decision.
    why: LaneReason,
    /// Observation on which the last decision was made.
    pub(super) seen: LaneObservation,
    /// Time of the observation on which the last decision was made.
    sampled_ns: Nanos,
    evictor: Arc<dyn Evictor>,
    audit: LaneAudit,
}

impl Decider {
    pub(super) fn new(
        lane: &BatchLane,
        resources: KeeperResources,
        shared: Arc<Shared>,
        policy: Borrow<AnyRule>,
    ) -> Self {
        let KeeperResources { memory, evictor, audit } = resources;
        let requests = lane.request_lanes.iter().collect();
        let kind = PolicyKind::try_from(memory.limits(lane.cpu).policy.load(Ordering::Relaxed)).unwrap_or_default();
        Self {
            cpu: lane.cpu,
            request_lanes: requests,
            memory,
            shared,
            policy,
            state: LaneState::Released,
            wanted: LaneState::Released,
            spares_waited: kind.spares_waited_requests(),
            has_left: true,
            why: LaneReason::default(),
            seen: LaneObservation::default(),
            sampled_ns: 0,
            evictor,
            audit,
        }
    }

    /// Samples the lanes, asks the policy, and carries out its decision.
    pub(super) fn decide(&mut self) {
        self.sample();
        let decision = self.policy.observe(self.sampled_ns, &self.seen);
        self.why = decision.why;
        if decision.state != self.wanted {
            self.apply_decision(decision, self.sampled_ns);
        }
        self.shared.publish_state(self.state, decision.why);
    }

    /// Counts a nap on the lane since the last decision.
    pub(super) fn count_nap(&self, napped_ns: Nanos) {
        self.shared.napped_ns.fetch_add(napped_ns, Ordering::Relaxed);
        if self.seen.request_busy {
            return;
        }
        let hold = self.memory.hold(self.cpu);
        match self.why {
            LaneReason::IdleTooShort => _ = hold.threshold_ns.fetch_add(napped_ns, Ordering::Relaxed),
            LaneReason::KeptOff => _ = hold.comparing_ns.fetch_add(napped_ns, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Carries out the policy's decision.
    fn apply_decision(&mut self, decision: Decision, now: Nanos) {
        let before = mem::replace(&mut self.wanted, decision.state);
        self.audit.record(now, LaneDecision { cpu: self.cpu, before, decision, seen: self.seen });
        self.state = decision.state;
        if decision.begins_hold(before) {
            self.shared.holds.fetch_add(1, Ordering::Relaxed);
        }
        if decision.state == LaneState::Evicted {
            self.evict();
        } else if before == LaneState::Evicted && self.evictor.restore(self.cpu).is_err() {
            self.shared.evictor_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn evict(&mut self) {
        self.has_left = true;
        if self.evictor.evict(self.cpu).is_ok() {
            self.shared.evictions.fetch_add(1, Ordering::Relaxed);
            self.wait_until_batch_left();
        } else {
            self.shared.evictor_errors.fetch_add(1, Ordering::Relaxed);
            self.state = LaneState::after_failed_eviction(self.has_service_visitors());
        }
    }

    /// Updates whether batch has left the lane; see [`Evictor::has_batch_left`]. Batch that did not run while this
    /// function waited delays no request. When it runs later, the kernel program summons the holder.
    pub(super) fn wait_until_batch_left(&mut self) {
        let was_told = !self.has_left;
        let before_ns = self.memory.batch_ns(self.cpu);
        let has_left = self.evictor.has_batch_left(self.cpu);
        self.has_left = has_left || self.memory.batch_ns(self.cpu) - before_ns < RAN_MIN_NS;
        if !self.has_left && !was_told {
            self.evictor.notify_batch_back(self.cpu);
        }
    }

    /// Handles batch that is back on a lane from which it was evicted, or still there.
    pub(super) fn handle_batch_back(&mut self) {
        if self.evictor.is_batch_leaving(self.cpu) {
            self.wait_until_batch_left();
        } else {
            self.has_left = false;
            self.evictor.notify_batch_back(self.cpu);
        }
    }

    /// Evicts batch whatever the policy decides, because the keeper is no longer on the lane.
    pub(super) fn give_up_lane(&mut self) {
        if self.state != LaneState::Evicted {
            self.apply_decision(Decision { state: LaneState::Evicted, why: LaneReason::End }, now_ns());
        }
    }

    /// Restores evicted batch, because the keeper ends.
    pub(super) fn restore_batch(&mut self) {
        if self.state == LaneState::Evicted {
            self.apply_decision(Decision { state: LaneState::Released, why: LaneReason::End }, now_ns());
        }
    }

    fn sample(&mut self) {
        let waited = self.has_waited_request();
        self.memory.refresh_requests(self.cpu);
        let words = self.request_lanes.iter().map(|cpu| self.memory.word(*cpu));
        let requests = self.request_lanes.iter().map(|cpu| self.memory.request(*cpu));
        let seen = observe_lane(words, requests, self.memory.service_of(self.cpu), self.memory.limits(self.cpu));
        if self.spares_waited && !waited && self.state == LaneState::Lent && self.memory.needs_request_refresh(self.cpu)
        {
            self.count_late_time(&seen);
        }
        self.sampled_ns = now_ns();
        let (kept_off, min_idle_ns) = (self.shared.is_kept_off(), self.shared.min_idle_ns.load(Ordering::Relaxed));
        if kept_off != self.seen.limits.kept_off {
            self.memory.hold(self.cpu).kept_off.store(kept_off.into(), Ordering::Release);
        }
        let limits = LendingLimits { kept_off, min_idle_ns, ..seen.limits };
        self.seen = LaneObservation { service_on_batch_lane: self.has_service_visitors(), limits, ..seen };
    }

    /// Returns the requests on the request lanes. Emitted requests are as of the last refresh.
    fn requests(&self) -> Option<Requests> {
        let words = self.request_lanes.iter().map(|cpu| self.memory.request(*cpu));
        running_requests(words, self.memory.service_of(self.cpu))
    }

    /// Counts the time for which batch had the lane since the last sample, if a request runs that had waited.
    fn count_late_time(&self, seen: &LaneObservation) {
        let Some(running) = seen.requests.and_then(|requests| requests.running).filter(|running| running.waited) else {
            return;
        };
        if !seen.request_busy || self.memory.self_checking() {
            return;
        }
        let began_ns = running.started.max(seen.request_since).max(self.sampled_ns);
        let late_ns = self.memory.turns(self.cpu).batch_ns_since(began_ns);
        self.shared.late_ns.fetch_add(late_ns, Ordering::Relaxed);
        hist_record(&self.memory.gate(self.cpu).off_hist, late_ns);
    }

    /// Returns when to sample again without a summons; `None` if never.
    pub(super) fn next_sample_at(&self) -> Option<Nanos> {
        let due = self.policy.next_wakeup();
        if !self.state.needs_polling(self.spares_waited, self.memory.needs_request_refresh(self.cpu)) {
            return due;
        }
        let refresh_at = now_ns().saturating_add(REFRESH_EVERY_NS);
        Some(due.map_or(refresh_at, |due| due.min(refresh_at)))
    }

    pub(super) fn must_stop(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Refreshes the request words, and returns the value of [`Decider::has_waited_request`].
    pub(super) fn refresh_has_waited_request(&self) -> bool {
        self.memory.refresh_requests(self.cpu);
        self.has_waited_request()
    }

    /// Returns whether a request that had to wait, and is to be spared, runs beside this lane. Emitted requests are as
    /// of the last refresh.
    pub(super) fn has_waited_request(&self) -> bool {
        self.spares_waited && self.requests().is_some_and(|requests| requests.has_waited_request())
    }

    /// Returns the values that a napping keeper watches, as of now.
    pub(super) fn current_wake_state(&self) -> WakeState {
        WakeState::from_requests(self.is_request_lane_busy(), self.requests().as_ref(), self.spares_waited)
    }

    /// Returns the values that a napping keeper watches, as of the last decision.
    pub(super) fn wake_state_at_decision(&self) -> WakeState {
        WakeState::from_requests(self.seen.request_busy, self.seen.requests.as_ref(), self.spares_waited)
    }

    /// Returns whether a keeper has to be on the lane now.
    pub(super) fn needs_keeper(&self) -> bool {
        // A hold is no help for a service thread that was on the lane at the last decision.
        let visited_since = || self.has_service_visitors() && !self.seen.service_on_batch_lane;
        self.state.needs_keeper(|| self.is_request_lane_busy(), || self.refresh_has_waited_request(), visited_since)
    }

    /// Returns the longest nap after which the next request is still noticed in time.
    pub(super) fn nap_ns_max(&self) -> Nanos {
        if self.memory.needs_request_refresh(self.cpu) && !self.spares_waited { REFRESH_EVERY_NS } else { Nanos::MAX }
    }

    pub(super) fn is_request_lane_busy(&self) -> bool {
        self.request_lanes.iter().any(|cpu| self.memory.word(*cpu).busy())
    }

    pub(super) fn has_service_visitors(&self) -> bool {
        self.shared.has_service_visitors(self.memory.word(self.cpu))
    }
}

pub(super) fn timespec(ns: u64) -> Timespec {
    const SECOND_NS: u64 = 1_000_000_000;
    Timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ }
}
