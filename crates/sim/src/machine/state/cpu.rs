//! A CPU: who runs there and who waits, how fast, and what its counters say.

use super::guard::Guard;
use crate::keeper::Keeper;
use crate::time::{Nanos, Speed};

/// A thread of a service with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    pub service: usize,
    pub worker: usize,
    pub visit: usize,
}

/// What a counter counts in a nanosecond, in millionths (2⁻²⁰). A sum does not depend on how time is cut into pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    pub fn of(per_ns: f64) -> Self {
        Self((per_ns * f64::from(1 << 20)) as u64)
    }

    fn over(self, ns: Nanos) -> u128 {
        u128::from(self.0) * u128::from(ns)
    }
}

/// What memory counters have counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    stalls: u128,
    accesses: u128,
}

impl Counted {
    pub fn add(&mut self, passed_ns: Nanos, pace: &Pace) {
        self.stalls += pace.stalls.over(passed_ns);
        self.accesses += pace.accesses.over(passed_ns);
    }

    /// Holmes' VPI, in cycles; `None` if nothing was loaded or stored.
    pub fn vpi(&self, clock_ghz: f64) -> Option<f64> {
        (self.accesses > 0).then(|| self.stalls as f64 / self.accesses as f64 * clock_ghz)
    }
}

/// The progress of the running task.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub speed: Speed,
    /// Time in which it stalls on memory.
    pub stalls: Rate,
    /// Loads and stores.
    pub accesses: Rate,
    /// A container runs on a sibling.
    pub beside_batch: bool,
}

impl Pace {
    /// The CPU is idle.
    pub const IDLE: Self = Self { speed: Speed::ZERO, stalls: Rate(0), accesses: Rate(0), beside_batch: false };

    /// VPI at this moment.
    pub fn vpi(&self, clock_ghz: f64) -> Option<f64> {
        let mut counted = Counted::default();
        counted.add(1, self);
        counted.vpi(clock_ghz)
    }
}

/// Counts since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub busy_ns: Nanos,
    pub serving_ns: Nanos,
    counted: Counted,
}

impl Window {
    pub fn add(&mut self, passed_ns: Nanos, pace: &Pace, serving: bool) {
        self.busy_ns += passed_ns;
        self.serving_ns += if serving { passed_ns } else { 0 };
        self.counted.add(passed_ns, pace);
    }

    /// VPI of the task that ran.
    pub fn vpi(&self, clock_ghz: f64) -> Option<f64> {
        self.counted.vpi(clock_ghz)
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
    /// What the kernel program counts here.
    pub guard: Guard,
    /// Interference is at the threshold or above at this moment.
    pub disturbed: bool,
    /// Who keeps containers off while the service runs on a sibling, where a lane gate does that.
    pub keeper: Option<Keeper>,
    /// Containers are kept off.
    pub held: bool,
    /// When the siblings became busy with a service, or idle.
    pub flipped: Nanos,
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
            guard: Guard::default(),
            disturbed: false,
            keeper: None,
            held: false,
            flipped: 0,
            onset: None,
        }
    }

    /// Whether a service or a container runs.
    pub fn busy(&self) -> bool {
        self.thread.is_some() || self.container().is_some()
    }

    /// The container that runs.
    pub fn container(&self) -> Option<usize> {
        if self.thread.is_some() || self.held { None } else { self.batch.first().copied() }
    }

    /// A keeper naps here.
    pub fn naps(&self) -> bool {
        self.thread.is_none() && self.keeper.as_ref().is_some_and(Keeper::naps)
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
