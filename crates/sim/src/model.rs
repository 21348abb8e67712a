//! The description of one run: the machine, what runs on it and for how long. Data only.
//!
//! One service has the first lane of each of its cores, the request lanes; batch has the other
//! lanes of those cores. The structure allows extensions: further services are further
//! [`Service`]s, a daemon that reads counters once an interval is one more source of events beside
//! the terms of [`crate::engine`], and cores of different speed are in [`Machine::core_speed`]
//! already.

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::gate::Gate;
use crate::smt::{Class, Interference};
use crate::time::{NEVER, Nanos};

pub use crate::setting::{BatchMode, Budget, Fault, Lending, LendingDecider, Setting};
pub use sidelane_policy::borrow::Objective;

/// The most cores of one service on one machine.
pub const CORES_MAX: usize = 64;
/// The most lanes of a core.
pub const LANES_MAX: usize = 8;

/// The hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Number of sockets.
    pub packages: usize,
    /// Cores of each socket.
    pub cores_per_package: usize,
    /// Lanes of each core.
    pub lanes_per_core: usize,
    /// The speed of each core, where 1 is the reference; cores not listed have the speed of the
    /// last.
    pub core_speed: Vec<f64>,
    /// Cycles per nanosecond.
    pub clock_ghz: f64,
    /// Whether requests have hardware counters, for the contention cost of Fig. 9(d).
    pub counters: bool,
    /// Time that batch loses to a look of a sleeping keeper that changes nothing.
    pub context_switch_ns: Nanos,
    /// Time that batch loses when it returns from an eviction.
    pub migration_ns: Nanos,
    /// The sleep state of an idle core.
    pub sleep: Option<Sleep>,
    /// Its power consumption.
    pub power: Power,
}

/// A core's sleep state (Elfen §5: with batch on the other lane the core never reaches it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Entered after all lanes have been idle for this time.
    pub after_ns: Nanos,
    /// The cost of waking up for the next request.
    pub wake_ns: Nanos,
}

/// Power in watts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Power {
    /// Of each package, constant.
    pub package_w: f64,
    /// Of each idle core.
    pub core_idle_w: f64,
    /// Of each core with one busy lane; cores not listed need what the last does.
    pub core_busy_w: Vec<f64>,
    /// In addition for each further busy lane.
    pub lane_w: f64,
}

impl Power {
    /// Of a core with one busy lane.
    pub fn busy_w(&self, core: usize) -> f64 {
        self.core_busy_w.get(core).or(self.core_busy_w.last()).copied().unwrap_or(0.0)
    }
}

impl Machine {
    /// One core with two lanes.
    pub fn one_core() -> Self {
        Self {
            packages: 1,
            cores_per_package: 1,
            lanes_per_core: 2,
            core_speed: vec![1.0],
            clock_ghz: 2.0,
            counters: true,
            context_switch_ns: 2_000,
            migration_ns: 5_000,
            sleep: None,
            power: Power::default(),
        }
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.packages * self.cores_per_package
    }

    /// The fastest cores; all, if they are equal.
    pub fn big_cores(&self) -> impl Iterator<Item = usize> {
        let fastest = (0..self.cores()).map(|core| self.speed_of(core)).fold(0.0, f64::max);
        (0..self.cores()).filter(move |core| self.speed_of(*core) == fastest)
    }

    /// The speed of one core.
    pub fn speed_of(&self, core: usize) -> f64 {
        self.core_speed.get(core).or(self.core_speed.last()).copied().unwrap_or(1.0)
    }
}

/// Where requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// In one queue, first come first served, for the first free worker.
    #[default]
    Shared,
    /// In one queue for each worker, chosen at random.
    PerWorker,
}

/// A latency-critical service: one worker on each core.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its class in the slowdown matrix.
    pub class: Class,
    /// Its threads, each on a core of its own.
    pub workers: usize,
    /// Where requests wait.
    pub queue: Queue,
    /// The most waiting requests; further ones are refused.
    pub queue_limit: usize,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// The work of requests.
    pub demand: Demand,
}

impl Service {
    /// The utilisation of its lanes when it runs alone; at most 1.
    pub fn load(&self) -> f64 {
        self.demand.mean_ns() / self.arrivals.mean_gap_ns() / self.workers as f64
    }
}

/// A phase of a batch job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It computes.
    Work {
        /// Its class in the slowdown matrix.
        class: Class,
        /// The amount of work; [`NEVER`] is endless.
        work_ns: Nanos,
    },
    /// It waits for a disk or a lock, and does not need the lane.
    Wait {
        /// The length of the wait, whether the lane is held or not.
        ns: Nanos,
    },
}

/// A batch job: its phases, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// At least one phase.
    pub phases: Vec<Phase>,
}

impl Job {
    /// A job that computes without end.
    pub fn endless(name: &str, class: Class) -> Self {
        Self { name: name.to_owned(), phases: vec![Phase::Work { class, work_ns: NEVER }] }
    }

    /// The share of its time in which it uses a lane that it does not share.
    pub fn busy_alone(&self) -> f64 {
        let (mut work_ns, mut wait_ns) = (0.0, 0.0);
        for phase in &self.phases {
            match phase {
                Phase::Work { work_ns: NEVER, .. } => return 1.0,
                Phase::Work { work_ns: ns, .. } => work_ns += *ns as f64,
                Phase::Wait { ns } => wait_ns += *ns as f64,
            }
        }
        work_ns / (work_ns + wait_ns)
    }

    /// The class of its first computing phase.
    pub fn class(&self) -> Option<Class> {
        self.phases.iter().find_map(|phase| match phase {
            Phase::Work { class, .. } => Some(*class),
            Phase::Wait { .. } => None,
        })
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// After this much counted time.
    Time(Nanos),
    /// After this many counted requests have finished.
    Requests(u64),
}

impl Model {
    /// Number of lanes on which batch runs.
    pub fn batch_lanes(&self) -> usize {
        match self.setting.beside {
            BatchMode::Nothing => 0,
            _ if self.batch.is_empty() => 0,
            _ => self.service.workers * (self.machine.lanes_per_core - 1),
        }
    }

    /// The same machine and requests, without batch.
    pub fn alone(&self) -> Self {
        let setting = Setting { name: "alone".to_owned(), beside: BatchMode::Nothing, gate: Gate::ideal() };
        Self { setting, ..self.clone() }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The hardware.
    pub machine: Machine,
    /// The service.
    pub service: Service,
    /// The jobs, assigned to batch lanes in turn.
    pub batch: Vec<Job>,
    /// How lanes slow each other.
    pub smt: Interference,
    /// How the lanes are shared.
    pub setting: Setting,
    /// The latency objective.
    pub objective: Option<Objective>,
    /// The injected faults.
    pub faults: Vec<Fault>,
    /// Time before this does not count.
    pub warm_up_ns: Nanos,
    /// When the run ends.
    pub until: RunEnd,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of the machine, for the random numbers that differ between machines with the same
    /// requests; see [`crate::fleet`].
    pub node: u64,
}
