//! The watchdog of a session's batch lanes: a thread that acts when batch does not leave a lane.
//!
//! It sleeps until the kernel program raises an alarm, or a holder finds that evicted batch is back. [`Watchdog`]
//! decides what to do. The thread observes the lanes, and carries out the decision. It takes no lock that a keeper may
//! hold while batch keeps that keeper from running. It does not run on a batch lane, so batch that outranks everything
//! does not delay it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use rustix::event::{PollFd, PollFlags, poll};
use sidelane_formats::{HoldState, LaneClass};
use sidelane_host::clock::now_ns;
use sidelane_host::eventfd::EventFd;
use sidelane_host::priority::{HOLDER_PRIORITY, ThreadClass, pin_this_thread, set_highest_ordinary_priority};
use sidelane_host::procfs::{command_name, threads};
use sidelane_host::topology::{BatchLane, Lanes, online_cpus};
use sidelane_policy::Nanos;
use sidelane_policy::borrow::watchdog::{STAY_MAX_NS, Situation, Step, Watchdog};
use sidelane_rollback::own_threads::{SelfPlacedThread, this_tid};
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::LaneMemory;

use super::confinement::BatchConfinement;
use super::decider::timespec;
use crate::note::LaneNote;

/// Limit of the findings that are kept for the session, which takes them ten times a second.
const FINDINGS_MAX: usize = 100;

/// Step that the watchdog took.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Time of the step.
    pub at_ns: Nanos,
    /// Kind of the step.
    pub step: Step,
    /// Name of the batch thread that caused the step.
    pub thread: String,
    /// Scheduling class of the thread at that time.
    pub class: String,
    /// CPU of the lane on which the thread ran.
    pub lane: u32,
    /// Time for which batch had stayed on the lane beside the service.
    pub stayed_ns: Nanos,
    /// Error of the step, if it failed.
    pub error: Option<String>,
}

impl Finding {
    /// Returns the note on the step; `None` if it needs no note.
    pub fn note(&self) -> Option<LaneNote> {
        let (thread, class, lane) = (self.thread.clone(), self.class.clone(), self.lane);
        if let Some(error) = self.error.clone() {
            return Some(LaneNote::BatchNotStopped { thread, error });
        }
        match self.step {
            Step::Demote => Some(LaneNote::BatchOutranked { thread, class }),
            Step::PutBack => Some(LaneNote::BatchStayed { thread, lane }),
            Step::Stop => Some(LaneNote::BatchStopped { thread, class }),
            Step::Wait | Step::GoOn => None,
        }
    }

    /// Returns the name of the step in an audit log.
    pub fn name(&self) -> &'static str {
        match self.step {
            Step::Wait => "wait",
            Step::Demote => "demote",
            Step::PutBack => "put_back",
            Step::Stop => "stop",
            Step::GoOn => "go_on",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, class, lane, stayed_ns, .. } = self;
        match self.step {
            Step::GoOn | Step::Wait => write!(f, "batch goes on after a stop"),
            Step::Demote => write!(f, "batch thread `{thread}` is in {class}, which a holder cannot preempt"),
            Step::PutBack | Step::Stop => {
                let stayed_ms = *stayed_ns as f64 / 1e6;
                write!(
                    f,
                    "batch thread `{thread}` ({class}) has stayed on lane {lane} beside the service for {stayed_ms:.1} \
                     ms"
                )
            }
        }?;
        self.error.iter().try_for_each(|error| write!(f, "; the step failed: {error}"))
    }
}

/// Handle of a running watchdog. Dropping it lets batch run that the watchdog has stopped.
pub struct LaneWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Id of the watchdog's thread, set once it runs on its CPU.
    tid: AtomicU32,
    ends: AtomicBool,
    event: Arc<EventFd>,
    findings: Mutex<Vec<Finding>>,
}

impl LaneWatch {
    /// Starts a watchdog of the batch lanes of `lanes`, for the batch in `confinement`.
    pub fn start(
        lanes: &Lanes,
        memory: Arc<LaneMemory>,
        alarms: SummonsRing,
        confinement: &Arc<BatchConfinement>,
    ) -> io::Result<Self> {
        let event = Arc::new(EventFd::new()?);
        confinement.notify_when_batch_returns(Arc::clone(&event));
        let shared = Arc::new(Shared {
            tid: AtomicU32::new(0),
            ends: AtomicBool::new(false),
            event,
            findings: Mutex::default(),
        });
        let body = WatchdogThread {
            lanes: lanes.clone(),
            memory,
            alarms,
            confinement: Arc::clone(confinement),
            shared: Arc::clone(&shared),
            watchdog: Watchdog::default(),
            untold: Vec::new(),
        };
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || body.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Restores the class of the watchdog's thread if another process has changed it. Returns whether one had.
    pub fn restore_thread_class(&self) -> bool {
        let tid = self.shared.tid.load(Ordering::Acquire);
        let is_fit = tid == 0 || ThreadClass::of_thread(tid).is_none_or(|it| it == ThreadClass::ORDINARY);
        !is_fit && set_highest_ordinary_priority(tid).is_ok()
    }

    /// Returns the findings since the last call.
    pub fn take_findings(&self) -> Vec<Finding> {
        std::mem::take(&mut *self.shared.findings.lock().expect("the watchdog does not panic"))
    }
}

impl Drop for LaneWatch {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.event.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct WatchdogThread {
    lanes: Lanes,
    memory: Arc<LaneMemory>,
    alarms: SummonsRing,
    confinement: Arc<BatchConfinement>,
    shared: Arc<Shared>,
    watchdog: Watchdog,
    /// Findings that the session has not taken yet.
    untold: Vec<Finding>,
}

/// Result of a check of the lanes.
#[derive(Default)]
struct LaneCheck {
    situation: Situation,
    outranking: Vec<Outranking>,
    stays: Option<Stay>,
}

impl WatchdogThread {
    fn run(mut self) {
        let _fixed = SelfPlacedThread::for_this_thread();
        self.pin_off_batch_lanes();
        let mut due_ns = None;
        loop {
            let came_back = self.sleep(due_ns);
            if self.shared.ends.load(Ordering::Acquire) {
                break;
            }
            let look = self.check_lanes(came_back);
            let now = now_ns();
            let step = self.watchdog.observe(now, look.situation);
            self.carry_out(step, &look, now);
            due_ns = self.watchdog.next_check_at(now_ns(), look.situation);
        }
        if self.watchdog.is_stopped() {
            let _ = self.confinement.resume();
        }
    }

    /// Pins the watchdog's thread to a CPU that is no lane, or to a request lane if there is none. On a request lane it
    /// is an ordinary thread that runs for some microseconds after an alarm. On the batch lane it could not run beside
    /// batch that outranks everything.
    fn pin_off_batch_lanes(&self) {
        let (requests, batch) = (&self.lanes.request_lanes, self.lanes.batch_cpus());
        let others = online_cpus().unwrap_or_default().difference(requests).difference(&batch);
        let pinned = |cpus: Vec<u32>| !cpus.is_empty() && pin_this_thread(&cpus).is_ok();
        if !pinned(others.iter().collect()) {
            pinned(requests.iter().collect());
        }
        // Without the privilege for a real-time class, an alarm is answered some milliseconds later.
        let _ = set_highest_ordinary_priority(0);
        self.shared.tid.store(this_tid(), Ordering::Release);
    }

    /// Sleeps until an alarm or `due_ns`. Returns whether a holder reported that batch is back.
    fn sleep(&self, due_ns: Option<Nanos>) -> bool {
        let timeout = due_ns.map(|due_ns| timespec(due_ns.saturating_sub(now_ns())));
        let mut poll_fds =
            [PollFd::from_borrowed_fd(self.alarms.fd(), PollFlags::IN), PollFd::new(&self.shared.event, PollFlags::IN)];
        // An interrupted sleep only means one more check.
        let _ = poll(&mut poll_fds, timeout.as_ref());
        let _ = self.alarms.take();
        self.shared.event.clear()
    }

    fn check_lanes(&self, came_back: bool) -> LaneCheck {
        let outranking: Vec<Outranking> = threads_outranking_holder(self.confinement.processes()).collect();
        // If other programs use the lane, a frozen thread may need many turns until it sleeps.
        let is_out = |stay: &Stay| !self.confinement.is_in_frozen_cgroup(stay.tid);
        let back = || self.lanes.batch.iter().filter_map(|lane| self.waiting_batch_thread(lane.cpu)).find(is_out);
        let longest = longest_stay(&self.memory, self.lanes.batch.iter());
        let stays = longest.or_else(|| if came_back { back() } else { None });
        let situation = situation(&outranking, stays);
        LaneCheck { situation, outranking, stays }
    }

    /// Returns the batch thread that waits for a turn on the lane, such as a thread that a holder has preempted.
    fn waiting_batch_thread(&self, lane: u32) -> Option<Stay> {
        let hold = self.memory.hold(lane);
        let tid = hold.waiting_pid.load(Ordering::Acquire);
        (hold.batch_waits.load(Ordering::Acquire) == 1).then_some(Stay { stayed_ns: STAY_MAX_NS, lane, tid })
    }

    fn carry_out(&mut self, step: Step, look: &LaneCheck, now: Nanos) {
        if step == Step::Wait {
            return;
        }
        // The name and class of the batch thread are read before the step, which may change its class.
        let finding = self.finding(step, look, now);
        let done = match step {
            Step::Wait => Ok(()),
            Step::Demote => self.demote(look),
            Step::PutBack => {
                self.confinement.try_reconfine();
                Ok(())
            }
            Step::Stop => self.confinement.stop().and(self.demote(look)),
            Step::GoOn => self.confinement.resume(),
        };
        if self.untold.len() < FINDINGS_MAX {
            self.untold.push(Finding { error: done.err().map(|error| error.to_string()), ..finding });
        }
        // Batch may keep the thread that takes findings from running, so this thread does not wait for its lock.
        if let Ok(mut findings) = self.shared.findings.try_lock() {
            let room = FINDINGS_MAX.saturating_sub(findings.len());
            findings.extend(self.untold.drain(..).take(room));
        }
    }

    fn demote(&self, look: &LaneCheck) -> io::Result<()> {
        let demote = |thread: &Outranking| ThreadClass::IDLE.apply_to_thread(thread.tid);
        let failed = look.outranking.iter().filter_map(|thread| demote(thread).err());
        // A thread that has ended is no error.
        failed.filter(|error| error.raw_os_error() != Some(libc::ESRCH)).map(Err).next().unwrap_or(Ok(()))
    }

    fn finding(&self, step: Step, look: &LaneCheck, at_ns: Nanos) -> Finding {
        let first = look.outranking.first().map(|thread| thread.tid);
        let lane = look.stays.map_or(self.lanes.batch[0].cpu, |stay| stay.lane);
        let tid = first.or(look.stays.map(|stay| stay.tid)).unwrap_or(0);
        Finding {
            at_ns,
            step,
            thread: command_name(tid).unwrap_or_else(|| "a thread that has ended".to_owned()),
            class: ThreadClass::of_thread(tid).map_or_else(String::new, |class| class.name()),
            lane,
            stayed_ns: look.situation.stayed_ns.unwrap_or(0),
            error: None,
        }
    }
}

/// A batch thread that would preempt the holder of its lane.
#[derive(Clone, Copy, Debug)]
pub struct Outranking {
    /// Process id of the thread.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Scheduling class of the thread.
    pub class: ThreadClass,
}

/// Returns the threads of these processes that would preempt a holder.
pub fn threads_outranking_holder(pids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = Outranking> {
    let all = pids.into_iter().flat_map(|pid| threads(pid).into_iter().map(move |tid| (pid, tid)));
    let classes = all.filter_map(|(pid, tid)| Some(Outranking { pid, tid, class: ThreadClass::of_thread(tid)? }));
    classes.filter(|thread| thread.class.outranks(HOLDER_PRIORITY))
}

/// Returns the input for the watchdog's decision.
pub fn situation(outranking: &[Outranking], stays: Option<Stay>) -> Situation {
    Situation { outranks: !outranking.is_empty(), stayed_ns: stays.map(|stay| stay.stayed_ns) }
}

/// Stay of batch on a lane that it has to leave beside a busy service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stay {
    /// Time for which the thread has stayed, in ns.
    pub stayed_ns: Nanos,
    /// CPU of the lane.
    pub lane: u32,
    /// Id of the thread.
    pub tid: u32,
}

/// Returns the longest stay of batch on these lanes; `None` if batch is on none.
pub fn longest_stay<'a>(memory: &LaneMemory, lanes: impl Iterator<Item = &'a BatchLane>) -> Option<Stay> {
    lanes.filter_map(|lane| batch_stay_on(memory, lane)).max()
}

fn batch_stay_on(memory: &LaneMemory, lane: &BatchLane) -> Option<Stay> {
    let (word, hold) = (memory.word(lane.cpu), memory.hold(lane.cpu));
    let leaves = hold.state().is_ok_and(HoldState::keeps_batch_off);
    let began_ns = memory.batch_running_since_ns(lane.cpu);
    let tid = word.pid.load(Ordering::Acquire);
    if !leaves || began_ns == 0 || word.class() != Ok(LaneClass::Batch) || memory.promises().has_promised(tid) {
        return None;
    }
    let requests = lane.request_lanes.iter().map(|cpu| memory.word(cpu));
    let since_ns = requests.filter_map(|request| request.busy_since_ns()).min()?;
    Some(Stay { stayed_ns: now_ns().saturating_sub(since_ns.max(began_ns)), lane: lane.cpu, tid })
}
