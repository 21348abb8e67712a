//! The lane holder: keeps a batch lane empty by running there itself.
//!
//! There is one thread for each batch lane, in SCHED_FIFO and pinned. It sleeps on its [`SummonsRing`] while batch may
//! run. When the service starts beside running batch, the kernel program rings. The thread preempts batch, and naps on
//! the lane until the policy releases it. It asks the policy and carries out the answer; it decides nothing.
//!
//! While the service waits for it, the thread must not do anything slow. Its loop allocates nothing, takes no lock,
//! waits for no page of its code, and makes no system call but to sleep. (Evictions and restores do, but only when a
//! pause of at least 1 ms has begun or has lasted.)

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::thread::{sched_getaffinity, sched_setaffinity};
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::{AnyRule, Borrow, LaneReason, LaneState};

use super::decider::{Decider, Shared};
pub use super::decider::{Evictor, KeeperCounts, KeeperResources};
use crate::gate::backstop::Backstop;
use crate::log::LaneAudit;
use sidelane_formats::HoldState;
use sidelane_host::clock::now_ns;
use sidelane_host::nap::Nap;
use sidelane_host::priority::{ThreadClass, pin_thread};
use sidelane_host::resident::keep_code_in_memory;
use sidelane_host::topology::BatchLane;
use sidelane_rollback::own_threads::SelfPlacedThread;
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::LaneMemory;

/// Length of a nap while the policy waits for a change that the holder itself has to notice.
const NAP_WITHOUT_WAKEUP_NS: u64 = 1_000_000;
/// Time for which the holder keeps a lane that batch has not left after an eviction, before batch gets 1 ms to leave.
/// Real-time throttling starts above 95 % of the time, and would give batch the other 5 % in one piece.
const HOLD_UNTIL_LEFT_NS: u64 = 19_000_000;

/// Handle of a running holder. Dropping it releases the lane.
pub struct Holder {
    cpu: u32,
    shared: Arc<Shared>,
    memory: Arc<LaneMemory>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    /// Starts a holder of `lane` that follows `policy`.
    ///
    /// # Errors
    /// When the thread cannot be pinned to the lane or made SCHED_FIFO.
    pub fn start(
        lane: BatchLane,
        memory: Arc<LaneMemory>,
        ring: SummonsRing,
        policy: Borrow<AnyRule>,
        evictor: Arc<dyn Evictor>,
        audit: LaneAudit,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(memory.word(lane.cpu))?);
        let cpu = lane.cpu;
        let evictor = Arc::new(LaneLeavingEvictor { evictor, memory: Arc::clone(&memory) });
        let means = KeeperResources { memory: Arc::clone(&memory), evictor, audit };
        let decider = Decider::new(&lane, means, Arc::clone(&shared), policy);
        let backstop = Backstop::new(Arc::clone(&memory), cpu);
        let body = HolderThread { decider, backstop, ring, nap: Nap::probe() };
        // If locking is refused, the code is in memory now but may be paged out later. The overlap that this causes is
        // counted.
        let _ = keep_code_in_memory();
        let (began, started) = std::sync::mpsc::channel();
        let (placed, place) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(format!("holder-{cpu}")).spawn(move || {
            let _fixed = SelfPlacedThread::for_this_thread();
            let _ = began.send(own_tid());
            if place.recv().is_ok() {
                body.run();
            }
        })?;
        let tid = started.recv().expect("the holder reports before it ends");
        // The holder is placed from here: batch that is yet to leave the lane may have a higher real-time priority, so
        // this thread must not wait for the holder to run there.
        pin_thread(tid, &[cpu])?;
        ThreadClass::HOLDER.apply_to_thread(tid)?;
        memory.hold(cpu).holder_pid.store(tid, Ordering::Release);
        let _ = placed.send(());
        Ok(Self { cpu, shared, memory, thread: Some(thread) })
    }

    /// Returns the CPU of the lane that the holder holds.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns whether threads of the service came to the batch lane and were not acknowledged as gone.
    pub fn has_service_visitors(&self) -> bool {
        self.shared.has_service_visitors(self.memory.word(self.cpu))
    }

    /// Acknowledges that the service cannot run on the batch lane any more.
    pub fn acknowledge_visitors_gone(&self) {
        self.shared.acknowledge_visitors_gone(self.memory.word(self.cpu));
    }

    /// Returns whether the holder is no longer on its lane, and so cannot hold it.
    pub fn is_displaced(&self) -> bool {
        self.shared.displaced.load(Ordering::Acquire)
    }

    /// Restores the class of the holder's thread if another process has changed it. Returns whether one had.
    pub fn restore_thread_class(&self) -> bool {
        let tid = self.memory.hold(self.cpu).holder_pid.load(Ordering::Acquire);
        let is_fit =
            tid == 0 || self.is_displaced() || ThreadClass::of_thread(tid).is_none_or(|it| it == ThreadClass::HOLDER);
        !is_fit && ThreadClass::HOLDER.apply_to_thread(tid).is_ok()
    }

    /// Returns why batch may not run on the lane; `None` if it may.
    pub fn block_reason(&self) -> Option<LaneReason> {
        self.shared.block_reason()
    }

    /// Sets the idle time after which batch gets the lane.
    pub fn set_idle_threshold(&self, threshold: IdleThreshold) {
        self.shared.set_idle_threshold(threshold);
    }

    /// Makes the holder check the lane now.
    pub fn check_now(&self) {
        self.shared.wake();
    }

    /// Returns the holder's counts since its start.
    pub fn counts(&self) -> KeeperCounts {
        self.shared.counts()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Evictor that marks the lane as left during its system calls, in which the holder may block. Batch that runs in this
/// time is on a lane without a hold, and no summons is sent for it.
struct LaneLeavingEvictor {
    evictor: Arc<dyn Evictor>,
    memory: Arc<LaneMemory>,
}

impl LaneLeavingEvictor {
    fn leave_lane_during<T>(&self, cpu: u32, work: impl FnOnce() -> T, stays_away: impl FnOnce(&T) -> bool) -> T {
        let hold = self.memory.hold(cpu);
        hold.evict();
        let done = work();
        if !stays_away(&done) {
            hold.hold();
        }
        done
    }
}

impl Evictor for LaneLeavingEvictor {
    fn evict(&self, cpu: u32) -> io::Result<()> {
        self.leave_lane_during(cpu, || self.evictor.evict(cpu), Result::is_ok)
    }

    fn restore(&self, cpu: u32) -> io::Result<()> {
        self.leave_lane_during(cpu, || self.evictor.restore(cpu), |_| false)
    }

    fn has_batch_left(&self, cpu: u32) -> bool {
        self.leave_lane_during(cpu, || self.evictor.has_batch_left(cpu), |has_left| *has_left)
    }

    fn is_batch_leaving(&self, cpu: u32) -> bool {
        self.evictor.is_batch_leaving(cpu)
    }

    fn notify_batch_back(&self, cpu: u32) {
        self.evictor.notify_batch_back(cpu);
    }
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// State of the holder's thread.
struct HolderThread {
    decider: Decider,
    backstop: Backstop,
    ring: SummonsRing,
    nap: Nap,
}

impl HolderThread {
    fn run(mut self) {
        while !self.decider.must_stop() && !self.is_displaced() {
            self.hold_while_wanted();
            while !self.decider.must_stop() && !self.is_displaced() && self.sleep() {}
        }
        if self.is_displaced() {
            self.retire_displaced_holder();
        }
        self.restore_lane();
        self.become_ordinary();
    }

    /// Returns whether the holder is on another CPU: its own CPU went offline, or another process has moved the holder.
    /// The service may run there.
    fn is_displaced(&self) -> bool {
        // SAFETY: the call reads no memory of this process.
        unsafe { libc::sched_getcpu() as u32 != self.decider.cpu }
    }

    /// Becomes an ordinary thread, which delays no thread on its present CPU, and evicts batch from the lane, which has
    /// no keeper any more.
    fn retire_displaced_holder(&mut self) {
        self.become_ordinary();
        if self.decider.must_stop() {
            return;
        }
        self.decider.give_up_lane();
        self.decider.memory.hold(self.decider.cpu).evict();
        self.decider.shared.displaced.store(true, Ordering::Release);
        while !self.decider.must_stop() {
            self.decider.shared.sleep(&self.ring, None);
        }
    }

    /// Gives up the real-time class, and takes the affinity of the process, which keeps off request lanes if it can.
    ///
    /// A thread that ended in its class on its lane would starve in the kernel behind batch that gets a higher
    /// real-time priority back. A process that then reads `/proc` or reaps this one spins until the thread is gone.
    fn become_ordinary(&self) {
        // If a call fails, the thread is ordinary on its present CPU, or ends as it is.
        let _ = ThreadClass::ORDINARY.apply_to_thread(own_tid());
        let process = rustix::process::getpid();
        let _ = sched_getaffinity(Some(process)).and_then(|cpus| sched_setaffinity(None, &cpus));
    }

    /// Blocks until a summons, an event, or the time at which the policy is due. Returns whether to go on sleeping.
    fn sleep(&mut self) -> bool {
        let due_ns = self.decider.next_sample_at();
        let timeout_ns = self.backstop.max_sleep_ns(due_ns.map(|at| at.saturating_sub(now_ns())));
        let woken = self.decider.shared.sleep(&self.ring, timeout_ns);
        let sleeps_on = !woken && self.backstop.may_keep_sleeping(due_ns.is_some_and(|at| now_ns() >= at));
        self.decider.shared.promises_broken.store(self.backstop.broken_promises(), Ordering::Relaxed);
        if sleeps_on {
            // The holder does not need the request words while it sleeps; self-checking batch reads them.
            self.decider.memory.refresh_requests(self.decider.cpu);
        }
        sleeps_on
    }

    /// Holds the lane for as long as the policy wants it.
    fn hold_while_wanted(&mut self) {
        let hold = self.decider.memory.hold(self.decider.cpu);
        let came_back = self.decider.state == LaneState::Evicted && hold.state() == Ok(HoldState::Summoned);
        // The lane is held while this thread runs. No summons is needed until the policy has answered.
        hold.hold();
        if came_back && !self.decider.has_service_visitors() {
            self.decider.handle_batch_back();
        }
        let mut look_at_ns = now_ns() + HOLD_UNTIL_LEFT_NS;
        while !self.decider.must_stop() && !self.is_displaced() {
            self.decider.decide();
            if self.try_leave_lane() {
                return;
            }
            self.nap(look_at_ns);
            if self.decider.state == LaneState::Evicted && now_ns() >= look_at_ns {
                self.decider.wait_until_batch_left();
                look_at_ns = now_ns() + HOLD_UNTIL_LEFT_NS;
            }
        }
    }

    /// Leaves the lane in the state that the policy wants. Returns false if the lane is, or has to be, held.
    fn try_leave_lane(&self) -> bool {
        let decider = &self.decider;
        let hold = decider.memory.hold(decider.cpu);
        match decider.state {
            LaneState::Held => false,
            LaneState::Released => hold.release(|| decider.needs_keeper()),
            LaneState::Lent => hold.lend(|| decider.needs_keeper()),
            // A hold would delay a service thread on this lane.
            LaneState::Evicted if !decider.has_left && !decider.has_service_visitors() => false,
            // The holder checks the lane again when the policy is due, when the service stops if the policy wants that,
            // when the service threads have gone, or when batch comes back.
            LaneState::Evicted => {
                hold.evict();
                !decider.policy.wants_idle_call() || hold.call_when_idle(|| decider.is_request_lane_busy())
            }
        }
    }

    /// Naps until the request lanes change, the policy is due, or the holder has to stop.
    fn nap(&self, recheck_at_ns: u64) {
        let decider = &self.decider;
        let began = now_ns();
        let deadline = decider.policy.next_wakeup().unwrap_or(began + NAP_WITHOUT_WAKEUP_NS);
        let deadline = deadline.min(began.saturating_add(decider.nap_ns_max()));
        let deadline = if decider.state == LaneState::Evicted { deadline.min(recheck_at_ns) } else { deadline };
        let watched = &decider.memory.word(decider.request_lanes[0]).busy;
        let before = decider.wake_state_at_decision();
        let over = || {
            decider.current_wake_state() != before
                || decider.has_service_visitors() != decider.seen.service_on_batch_lane
                || decider.shared.is_kept_off() != decider.seen.limits.kept_off
                || decider.shared.stop.load(Ordering::Relaxed)
                || self.is_displaced()
        };
        let mut now = began;
        while !over() && now < deadline {
            self.nap.wait(watched, Duration::from_nanos(deadline - now), over);
            now = now_ns();
        }
        decider.count_nap(now - began);
    }

    /// Leaves the lane in its original state.
    fn restore_lane(&mut self) {
        self.decider.restore_batch();
        let hold = self.decider.memory.hold(self.decider.cpu);
        hold.kept_off.store(0, Ordering::Release);
        hold.holder_pid.store(0, Ordering::Release);
        let _ = hold.release(|| false);
    }
}
