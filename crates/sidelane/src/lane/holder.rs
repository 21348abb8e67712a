//! The lane holder: keeps a batch lane empty, by being there itself.
//!
//! One thread a batch lane, in SCHED_FIFO and pinned. It sleeps on its bell ([`SummonsRing`])
//! while batch may run. When the service starts beside running batch the kernel program rings;
//! the thread preempts whatever batch runs on the lane, and naps there until the policy lets
//! go. It asks the policy, and carries out what it says; it decides nothing.
//!
//! What the thread must not do while the service waits for it is the rule of this file: its
//! loop allocates nothing, takes no lock and makes no system call but to sleep. (Evicting and
//! restoring do; they come a few times a second at most.)

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use sidelane_policy::{Action, Actions, Observation, Policy, Reason};
use sidelane_signal::LaneWord;

use super::audit::Audit;
use super::clock::now_ns;
use super::gate::Backstop;
use super::look::{look, requests};
use super::nap::Nap;
use super::priority::{self, HOLDER_PRIORITY};
use super::summons::SummonsRing;
use super::topology::BatchLane;
use super::tracker::LaneMemory;

/// How long to nap where the policy waits for a change that the holder itself has to notice.
const NAP_WITHOUT_WAKEUP_NS: u64 = 1_000_000;

/// Sends batch away from a lane and brings it back; both may take their time.
pub trait Evictor: Send + Sync {
    /// No batch thread runs on `cpu` from soon after this call on. On an error batch is where
    /// it was, and the lane has to be held on.
    fn evict(&self, cpu: u32) -> io::Result<()>;
    /// Batch may run on `cpu` again.
    fn restore(&self, cpu: u32) -> io::Result<()>;
}

/// What a holder shares with the thread that started it.
struct Shared {
    stop: AtomicBool,
    /// Arrivals of service threads on the batch lane that have been dealt with.
    visitors_known: AtomicU32,
    napped_ns: AtomicU64,
    holds: AtomicU64,
    evictions: AtomicU64,
    evictor_errors: AtomicU64,
    promises_broken: AtomicU64,
    bell: OwnedFd,
}

impl Shared {
    /// Whether threads of the service came to the batch lane that have not been dealt with.
    fn visited(&self, batch_lane: &LaneWord) -> bool {
        batch_lane.lc_visitors() != self.visitors_known.load(Ordering::Acquire)
    }
}

/// A running holder. Dropping it releases the lane.
pub struct Holder {
    cpu: u32,
    shared: Arc<Shared>,
    memory: Arc<LaneMemory>,
    thread: Option<JoinHandle<()>>,
}

/// What a holder did so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct HolderBooks {
    /// Holds begun.
    pub holds: u64,
    /// Holds that lasted until batch was sent away.
    pub evictions: u64,
    /// Times batch could not be sent away or brought back.
    pub evictor_errors: u64,
    /// Times batch ran beside the service that had promised to look for itself.
    pub promises_broken: u64,
    /// Time spent napping.
    pub napped_ns: u64,
}

impl Holder {
    /// Starts holding `lane` as `policy` says.
    ///
    /// # Errors
    /// When the thread cannot be pinned to the lane or made SCHED_FIFO.
    pub fn start(
        lane: BatchLane,
        memory: Arc<LaneMemory>,
        ring: SummonsRing,
        policy: impl Policy + Send + 'static,
        evictor: Arc<dyn Evictor>,
        audit: Audit,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            visitors_known: AtomicU32::new(memory.word(lane.cpu).lc_visitors()),
            napped_ns: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            evictor_errors: AtomicU64::new(0),
            promises_broken: AtomicU64::new(0),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let cpu = lane.cpu;
        let body = Body {
            requests: lane.requests.iter().collect(),
            cpu,
            backstop: Backstop::new(Arc::clone(&memory), cpu),
            memory: Arc::clone(&memory),
            shared: Arc::clone(&shared),
            ring,
            policy,
            evictor,
            audit,
            nap: Nap::probe(),
            want: Want::Free,
        };
        let (ready, started) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(format!("holder-{cpu}")).spawn(move || {
            let armed = body.take_place();
            let fit = armed.is_ok();
            let _ = ready.send(armed);
            if fit {
                body.run();
            }
        })?;
        started.recv().expect("the holder reports before it ends")?;
        Ok(Self { cpu, shared, memory, thread: Some(thread) })
    }

    /// The lane it holds.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Whether threads of the service were put on the batch lane and have not been
    /// acknowledged as gone.
    pub fn visited(&self) -> bool {
        self.shared.visited(self.memory.word(self.cpu))
    }

    /// Says that the service can no longer run on the batch lane, whatever happened before.
    pub fn visitors_gone(&self) {
        let visitors = self.memory.word(self.cpu).lc_visitors();
        self.shared.visitors_known.store(visitors, Ordering::Release);
        self.ring_bell();
    }

    /// What it did so far.
    pub fn books(&self) -> HolderBooks {
        HolderBooks {
            holds: self.shared.holds.load(Ordering::Relaxed),
            evictions: self.shared.evictions.load(Ordering::Relaxed),
            evictor_errors: self.shared.evictor_errors.load(Ordering::Relaxed),
            promises_broken: self.shared.promises_broken.load(Ordering::Relaxed),
            napped_ns: self.shared.napped_ns.load(Ordering::Relaxed),
        }
    }

    fn ring_bell(&self) {
        // Fails only when the counter is full, and then the bell rings already.
        let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.ring_bell();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the policy's last action asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Free,
    Lent,
    Held,
    Evicted,
}

/// The holder's thread.
struct Body<P> {
    cpu: u32,
    requests: Vec<u32>,
    memory: Arc<LaneMemory>,
    backstop: Backstop,
    shared: Arc<Shared>,
    ring: SummonsRing,
    policy: P,
    evictor: Arc<dyn Evictor>,
    audit: Audit,
    nap: Nap,
    want: Want,
}

impl<P: Policy> Body<P> {
    fn take_place(&self) -> io::Result<()> {
        priority::pin_this_thread(&[self.cpu])?;
        priority::make_this_thread_fifo(HOLDER_PRIORITY)?;
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        self.memory.hold(self.cpu).holder_pid.store(tid, Ordering::Release);
        Ok(())
    }

    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.serve();
            while self.sleep() {}
        }
        self.leave();
    }

    /// Blocks until summoned, rung for or the policy's own time. Returns whether to sleep on.
    fn sleep(&mut self) -> bool {
        let due_ns = self.policy.next_wakeup();
        let timeout = self.backstop.sleep_ns(due_ns.map(|at| at.saturating_sub(now_ns()))).map(timespec);
        let mut doors =
            [PollFd::from_borrowed_fd(self.ring.fd(), PollFlags::IN), PollFd::new(&self.shared.bell, PollFlags::IN)];
        // An interrupted or refused sleep only means one more look at the lane.
        let woken = poll(&mut doors, timeout.as_ref()) != Ok(0);
        let rung = doors[1].revents().contains(PollFlags::IN);
        self.ring.drain();
        if rung {
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        }
        let sleeps_on = !woken && self.backstop.sleeps_on(due_ns.is_some_and(|at| now_ns() >= at));
        self.shared.promises_broken.store(self.backstop.broken(), Ordering::Relaxed);
        sleeps_on
    }

    /// Holds the lane for as long as the policy wants it.
    fn serve(&mut self) {
        let hold = self.memory.hold(self.cpu);
        // Running is holding: until the policy has spoken, no further summons are needed.
        hold.hold();
        while !self.shared.stop.load(Ordering::Acquire) {
            let seen = self.look();
            self.ask(&seen);
            if self.may_sleep() {
                return;
            }
            self.nap(&seen);
        }
    }

    /// Leaves the lane as the policy wants it; false: the lane is, or has to be, held.
    fn may_sleep(&self) -> bool {
        let hold = self.memory.hold(self.cpu);
        match (self.want, self.policy.next_wakeup()) {
            // Evicted, and waiting out a short idle moment before batch comes back.
            (Want::Held, _) | (Want::Evicted, Some(_)) => false,
            (Want::Free, _) => hold.release(|| self.busy()),
            (Want::Lent, _) => hold.lend(|| self.waited() || self.visited()),
            (Want::Evicted, None) => hold.evict(|| self.busy() || self.visited()),
        }
    }

    fn ask(&mut self, seen: &Observation) {
        let mut actions = Actions::default();
        let now = now_ns();
        self.policy.observe(now, seen, &mut actions);
        for action in actions.iter() {
            self.act(action, now);
        }
    }

    fn act(&mut self, action: Action, now: u64) {
        self.audit.record(now, self.cpu, action, self.policy.why());
        match action {
            Action::Hold => {
                self.shared.holds.fetch_add(1, Ordering::Relaxed);
                self.want = Want::Held;
            }
            Action::Release => self.want = Want::Free,
            Action::Lend => self.want = Want::Lent,
            Action::Evict => self.want = self.evict(),
            Action::Restore => {
                if self.evictor.restore(self.cpu).is_err() {
                    self.shared.evictor_errors.fetch_add(1, Ordering::Relaxed);
                }
                self.want = Want::Free;
            }
        }
    }

    fn evict(&self) -> Want {
        if self.evictor.evict(self.cpu).is_ok() {
            self.shared.evictions.fetch_add(1, Ordering::Relaxed);
            return Want::Evicted;
        }
        self.shared.evictor_errors.fetch_add(1, Ordering::Relaxed);
        // Where the service itself needs the lane, holding on would make it wait.
        if self.visited() { Want::Free } else { Want::Held }
    }

    /// Naps until the request lanes change, the policy wants to look again, or it is time to go.
    fn nap(&self, seen: &Observation) {
        let began = now_ns();
        let deadline = self.policy.next_wakeup().unwrap_or(began + NAP_WITHOUT_WAKEUP_NS);
        let watched = &self.memory.word(self.requests[0]).busy;
        let over = || {
            self.busy() != seen.request_busy
                || self.waited() != seen.requests.is_some_and(|requests| requests.waited())
                || self.visited() != seen.service_on_batch_lane
                || self.shared.stop.load(Ordering::Relaxed)
        };
        let mut now = began;
        while !over() && now < deadline {
            self.nap.wait(watched, Duration::from_nanos(deadline - now), over);
            now = now_ns();
        }
        self.shared.napped_ns.fetch_add(now - began, Ordering::Relaxed);
    }

    fn look(&self) -> Observation {
        Observation { service_on_batch_lane: self.visited(), ..look(&self.memory, &self.requests, self.cpu) }
    }

    /// A request that had to wait runs beside this lane.
    fn waited(&self) -> bool {
        requests(&self.memory, &self.requests).is_some_and(|requests| requests.waited())
    }

    fn busy(&self) -> bool {
        self.requests.iter().any(|cpu| self.memory.word(*cpu).busy())
    }

    fn visited(&self) -> bool {
        self.shared.visited(self.memory.word(self.cpu))
    }

    /// Leaves the lane as it was found.
    fn leave(&mut self) {
        if self.want == Want::Evicted {
            self.act(Action::Restore, now_ns());
        }
        let hold = self.memory.hold(self.cpu);
        hold.holder_pid.store(0, Ordering::Release);
        let _ = hold.release(|| false);
        debug_assert!(self.policy.why() != Reason::Start || self.want == Want::Free);
    }
}

fn timespec(ns: u64) -> Timespec {
    const SECOND_NS: u64 = 1_000_000_000;
    Timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ }
}
