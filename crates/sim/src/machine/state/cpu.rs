//! State of a CPU: its running and waiting tasks, its speed, and its counters.

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

/// Rate of a counter: counts per nanosecond, in units of 2⁻²⁰. It is an integer, so a sum over a period is the same
/// into however many steps the period is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    pub fn from_per_ns(per_ns: f64) -> Self {
        Self((per_ns * f64::from(1 << 20)) as u64)
    }

    fn count_in(self, duration_ns: Nanos) -> u128 {
        u128::from(self.0) * u128::from(duration_ns)
    }
}

/// Sums of the memory counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryCounts {
    stalls: u128,
    accesses: u128,
}

impl MemoryCounts {
    pub fn add(&mut self, passed_ns: Nanos, pace: &Pace) {
        self.stalls += pace.stalls.count_in(passed_ns);
        self.accesses += pace.accesses.count_in(passed_ns);
    }

    /// Returns the VPI of Holmes: stalled cycles for each load and store. `None` if nothing was loaded or stored.
    pub fn stall_cycles_per_access(&self, clock_ghz: f64) -> Option<f64> {
        (self.accesses > 0).then(|| self.stalls as f64 / self.accesses as f64 * clock_ghz)
    }
}

/// Pace of the running task: its speed and its use of memory.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub speed: Speed,
    /// Time in which the task stalls on memory, per nanosecond.
    pub stalls: Rate,
    /// Loads and stores of the task, per nanosecond.
    pub accesses: Rate,
    /// Whether a container runs on a sibling.
    pub beside_batch: bool,
}

impl Pace {
    /// Pace of an idle CPU.
    pub const IDLE: Self = Self { speed: Speed::ZERO, stalls: Rate(0), accesses: Rate(0), beside_batch: false };

    /// Returns the VPI of Holmes at this pace: stalled cycles for each load and store. `None` without accesses.
    pub fn stall_cycles_per_access(&self, clock_ghz: f64) -> Option<f64> {
        let mut counted = MemoryCounts::default();
        counted.add(1, self);
        counted.stall_cycles_per_access(clock_ghz)
    }
}

/// Counts of a CPU since the last observation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub busy_ns: Nanos,
    pub serving_ns: Nanos,
    counted: MemoryCounts,
}

impl Window {
    pub fn add(&mut self, passed_ns: Nanos, pace: &Pace, is_serving: bool) {
        self.busy_ns += passed_ns;
        self.serving_ns += if is_serving { passed_ns } else { 0 };
        self.counted.add(passed_ns, pace);
    }

    /// Returns the VPI of Holmes for the tasks that ran in the window: stalled cycles for each load and store. `None`
    /// without accesses.
    pub fn stall_cycles_per_access(&self, clock_ghz: f64) -> Option<f64> {
        self.counted.stall_cycles_per_access(clock_ghz)
    }
}

/// State of a CPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// Running thread of a service. It has precedence over containers.
    pub thread: Option<Thread>,
    /// Slots of the containers with a thread on this CPU; the first one runs if no service does.
    pub batch: Vec<usize>,
    /// Time at which the first container's turn is over.
    pub turn_ends: Nanos,
    pub pace: Pace,
    /// Slot of the container that runs here, and the speed that this CPU adds to the container's total.
    pub gives: Option<(usize, Speed)>,
    pub window: Window,
    /// Counters of the simulated kernel program for services on this CPU.
    pub guard: Guard,
    /// Whether the interference of the service on this CPU is at or above the policy's threshold now.
    pub disturbed: bool,
    /// Keeper that keeps containers off while a service runs on a sibling; `None` without a lane gate.
    pub keeper: Option<Keeper>,
    /// Whether containers are kept off this CPU.
    pub held: bool,
    /// Time at which the siblings became busy with a service, or idle.
    pub flipped: Nanos,
    /// Start of the interference that the service on this CPU suffers from containers on siblings; `None` if they have
    /// left.
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

    /// Returns whether a service or a container runs on this CPU.
    pub fn busy(&self) -> bool {
        self.thread.is_some() || self.running_container().is_some()
    }

    /// Returns the slot of the container that runs on this CPU; `None` if no container runs there.
    pub fn running_container(&self) -> Option<usize> {
        if self.thread.is_some() || self.held { None } else { self.batch.first().copied() }
    }

    /// Returns whether a keeper naps on this CPU.
    pub fn has_napping_keeper(&self) -> bool {
        self.thread.is_none() && self.keeper.as_ref().is_some_and(Keeper::is_on_lane)
    }
}

/// State of a core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core {
    /// Time up to which the work of the core's CPUs is booked.
    pub since: Nanos,
    /// Time at which a CPU of the core was last busy.
    pub used: Nanos,
}
