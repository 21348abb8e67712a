//! Description of one run: the machine, the programs on it, and the duration. Data only.
//!
//! One service has the first lane of each of its cores, the request lanes; batch has the other lanes of those cores.
//! The structure allows extensions. Further services are further [`Service`]s. A daemon that reads counters once an
//! interval is one more source of events beside the terms of [`crate::engine`]. Cores of different speed are in
//! [`Machine::core_speed`] already.

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::gate::Gate;
use crate::smt::{Class, Interference};
use crate::time::{NEVER, Nanos};

pub use crate::setting::{BatchMode, Budget, Fault, Lending, LendingDecider, Setting};
pub use sidelane_policy::borrow::Objective;

/// Most cores of one service on one machine.
pub const CORES_MAX: usize = 64;
/// Most lanes of a core.
pub const LANES_MAX: usize = 8;

/// Hardware of a simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Number of CPU sockets of the simulated machine.
    pub packages: usize,
    /// Number of cores of each socket.
    pub cores_per_package: usize,
    /// Number of lanes of each core.
    pub lanes_per_core: usize,
    /// Speed of each core, as a multiple of the reference. A core that is not listed has the speed of the last one.
    pub core_speed: Vec<f64>,
    /// Clock of the cores, in cycles per nanosecond.
    pub clock_ghz: f64,
    /// Whether requests have hardware counters, from which the contention cost is computed as in Elfen's Fig. 9(d).
    pub counters: bool,
    /// Time that batch loses when a sleeping keeper checks its lane and changes nothing.
    pub context_switch_ns: Nanos,
    /// Time that batch loses when it returns from an eviction.
    pub migration_ns: Nanos,
    /// Sleep state of an idle core; `None` if cores do not sleep.
    pub sleep: Option<Sleep>,
    /// Power consumption of the machine.
    pub power: Power,
}

/// Sleep state of a core. With batch on its second lane a core never reaches this state (Elfen §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Time for which all lanes have to be idle before the core sleeps.
    pub after_ns: Nanos,
    /// Time that the next request loses because the core wakes up.
    pub wake_ns: Nanos,
}

/// Power consumption of the parts of a machine, in watts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Power {
    /// Constant power of each package.
    pub package_w: f64,
    /// Power of each idle core.
    pub core_idle_w: f64,
    /// Power of each core with one busy lane. A core that is not listed needs as much as the last one.
    pub core_busy_w: Vec<f64>,
    /// Additional power of each further busy lane.
    pub lane_w: f64,
}

impl Power {
    /// Returns the power of a core with one busy lane, in watts.
    pub fn busy_w(&self, core: usize) -> f64 {
        self.core_busy_w.get(core).or(self.core_busy_w.last()).copied().unwrap_or(0.0)
    }
}

impl Machine {
    /// Returns a machine of one core with two lanes.
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

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.packages * self.cores_per_package
    }

    /// Returns the fastest cores; all cores if they are equal.
    pub fn big_cores(&self) -> impl Iterator<Item = usize> {
        let fastest = (0..self.cores()).map(|core| self.speed_of(core)).fold(0.0, f64::max);
        (0..self.cores()).filter(move |core| self.speed_of(*core) == fastest)
    }

    /// Returns the speed of one core, as a multiple of the reference.
    pub fn speed_of(&self, core: usize) -> f64 {
        self.core_speed.get(core).or(self.core_speed.last()).copied().unwrap_or(1.0)
    }
}

/// Kind of queue in which requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// One queue for all workers: first come, first served.
    #[default]
    Shared,
    /// One queue for each worker, chosen at random.
    PerWorker,
}

/// A latency-critical service: one worker on each core.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// Class of the service in the slowdown matrix.
    pub class: Class,
    /// Number of the service's threads, each on a core of its own.
    pub workers: usize,
    /// Kind of queue in which requests wait.
    pub queue: Queue,
    /// Most waiting requests; further ones are refused.
    pub queue_limit: usize,
    /// Arrivals of requests.
    pub arrivals: Arrivals,
    /// Distribution of the work of requests.
    pub demand: Demand,
}

impl Service {
    /// Returns the load of the service's lanes when it runs alone; above 1 they are overloaded.
    pub fn load(&self) -> f64 {
        self.demand.mean_ns() / self.arrivals.mean_gap_ns() / self.workers as f64
    }
}

/// A phase of a batch job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The job computes on its lane.
    Work {
        /// Class of the phase in the slowdown matrix.
        class: Class,
        /// Amount of work, as nanoseconds at speed 1; [`NEVER`] is endless.
        work_ns: Nanos,
    },
    /// The job waits for a disk or a lock, and does not need the lane.
    Wait {
        /// Length of the wait, which goes on while the lane is held.
        ns: Nanos,
    },
}

/// A batch job: phases that repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name of the job.
    pub name: String,
    /// Phases of the job, at least one.
    pub phases: Vec<Phase>,
}

impl Job {
    /// Returns a job that computes without end.
    pub fn endless(name: &str, class: Class) -> Self {
        Self { name: name.to_owned(), phases: vec![Phase::Work { class, work_ns: NEVER }] }
    }

    /// Returns the share of its time, 0 to 1, in which the job computes if it has a lane and a core of its own.
    pub fn busy_share_alone(&self) -> f64 {
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

    /// Returns the class of the job's first computing phase.
    pub fn first_computing_class(&self) -> Option<Class> {
        self.phases.iter().find_map(|phase| match phase {
            Phase::Work { class, .. } => Some(*class),
            Phase::Wait { .. } => None,
        })
    }
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run ends after this much counted time.
    Time(Nanos),
    /// The run ends after this many counted requests have finished.
    Requests(u64),
}

impl Model {
    /// Returns the number of lanes on which batch runs.
    pub fn batch_lanes(&self) -> usize {
        match self.setting.beside {
            BatchMode::Nothing => 0,
            _ if self.batch.is_empty() => 0,
            _ => self.service.workers * (self.machine.lanes_per_core - 1),
        }
    }

    /// Returns the same machine and requests, without batch.
    pub fn without_batch(&self) -> Self {
        let setting = Setting { name: "alone".to_owned(), beside: BatchMode::Nothing, gate: Gate::ideal() };
        Self { setting, ..self.clone() }
    }
}

/// Description of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Hardware of the machine.
    pub machine: Machine,
    /// Service on the request lanes.
    pub service: Service,
    /// Batch jobs, assigned to batch lanes in turn.
    pub batch: Vec<Job>,
    /// Slowdowns that the lanes of a core cause to each other.
    pub smt: Interference,
    /// Mode of sharing the lanes between the service and batch.
    pub setting: Setting,
    /// Latency objective of the service; `None` without one.
    pub objective: Option<Objective>,
    /// Injected faults of the run.
    pub faults: Vec<Fault>,
    /// Length of the warm-up, which does not count, in nanoseconds.
    pub warm_up_ns: Nanos,
    /// End of the run.
    pub until: RunEnd,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of the machine in a fleet. It determines the random numbers that differ between machines with the same
    /// requests; see [`crate::fleet`].
    pub node: u64,
}
