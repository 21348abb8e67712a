//! The lanes that the agent lends, as its watchdog sees them: alarms of the kernel program, and lanes that are not
//! lent.
//!
//! If all CPUs belong to services or are their lanes, the agent's thread runs on a lane. Batch in a real-time class
//! there keeps that thread from working. A separate thread receives the alarm on another CPU, and moves the agent's
//! thread there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{io, thread};

use crate::lanes::Offers;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::eventfd::EventFd;
use sidelane_host::priority::{pin_thread, set_highest_ordinary_priority};
use sidelane_host::run_times::thread_affinity;
use sidelane_host::topology::online_cpus;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::watchdog::Watchdog;
use sidelane_rollback::own_threads::{SelfPlacedThread, this_tid};
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::{LaneMemory, Tracker};

/// Pause after a failed wait, so that this real-time thread does not spin.
const PAUSE: Duration = Duration::from_millis(10);

/// Watchdog of all lanes of the agent.
pub(super) struct LentLanes {
    alarmed: Arc<EventFd>,
    /// Id of the thread that waits for alarms.
    listener: u32,
    pub(super) watchdog: Watchdog,
    /// Time of the next check if no alarm comes before.
    pub(super) due_ns: Nanos,
    /// Lanes that are not lent for a while.
    pub(super) withheld: CpuSet,
    /// Whether a thread of batch is in SCHED_DEADLINE. No lane is lent then.
    pub(super) beside_deadline: bool,
    /// Offers of the lanes to a scheduler of a cluster.
    pub(super) offers: Offers,
}

impl LentLanes {
    /// Starts the thread that waits for alarms on behalf of the calling thread.
    pub(super) fn new(tracker: &Tracker) -> io::Result<Self> {
        let alarmed = Arc::new(EventFd::new()?);
        let agent = this_tid();
        let (alarms, memory) = (tracker.alarm_ring()?, tracker.memory());
        let (tell, told) = channel();
        let body = {
            let alarmed = Arc::clone(&alarmed);
            move || {
                let _ = tell.send(this_tid());
                Listener { alarms, memory, alarmed, agent }.run_alarm_loop();
            }
        };
        thread::Builder::new().name("sidelane-alarm".into()).spawn(body)?;
        let listener = told.recv().map_err(io::Error::other)?;
        let (watchdog, withheld, offers) = Default::default();
        Ok(Self { alarmed, listener, watchdog, due_ns: Nanos::MAX, withheld, beside_deadline: false, offers })
    }

    /// Keeps the thread that waits for alarms off these lanes, if there are other CPUs.
    pub(super) fn pin_off_lanes(&self, lanes: &CpuSet) -> io::Result<()> {
        let others: Vec<u32> = online_cpus()?.difference(lanes).iter().collect();
        if others.is_empty() { Ok(()) } else { pin_thread(self.listener, &others) }
    }

    /// Returns the event that is notified at an alarm.
    pub(super) fn alarm_event(&self) -> &EventFd {
        &self.alarmed
    }
}

/// Thread that waits for alarms until the process ends.
struct Listener {
    alarms: SummonsRing,
    memory: Arc<LaneMemory>,
    alarmed: Arc<EventFd>,
    agent: u32,
}

impl Listener {
    fn run_alarm_loop(self) {
        let _fixed = SelfPlacedThread::for_this_thread();
        // Without the privilege for a real-time class, an alarm is answered some milliseconds later.
        let _ = set_highest_ordinary_priority(0);
        loop {
            let waited = poll(&mut [PollFd::from_borrowed_fd(self.alarms.fd(), PollFlags::IN)], None);
            if waited.is_err_and(|error| error != Errno::INTR) {
                thread::sleep(PAUSE);
            }
            let _ = self.alarms.take();
            self.move_agent_off_lanes();
            self.alarmed.notify();
        }
    }

    /// Moves the agent's thread off the lanes. The agent's next check of its CPUs moves it back.
    fn move_agent_off_lanes(&self) {
        let Ok(online) = online_cpus() else { return };
        let is_lane = |cpu: &u32| self.memory.hold(*cpu).holder_pid.load(Ordering::Acquire) != 0;
        let (lanes, others): (Vec<u32>, Vec<u32>) = online.iter().partition(is_lane);
        let lanes: CpuSet = lanes.into_iter().collect();
        if !others.is_empty() && thread_affinity(self.agent).is_some_and(|cpus| cpus.is_subset(&lanes)) {
            let _ = pin_thread(self.agent, &others);
        }
    }
}
