//! The watchdog of lent lanes: what the agent does when batch does not leave one beside its service.
//!
//! The decisions are those of a run's watchdog ([`Watchdog`]). The agent's means differ: it puts threads that outrank a
//! holder into the ordinary class and remembers theirs, writes the CPUs of containers again, and in the end lends no
//! lane for a while: to the policy they are CPUs that do not exist, so containers move or pause.
//!
//! Where all CPUs are those of services or their lanes, the agent's thread runs on a lane, and batch in a real-time class
//! keeps it from working. A thread of its own sees the alarm on another CPU, and moves the agent's thread there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::{pin_thread, put_first};
use sidelane_host::procfs::command_name;
use sidelane_host::run_times::affinity;
use sidelane_host::topology::online_cpus;
use sidelane_kernel::summons::SummonsRing;
use sidelane_kernel::tracker::{LaneMemory, Tracker};
use sidelane_policy::Nanos;
use sidelane_policy::borrow::watchdog::{Situation, Step, Watchdog};

use super::Agent;
use crate::lane::watchdog::stayed;
use crate::note::Note;
use crate::own_threads::Fixed;

/// The watchdog of all lanes of the agent.
pub(super) struct LentLanes {
    bell: Arc<OwnedFd>,
    /// The thread that waits for alarms.
    listener: u32,
    watchdog: Watchdog,
    /// When to look again without an alarm.
    pub(super) due_ns: Nanos,
    /// Lanes that are not lent for a while.
    pub(super) withheld: CpuSet,
}

impl LentLanes {
    /// Starts the thread that waits for alarms on behalf of the calling thread.
    pub(super) fn new(tracker: &Tracker) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let agent = this_tid();
        let (alarms, memory) = (tracker.alarms()?, tracker.memory());
        let (tell, told) = channel();
        let body = {
            let bell = Arc::clone(&bell);
            move || {
                let _ = tell.send(this_tid());
                Listener { alarms, memory, bell, agent }.listen();
            }
        };
        thread::Builder::new().name("sidelane-alarm".into()).spawn(body)?;
        let listener = told.recv().map_err(io::Error::other)?;
        Ok(Self { bell, listener, watchdog: Watchdog::default(), due_ns: Nanos::MAX, withheld: CpuSet::default() })
    }

    /// Keeps the thread that waits for alarms off these lanes, where there are other CPUs.
    pub(super) fn keep_off(&self, lanes: &CpuSet) -> io::Result<()> {
        let others: Vec<u32> = online_cpus()?.difference(lanes).iter().collect();
        if others.is_empty() { Ok(()) } else { pin_thread(self.listener, &others) }
    }

    /// Becomes readable at an alarm.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Waits for alarms for as long as the process lives.
struct Listener {
    alarms: SummonsRing,
    memory: Arc<LaneMemory>,
    bell: Arc<OwnedFd>,
    agent: u32,
}

impl Listener {
    fn listen(self) {
        let _fixed = Fixed::this_thread();
        // Without the right to it, an alarm is answered some milliseconds later.
        let _ = put_first(0);
        loop {
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.alarms.fd(), PollFlags::IN)], None);
            let _ = self.alarms.take();
            self.make_way();
            // Fails only when the counter is full, and then the bell rings already.
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Moves the agent's thread off the lanes. The agent's next look at its CPUs moves it back.
    fn make_way(&self) {
        let Ok(online) = online_cpus() else { return };
        let is_lane = |cpu: &u32| self.memory.hold(*cpu).holder_pid.load(Ordering::Acquire) != 0;
        let (lanes, others): (Vec<u32>, Vec<u32>) = online.iter().partition(is_lane);
        let lanes: CpuSet = lanes.into_iter().collect();
        if !others.is_empty() && affinity(self.agent).is_some_and(|cpus| cpus.is_subset(&lanes)) {
            let _ = pin_thread(self.agent, &others);
        }
    }
}

fn this_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

impl Agent {
    /// Looks at the lanes after an alarm, or when a step was taken: batch that stays on one is taken off by the next
    /// stronger means.
    pub(super) fn watch_lanes(&mut self, now_ns: Nanos) {
        let Some(lent) = &self.lent else { return };
        let _ = rustix::io::read(lent.bell(), &mut [0; 8]);
        let memory = self.tracked.tracker().memory();
        let lanes = self.tracked.kept().flat_map(|kept| &kept.lanes);
        let longest = lanes.filter_map(|lane| stayed(&memory, lane)).max();
        let situation = Situation {
            outranks: self.outranking_batch().next().is_some(),
            stayed_ns: longest.map(|(stayed_ns, ..)| stayed_ns),
        };
        let Some(lent) = &mut self.lent else { return };
        let step = lent.watchdog.look(now_ns, situation);
        lent.due_ns = lent.watchdog.next_look(now_ns, situation).unwrap_or(Nanos::MAX);
        self.take_step(step, longest, now_ns);
    }

    fn take_step(&mut self, step: Step, longest: Option<(Nanos, u32, u32)>, now_ns: Nanos) {
        let named = |(_, lane, tid): (Nanos, u32, u32)| (command_name(tid).unwrap_or_default(), lane);
        let stays = longest.map(named);
        match step {
            Step::Wait => {}
            Step::Demote => self.put_down_ranks(),
            Step::PutBack => {
                if let Some((thread, lane)) = stays {
                    self.note(Note::BatchStayed { thread, lane });
                }
                self.check();
                self.times.look_ns = now_ns;
            }
            Step::Stop => {
                let raised = || self.outranking_batch().find_map(|(_, tid)| command_name(tid));
                let thread = stays.map(|(thread, _)| thread).or_else(raised).unwrap_or_default();
                self.put_down_ranks();
                self.withhold(self.kept_cpus(), now_ns);
                self.note(Note::LanesWithheld { thread });
            }
            Step::GoOn => self.withhold(CpuSet::default(), now_ns),
        }
    }

    /// Lends these lanes no more, and all others again. The policy decides at once.
    fn withhold(&mut self, lanes: CpuSet, now_ns: Nanos) {
        let Some(lent) = &mut self.lent else { return };
        lent.withheld = lanes;
        self.times.look_ns = now_ns;
        match lent.withheld.to_string() {
            none if none.is_empty() => self.log_note("lend", "batch lanes are lent again"),
            lanes => self.log_note("withhold", &format!("batch lanes {lanes} are not lent for a while")),
        }
    }
}
