//! The keeper of a lane whose batch has a scheduler of its own.
//!
//! It runs the same policy as a holder, but only writes the hold word, and is not on the lane: the scheduler acts on
//! the word. It differs from a holder in three ways:
//!
//! - *It is not told when the service starts.* While the service is busy, the kernel refuses a RELEASED lane to batch.
//!   So the policy rightly calls the lane released: it is, on this condition. Hysteresis is not needed, because there
//!   is no wakeup to save.
//! - *HELD means that it wants to be told when the service stops*, as budgets need it.
//! - *It notices long holds by a check every few seconds.* The kernel lets a thread wait for at most 30 s, which bounds
//!   a hold. Together [`LOOK_EVERY_NS`] and [`EVICT_AFTER_NS`] are half of that. So a busy period without a signal is
//!   noticed in time. Such a check also kicks the lane, so a lost kick costs no more.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use sidelane_policy::Nanos;
use sidelane_policy::borrow::{AnyRule, Borrow, BorrowConfig, LaneState};

use super::super::super::decider::{Decider, KeeperCounts, KeeperResources, Shared};
use super::super::super::holder::Holder;
use sidelane_host::clock::now_ns;
use sidelane_host::topology::BatchLane;
use sidelane_tracker::scheduler::HoldOrders;
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::LaneMemory;

const LOOK_EVERY_NS: Nanos = 5_000_000_000;
const EVICT_AFTER_NS: Nanos = 10_000_000_000;

/// Function that starts the holder that takes over the lane if the kernel ends the scheduler.
pub type HolderStarter = Box<dyn FnOnce() -> io::Result<Holder> + Send>;

/// Keeper of a lane whose batch has a scheduler of its own. Dropping the keeper leaves the lane to batch.
pub struct ExtKeeper {
    cpu: u32,
    shared: Arc<Shared>,
    memory: Arc<LaneMemory>,
    successor: Arc<OnceLock<io::Result<Holder>>>,
    thread: Option<JoinHandle<()>>,
}

impl ExtKeeper {
    /// Settings of the keeper's policy.
    pub const CONFIG: BorrowConfig =
        BorrowConfig { min_idle_ns: 0, learns_min_idle: false, evict_after_ns: EVICT_AFTER_NS, lend_ahead_min_ns: 0 };

    /// Starts a keeper of `lane` that follows `policy`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        lane: &BatchLane,
        resources: KeeperResources,
        ring: SummonsRing,
        orders: HoldOrders,
        policy: Borrow<AnyRule>,
        start_holder: HolderStarter,
    ) -> io::Result<Self> {
        let memory = Arc::clone(&resources.memory);
        let shared = Arc::new(Shared::new(memory.word(lane.cpu))?);
        let successor = Arc::new(OnceLock::new());
        let decider = Decider::new(lane, resources, Arc::clone(&shared), policy);
        let body = ExtKeeperThread { decider, ring, orders };
        let succeeded = Arc::clone(&successor);
        let thread = thread::Builder::new().name(format!("keeper-{}", lane.cpu)).spawn(move || {
            if body.run() == KeeperEnd::SchedulerEjected {
                let _ = succeeded.set(start_holder());
            }
        })?;
        Ok(Self { cpu: lane.cpu, shared, memory, successor, thread: Some(thread) })
    }

    /// Returns the CPU of the lane.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns whether threads of the service came to the batch lane and were not acknowledged as gone; see
    /// [`Holder::has_service_visitors`].
    pub fn has_service_visitors(&self) -> bool {
        self.holder()
            .map_or_else(|| self.shared.has_service_visitors(self.memory.word(self.cpu)), Holder::has_service_visitors)
    }

    /// Acknowledges that the service cannot run on the batch lane any more; see [`Holder::acknowledge_visitors_gone`].
    pub fn acknowledge_visitors_gone(&self) {
        let here = || self.shared.acknowledge_visitors_gone(self.memory.word(self.cpu));
        self.holder().map_or_else(here, Holder::acknowledge_visitors_gone);
    }

    /// Returns the counts of this keeper and of the holder that has replaced it, if any.
    pub fn counts(&self) -> KeeperCounts {
        self.shared.counts() + self.holder().map(Holder::counts).unwrap_or_default()
    }

    /// Returns whether the holder that has replaced this keeper is off its lane. The keeper itself need not be on the
    /// lane.
    pub fn is_displaced(&self) -> bool {
        self.holder().is_some_and(Holder::is_displaced)
    }

    /// Asks the keeper to end. No holder takes over after that.
    pub fn dismiss(&self) {
        self.shared.ask_to_stop();
    }

    /// Returns why no holder took over although the kernel ended the scheduler; `None` otherwise.
    pub fn takeover_error(&self) -> Option<&io::Error> {
        self.successor.get().and_then(|taken| taken.as_ref().err())
    }

    fn holder(&self) -> Option<&Holder> {
        self.successor.get().and_then(|taken| taken.as_ref().ok())
    }
}

impl Drop for ExtKeeper {
    fn drop(&mut self) {
        self.shared.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeeperEnd {
    Dismissed,
    SchedulerEjected,
}

/// State of the keeper's thread.
struct ExtKeeperThread {
    decider: Decider,
    ring: SummonsRing,
    orders: HoldOrders,
}

impl ExtKeeperThread {
    fn run(mut self) -> KeeperEnd {
        while !self.decider.must_stop() {
            if self.orders.ejection().is_some() {
                break;
            }
            self.decider.decide();
            if self.try_leave_lane() {
                let timeout_ns = self.next_check_at().saturating_sub(now_ns());
                self.decider.shared.sleep(&self.ring, Some(timeout_ns));
            }
        }
        self.decider.restore_batch();
        self.set_lane_state(LaneState::Released);
        // Keepers are dismissed before their scheduler is ended on purpose. If this keeper was not, the kernel has
        // ended the scheduler.
        if self.decider.must_stop() { KeeperEnd::Dismissed } else { KeeperEnd::SchedulerEjected }
    }

    /// Returns when to check the lane again without a signal.
    fn next_check_at(&self) -> Nanos {
        let routine = now_ns().saturating_add(LOOK_EVERY_NS);
        self.decider.next_sample_at().map_or(routine, |wanted| wanted.min(routine))
    }

    /// Leaves the lane in the state that the policy wants. Returns false if the observation has changed since that
    /// decision. The state is stored before the words of the kernel program are read, as [`sidelane_formats::HoldWord`]
    /// demands.
    fn try_leave_lane(&self) -> bool {
        let decider = &self.decider;
        self.set_lane_state(decider.state);
        let may_sleep = decider
            .state
            .can_be_left_to_scheduler(|| decider.is_request_lane_busy(), || decider.refresh_has_waited_request());
        may_sleep && decider.has_service_visitors() == decider.seen.service_on_batch_lane
    }

    fn set_lane_state(&self, state: LaneState) {
        let cpu = self.decider.cpu;
        if self.orders.set_lane_state(cpu, state).is_err() {
            // Without a kick, the scheduler checks the lane at the end of batch's present turn.
            self.decider.memory.hold(cpu).state.store(state as u32, Ordering::SeqCst);
        }
    }
}
