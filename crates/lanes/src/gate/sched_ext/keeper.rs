//! The keeper of a lane whose batch has a scheduler of its own.
//!
//! It runs the same policy as a holder, but only moves the hold word, and is not on the lane while
//! it does: the scheduler acts on the word. Three things are different from a holder:
//!
//! - *It is not told when the service starts.* A lane that is RELEASED is refused to batch as long
//!   as the service is busy; the kernel sees to that alone. The policy still calls the lane
//!   released, and is right to: it is released on that condition. So there is no hysteresis
//!   either, for there is no wake-up to save.
//! - *HELD means that it wants to hear when the service stops*, as budgets need it to.
//! - *It looks after long holds by looking, a few times a minute.* What bounds a hold is how long
//!   the kernel lets a thread wait, 30 s, so a busy period that nobody announced is seen early
//!   enough: [`LOOK_EVERY_NS`] and [`EVICT_AFTER_NS`] together are half of it. Such a look also
//!   kicks the lane, so even a kick that got lost would cost no more than that.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use sidelane_policy::Nanos;
use sidelane_policy::borrow::{AnyRule, Borrow, BorrowConfig, LaneState};

use super::super::super::decider::{Decider, HolderBooks, Means, Shared};
use super::super::super::holder::Holder;
use sidelane_host::clock::now_ns;
use sidelane_host::topology::BatchLane;
use sidelane_tracker::scheduler::HoldOrders;
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::LaneMemory;

const LOOK_EVERY_NS: Nanos = 5_000_000_000;
const EVICT_AFTER_NS: Nanos = 10_000_000_000;

/// Takes over the lane if the scheduler is put out.
pub type Successor = Box<dyn FnOnce() -> io::Result<Holder> + Send>;

/// A running keeper. Dropping it leaves the lane to batch.
pub struct ExtKeeper {
    cpu: u32,
    shared: Arc<Shared>,
    memory: Arc<LaneMemory>,
    successor: Arc<OnceLock<io::Result<Holder>>>,
    thread: Option<JoinHandle<()>>,
}

impl ExtKeeper {
    /// What its policy has to be told.
    pub const CONFIG: BorrowConfig =
        BorrowConfig { min_idle_ns: 0, evict_after_ns: EVICT_AFTER_NS, lend_ahead_min_ns: 0 };

    /// Starts keeping `lane` as `policy` says.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        lane: &BatchLane,
        means: Means,
        ring: SummonsRing,
        orders: HoldOrders,
        policy: Borrow<AnyRule>,
        succeed: Successor,
    ) -> io::Result<Self> {
        let memory = Arc::clone(&means.memory);
        let shared = Arc::new(Shared::new(memory.word(lane.cpu))?);
        let successor = Arc::new(OnceLock::new());
        let decider = Decider::new(lane, means, Arc::clone(&shared), policy);
        let body = Body { decider, ring, orders };
        let succeeded = Arc::clone(&successor);
        let thread = thread::Builder::new().name(format!("keeper-{}", lane.cpu)).spawn(move || {
            if body.run() == End::PutOut {
                let _ = succeeded.set(succeed());
            }
        })?;
        Ok(Self { cpu: lane.cpu, shared, memory, successor, thread: Some(thread) })
    }

    /// The lane it keeps.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// As [`Holder::visited`].
    pub fn visited(&self) -> bool {
        self.holder().map_or_else(|| self.shared.visited(self.memory.word(self.cpu)), Holder::visited)
    }

    /// As [`Holder::visitors_gone`].
    pub fn visitors_gone(&self) {
        let here = || self.shared.visitors_gone(self.memory.word(self.cpu));
        self.holder().map_or_else(here, Holder::visitors_gone);
    }

    /// What it and its successor did so far.
    pub fn books(&self) -> HolderBooks {
        self.shared.books() + self.holder().map(Holder::books).unwrap_or_default()
    }

    /// Its successor's; it needs not be on its lane itself.
    pub fn is_displaced(&self) -> bool {
        self.holder().is_some_and(Holder::is_displaced)
    }

    /// Asks it to go; no holder takes over from now on.
    pub fn dismiss(&self) {
        self.shared.ask_to_stop();
    }

    /// Why there is no holder although the scheduler was put out.
    pub fn forsaken(&self) -> Option<&io::Error> {
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
enum End {
    Dismissed,
    PutOut,
}

/// The keeper's thread.
struct Body {
    decider: Decider,
    ring: SummonsRing,
    orders: HoldOrders,
}

impl Body {
    fn run(mut self) -> End {
        while !self.decider.must_stop() {
            if self.orders.ejection().is_some() {
                break;
            }
            self.decider.decide();
            if self.may_sleep() {
                let timeout_ns = self.look_at().saturating_sub(now_ns());
                self.decider.shared.sleep(&self.ring, Some(timeout_ns));
            }
        }
        self.decider.let_back();
        self.set(LaneState::Released);
        // Who ends the scheduler on purpose has dismissed its keepers before.
        if self.decider.must_stop() { End::Dismissed } else { End::PutOut }
    }

    /// When to look again though nothing was heard.
    fn look_at(&self) -> Nanos {
        let routine = now_ns().saturating_add(LOOK_EVERY_NS);
        self.decider.due().map_or(routine, |wanted| wanted.min(routine))
    }

    /// Leaves the lane as the policy wants it; false: what it has seen has changed meanwhile. As in
    /// [`sidelane_formats::HoldWord`], the state is stored before the other side's words are read.
    fn may_sleep(&self) -> bool {
        let decider = &self.decider;
        self.set(decider.state);
        let may_sleep = decider.state.may_be_left_to_orders(|| decider.busy(), || decider.waited_meanwhile());
        may_sleep && decider.visited() == decider.seen.service_on_batch_lane
    }

    fn set(&self, state: LaneState) {
        let cpu = self.decider.cpu;
        if self.orders.set(cpu, state).is_err() {
            // Without a kick the lane looks when batch's present turn is over.
            self.decider.memory.hold(cpu).state.store(state as u32, Ordering::SeqCst);
        }
    }
}
