//! A CPU: who runs there and who waits, how fast, and what its counters say.

use crate::time::{Nanos, Speed};

/// A thread of a service with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    pub service: usize,
    pub worker: usize,
    pub visit: usize,
}

/// How whoever runs gets on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub speed: Speed,
    /// The share of the time in which it stalls on memory.
    pub stalls: f64,
    /// Loads and stores in a nanosecond.
    pub accesses: f64,
    /// A container runs on a sibling.
    pub beside_batch: bool,
}

impl Pace {
    /// Nobody runs.
    pub const IDLE: Self = Self { speed: Speed::ZERO, stalls: 0.0, accesses: 0.0, beside_batch: false };

    /// Holmes' VPI at this moment, in cycles; `None` if nothing is loaded or stored.
    pub fn interference(&self, clock_ghz: f64) -> Option<f64> {
        (self.accesses > 0.0).then(|| self.stalls / self.accesses * clock_ghz)
    }
}

/// What was counted since somebody looked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub busy_ns: Nanos,
    pub serving_ns: Nanos,
    stalls_ns: f64,
    accesses: f64,
}

impl Window {
    pub fn add(&mut self, passed_ns: Nanos, pace: &Pace, serving: bool) {
        self.busy_ns += passed_ns;
        self.serving_ns += if serving { passed_ns } else { 0 };
        self.stalls_ns += passed_ns as f64 * pace.stalls;
        self.accesses += passed_ns as f64 * pace.accesses;
    }

    /// The counters begin anew; the times go on.
    pub fn forget_counters(&mut self) {
        (self.stalls_ns, self.accesses) = (0.0, 0.0);
    }

    /// VPI over the window.
    pub fn interference(&self, clock_ghz: f64) -> Option<f64> {
        (self.accesses > 0.0).then(|| self.stalls_ns / self.accesses * clock_ghz)
    }
}

/// A CPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// The thread of a service that runs. It goes before containers.
    pub thread: Option<Thread>,
    /// The places of the containers with a thread here; the first runs if no service does.
    pub batch: Vec<usize>,
    /// When the first container's turn is over.
    pub turn_ends: Nanos,
    pub pace: Pace,
    /// The container that runs, and its speed as that container counts it.
    pub gives: Option<(usize, Speed)>,
    pub window: Window,
    /// Interference is at the threshold or above.
    pub disturbed: bool,
    /// Since when a service has met interference beside containers that are still there.
    pub onset: Option<Nanos>,
}

impl Cpu {
    pub fn new() -> Self {
        Self {
            thread: None,
            batch: Vec::new(),
            turn_ends: 0,
            pace: Pace::IDLE,
            gives: None,
            window: Window::default(),
            disturbed: false,
            onset: None,
        }
    }

    /// Whether anybody runs.
    pub fn busy(&self) -> bool {
        self.thread.is_some() || !self.batch.is_empty()
    }

    /// The container that runs.
    pub fn container(&self) -> Option<usize> {
        if self.thread.is_some() { None } else { self.batch.first().copied() }
    }
}

/// A core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core {
    /// Its CPUs are settled up to here.
    pub since: Nanos,
    /// When one of them was last busy.
    pub used: Nanos,
}
