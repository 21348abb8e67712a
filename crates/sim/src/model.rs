//! One run, described: the machine, what runs on it and for how long. Data; nothing here moves.
//!
//! One service has the first lane of each of its cores, the request lanes; batch has the other lanes of
//! those cores. Room is left for what is not here yet: more services are more [`Service`]s, a daemon
//! that looks at counters once an interval is one more source of events beside the terms of
//! [`crate::engine`], and cores of different speed are in [`Machine::core_speed`] already.

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::gate::Gate;
use crate::smt::{Class, Interference};
use crate::time::{NEVER, Nanos};

pub use crate::setting::{Beside, Budget, Decider, Fault, Lending, Setting};
pub use sidelane_policy::borrow::Objective;

/// The most cores that one service has on one machine.
pub const CORES_MAX: usize = 64;
/// The most lanes of a core.
pub const LANES_MAX: usize = 8;

/// The hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Sockets.
    pub packages: usize,
    /// Cores of each.
    pub cores_per_package: usize,
    /// Lanes of each core.
    pub lanes_per_core: usize,
    /// How fast each core is, of 1; those that are not listed are as the last.
    pub core_speed: Vec<f64>,
    /// Cycles in a nanosecond.
    pub clock_ghz: f64,
    /// Whether requests carry counters, for the harm of Fig. 9(d).
    pub counters: bool,
    /// What a look of a sleeping keeper that changes nothing takes from batch.
    pub context_switch_ns: Nanos,
    /// What it costs batch to come back from where it was sent.
    pub migration_ns: Nanos,
    /// How a core sleeps that nobody uses.
    pub sleep: Option<Sleep>,
    /// What it draws.
    pub power: Power,
}

/// A core's sleep state (Elfen §5: with batch on the other lane it never gets there).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// All of its lanes have been idle for so long.
    pub after_ns: Nanos,
    /// What waking up costs the next request.
    pub wake_ns: Nanos,
}

/// Watts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Power {
    /// Of each package, always.
    pub package_w: f64,
    /// Of each core that is idle.
    pub core_idle_w: f64,
    /// Of each core with one busy lane.
    pub core_busy_w: f64,
    /// On top, for each further busy lane.
    pub lane_w: f64,
}

impl Machine {
    /// One core of two lanes.
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

    /// All cores.
    pub fn cores(&self) -> usize {
        self.packages * self.cores_per_package
    }

    /// The speed of one.
    pub fn speed_of(&self, core: usize) -> f64 {
        self.core_speed.get(core).or(self.core_speed.last()).copied().unwrap_or(1.0)
    }
}

/// Where requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// In one queue, first come first served, for whichever worker is free.
    #[default]
    Shared,
    /// In a queue of each worker, chosen at random.
    PerWorker,
}

/// A latency-critical service: one worker a core.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What it is to its neighbours.
    pub class: Class,
    /// Its threads, each on a core of its own.
    pub workers: usize,
    /// Where requests wait.
    pub queue: Queue,
    /// The most that wait; more are refused.
    pub queue_limit: usize,
    /// When they come.
    pub arrivals: Arrivals,
    /// How much work they are.
    pub demand: Demand,
}

impl Service {
    /// How busy its lanes are when it is alone, of 1.
    pub fn load(&self) -> f64 {
        self.demand.mean_ns() / self.arrivals.mean_gap_ns() / self.workers as f64
    }
}

/// A stretch of a batch job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It computes.
    Work {
        /// What it is to its neighbours meanwhile.
        class: Class,
        /// So much; [`NEVER`] is endless.
        work_ns: Nanos,
    },
    /// It waits for something that does not need the lane: a disk, a lock.
    Wait {
        /// For so long, whether its lane is held or not.
        ns: Nanos,
    },
}

/// A batch job: its phases, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// At least one.
    pub phases: Vec<Phase>,
}

impl Job {
    /// One that computes without end.
    pub fn endless(name: &str, class: Class) -> Self {
        Self { name: name.to_owned(), phases: vec![Phase::Work { class, work_ns: NEVER }] }
    }

    /// The share of its time in which it uses a lane that it has for itself.
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

    /// What it is to its neighbours when it first computes.
    pub fn class(&self) -> Option<Class> {
        self.phases.iter().find_map(|phase| match phase {
            Phase::Work { class, .. } => Some(*class),
            Phase::Wait { .. } => None,
        })
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so much time that counts.
    Time(Nanos),
    /// When so many requests that count have finished.
    Requests(u64),
}

impl Model {
    /// Lanes on which batch runs, if any runs.
    pub fn batch_lanes(&self) -> usize {
        match self.setting.beside {
            Beside::Nothing => 0,
            _ if self.batch.is_empty() => 0,
            _ => self.service.workers * (self.machine.lanes_per_core - 1),
        }
    }

    /// The same machine and requests, without batch.
    pub fn alone(&self) -> Self {
        let setting = Setting { name: "alone".to_owned(), beside: Beside::Nothing, gate: Gate::ideal() };
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
    /// What batch lanes run, in turn.
    pub batch: Vec<Job>,
    /// What lanes do to each other.
    pub smt: Interference,
    /// How they are shared.
    pub setting: Setting,
    /// What requests may take.
    pub objective: Option<Objective>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What happens before does not count.
    pub warm_up_ns: Nanos,
    /// The end.
    pub until: Until,
    /// Of all that is random.
    pub seed: u64,
    /// Of what differs between machines that get the same requests; see [`crate::fleet`].
    pub node: u64,
}
