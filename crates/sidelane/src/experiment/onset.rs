//! Onset to action: how soon after a service begins to be disturbed somebody knows, and batch is off.
//!
//! The lab's stand-in service spins on one CPU and begins to make page faults on command; batch spins on the other
//! one. A thread of this process is the agent: it waits there in SCHED_FIFO, as holders do, and when it is told it
//! sends batch away by affinity, to the service's CPU if there are only two. It is told by the kernel program's
//! bell, or reads the same words in a loop, as the paper's monitor does (Holmes, HPDC'22, §4.2).
//!
//! The service says when it began, by its own clock. Batch writes down the time all the while; its last time on its
//! CPU is when it was off.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::set_current_timer_slack;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::events::Formula;
use sidelane_host::priority::{HOLDER_PRIORITY, make_this_thread_fifo, pin_this_thread, pin_thread};
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;
use sidelane_kernel::interference::{Interference, Windows};
use sidelane_kernel::tracker::{Features, Tracker};
use sidelane_kernel::tracking::{LaneUse, ServiceTracking};

use crate::experiment::reaction::child::{Board, Child, Class};
use crate::experiment::reaction::latency::Spread;
use crate::experiment::reaction::pair::TestPair;
use crate::lab::{self, Lab};

/// Faults for each nanosecond.
const FAULTS: &str = "page-faults / task-clock";
/// One in a window of 50 or 100 µs: the first fault is the onset.
const THRESHOLD: f64 = 5e-6;
/// Longer than this, an onset was missed.
const PATIENCE: Duration = Duration::from_millis(500);
/// Batch that has been silent for so long is off.
const SILENCE: Duration = Duration::from_micros(400);
/// Between two onsets, at least: batch is back and the service calm.
const CALM_US: u64 = 2_000;
/// And so much more at most, in steps of this, so that onsets fall anywhere between two ticks.
const VARIES_US: u64 = 1_009;
const STRIDE_US: u64 = 617;

/// How the agent is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// The kernel program rings.
    Bell,
    /// The agent looks so often.
    Polling(Duration),
}

/// What one setting came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Onsets {
    /// From the onset until the kernel program noticed.
    pub noticed: Option<Spread>,
    /// Until the agent's thread knew.
    pub told: Option<Spread>,
    /// Until batch was off, where it was on.
    pub off: Option<Spread>,
    /// Onsets.
    pub count: usize,
    /// Onsets of which nobody was told.
    pub missed: usize,
    /// Of its CPU's time, what the agent's thread used while it waited for them.
    pub agent_busy: f64,
}

/// Measures `count` onsets.
pub fn measure(lab: &Lab, pair: &TestPair, windows: Windows, detection: Detection, count: usize) -> Result<Onsets> {
    thread::scope(|scope| {
        // A thread of its own, since it keeps its class.
        let agent = scope.spawn(|| Agent::start(lab, pair, windows, detection)?.measure(count));
        agent.join().expect("the agent's thread does not panic")
    })
}

struct Agent<'a> {
    pair: &'a TestPair,
    detection: Detection,
    service: lab::Service,
    batch: Child,
    interference: Interference,
    _tracking: ServiceTracking,
}

impl<'a> Agent<'a> {
    fn start(lab: &Lab, pair: &'a TestPair, windows: Windows, detection: Detection) -> Result<Self> {
        pin_this_thread(&[pair.batch])?;
        let cpu = pair.request.to_string();
        let service = lab.start(["faults", "--cpu", &cpu])?;
        let lane = pair.batch;
        let batch = Child::start(lane, Class::Ordinary, None, |board| stamp_on(board, lane))?;
        let tracker = std::rc::Rc::new(Tracker::load(Features { interference: true, ..Features::default() })?);
        let cpus: CpuSet = [pair.request].into_iter().collect();
        let formula = Formula::parse(FAULTS).expect("a formula");
        let interference = Interference::open_with(&formula, windows, &cpus, &tracker)?;
        let tracked = Service::of_process(service.pid());
        let tracking = ServiceTracking::start(&tracker, &tracked, &Lanes::only_watched(cpus), LaneUse::default())?;
        tracker.attach()?;
        if detection == Detection::Bell {
            interference.set_threshold(pair.request, Some(THRESHOLD));
        }
        set_current_timer_slack(Some(std::num::NonZeroU64::MIN))?;
        make_this_thread_fifo(HOLDER_PRIORITY).context("an agent that is on time needs SCHED_FIFO")?;
        Ok(Self { pair, detection, service, batch, interference, _tracking: tracking })
    }

    fn measure(&mut self, count: usize) -> Result<Onsets> {
        self.one()?;
        let mut seen: Vec<Onset> = Vec::new();
        let (began_ns, used_ns) = (now_ns(), thread_time_ns());
        for at in 0..count as u64 {
            thread::sleep(Duration::from_micros(CALM_US + at * STRIDE_US % VARIES_US));
            seen.extend(self.one()?);
        }
        let agent_busy = (thread_time_ns() - used_ns) as f64 / (now_ns() - began_ns) as f64;
        let spread = |of: fn(&Onset) -> Option<u64>| Spread::of(seen.iter().filter_map(of).collect());
        Ok(Onsets {
            noticed: spread(|onset| onset.noticed_ns),
            told: spread(|onset| Some(onset.told_ns)),
            off: spread(|onset| onset.off_ns),
            count,
            missed: count - seen.len(),
            agent_busy,
        })
    }

    /// One onset; nothing if the agent never knew.
    fn one(&mut self) -> Result<Option<Onset>> {
        self.interference.answer(|_| ());
        self.service.tell("fault")?;
        let told = self.wait()?;
        pin_thread(self.batch.pid(), &[self.pair.request])?;
        let onset_ns = number(&self.service.line()?)?;
        thread::sleep(SILENCE);
        let off_ns = self.batch.board().stamp_ns.load(Ordering::Acquire).checked_sub(onset_ns);
        number(&self.service.ask("rest")?)?;
        pin_thread(self.batch.pid(), &[self.pair.batch])?;
        let since = |at_ns: u64| at_ns.saturating_sub(onset_ns);
        Ok(told.map(|told| Onset { noticed_ns: told.noticed_ns.map(since), told_ns: since(told.at_ns), off_ns }))
    }

    /// Waits until a value is above the threshold.
    fn wait(&mut self) -> Result<Option<Told>> {
        let end_ns = now_ns() + PATIENCE.as_nanos() as u64;
        while now_ns() < end_ns {
            let told = match self.detection {
                Detection::Bell => self.wait_for_bell()?,
                Detection::Polling(every) => {
                    thread::sleep(every);
                    let value = self.interference.read(self.pair.request);
                    value.filter(|value| *value >= THRESHOLD).map(|_| Told { noticed_ns: None, at_ns: now_ns() })
                }
            };
            if told.is_some() {
                return Ok(told);
            }
        }
        Ok(None)
    }

    fn wait_for_bell(&mut self) -> Result<Option<Told>> {
        let mut told = None;
        self.interference.wait(PATIENCE, |crossing| {
            told = crossing.above.then(|| Told { noticed_ns: Some(crossing.at_ns), at_ns: now_ns() });
        })?;
        Ok(told)
    }
}

/// How the agent was told.
struct Told {
    /// When the kernel program noticed, if that is known.
    noticed_ns: Option<u64>,
    at_ns: u64,
}

/// What followed an onset, and how long after it.
struct Onset {
    noticed_ns: Option<u64>,
    told_ns: u64,
    /// Nothing if batch did not run when it began: others had its CPU.
    off_ns: Option<u64>,
}

/// The first number of an answer.
fn number(answer: &str) -> Result<u64> {
    let value = answer.split(['=', ' ']).nth(1).with_context(|| format!("no number in `{answer}`"))?;
    value.parse().with_context(|| format!("no number in `{answer}`"))
}

fn thread_time_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Batch's own program: never returns.
fn stamp_on(board: &Board, lane: u32) {
    loop {
        let now_ns = now_ns();
        // SAFETY: no preconditions.
        if unsafe { libc::sched_getcpu() } == lane as i32 {
            board.stamp_ns.store(now_ns, Ordering::Release);
        }
    }
}
