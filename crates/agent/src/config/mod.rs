//! The agent's file, `sidelane.toml`: who are services, who is batch, and by which policy they share the machine.
//!
//! Reading it touches nothing else: whether the machine has what the file names is found out by [`super::discover`].
//! All problems of a file are told at once, each with its line and what to do.

mod glob;
mod kubernetes;
mod lanes;
mod machine;
mod modules;
mod overlap;
mod policy;
mod proxy;
mod read;
mod roles;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::borrow::{Objective, PolicyKind};

pub use glob::{Fit, Glob, GlobError};
pub use kubernetes::Class;
pub use machine::{ActiveSource, Counters, LATENCY_THRESHOLD, OnMachine, Unfit};
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_proxy::run::options::ProxyOptions;
pub use sidelane_toml::{Problem, Problems, Setting};

/// A file in which everything is said, with comments.
pub const EXAMPLE: &str = include_str!("example.toml");

/// What the file says, with all defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[[service]]`, in the order of the file.
    pub services: Vec<ServiceRule>,
    /// `[[batch]]`, in the order of the file.
    pub batch: Vec<BatchTree>,
    /// `kubernetes`: pods are services and batch, too.
    pub kubernetes: Option<Kubernetes>,
    /// `[policy]`.
    pub policy: PolicyConfig,
    /// `[intervals]`.
    pub intervals: Intervals,
    /// `[metric]`.
    pub metric: Metric,
    /// `[lanes]`: batch lanes are kept by a gate, too.
    pub lanes: Option<LaneGate>,
    /// `[[proxy]]`, in the order of the file.
    pub proxies: Vec<ProxyOptions>,
    /// `[trace]`: which services have a flight recorder.
    pub trace: Option<TraceRule>,
    /// `[hurry]`: of which services long requests move to big cores.
    pub hurry: Option<HurryRule>,
    /// `[metrics]`: where Prometheus reads.
    pub metrics: Option<SocketAddr>,
    /// `[audit]`: where decisions are written.
    pub audit: Option<PathBuf>,
    /// Each setting that has a default, with its value and where that comes from.
    pub settings: Vec<Setting>,
}

/// A `[[service]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRule {
    /// Its name.
    pub name: String,
    /// How it is found.
    pub matches: Match,
    /// What its owner wants and allows.
    pub terms: ServiceTerms,
}

/// What a service's owner wants and allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceTerms {
    /// What it owes its clients.
    pub slo: Option<Objective>,
    /// It may be placed on the reserved CPUs (Holmes, Algorithm 1).
    pub may_be_placed: bool,
    /// The CPUs that count as its own. `None`: those that its threads may run on.
    pub cpus: Option<CpuSet>,
}

/// How a service is found. What a pattern matches several times are several services.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// Each group of this path is one, with all groups below it.
    Cgroup(Glob),
    /// A unit of the machine's systemd.
    Unit(String),
    /// Each pod of this NAMESPACE/NAME is one.
    Pod(Glob),
    /// The processes that listen on this TCP port.
    Port(u16),
    /// The processes of this name.
    Comm(String),
}

/// A `[[batch]]`: the leaves of a tree of groups are containers.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchTree {
    /// Where the tree, or several, begin.
    pub cgroup: Glob,
    /// Who has more is given CPUs before others.
    pub priority: i32,
    /// How many CPUs each container wants. `None`: what the container's own group says.
    pub cpus: Option<u32>,
}

/// Which pods of this node are services and batch. The cluster is not asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubernetes {
    /// The kubelet's groups. `None`: where a kubelet makes them by itself.
    pub cgroup: Option<Glob>,
    /// Pods that are neither, by NAMESPACE/NAME.
    pub exclude: Vec<Glob>,
    /// What holds for all pods that are services.
    pub terms: ServiceTerms,
}

/// `[policy]`: who decides which CPUs batch may use.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// By which algorithm.
    pub kind: Kind,
    /// CPUs that all batch together keeps, whatever happens.
    pub floor: u32,
    /// Sets of CPUs that count as the lanes of one core, though they share none.
    pub siblings: Vec<CpuSet>,
}

/// An algorithm, with what it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Batch leaves the siblings of CPUs on which it disturbs a service (Holmes §4.3).
    Holmes(Holmes),
    /// So many CPUs are kept idle for bursts (PerfIso).
    PerfIso {
        /// How many.
        idle: Share,
    },
    /// Batch is left alone.
    Unmanaged,
}

impl Kind {
    /// Its name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holmes(_) => "holmes",
            Self::PerfIso { .. } => "perfiso",
            Self::Unmanaged => "unmanaged",
        }
    }
}

/// What Holmes needs (Holmes §4.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Holmes {
    /// Interference at which batch leaves a sibling. `None`: the metric's own default.
    pub interference_threshold: Option<f64>,
    /// For how long interference stays below the threshold before batch comes back.
    pub calm_time: Duration,
    /// How busy the reserved CPUs may be before one more is reserved, 0 to 1.
    pub reserved_busy: f64,
    /// The CPUs that batch never uses.
    pub reserved: Reserved,
}

/// CPUs that batch never uses.
#[derive(Clone, Debug, PartialEq)]
pub enum Reserved {
    /// So many; which ones is seen from the machine.
    Count(Share),
    /// These.
    Cpus(CpuSet),
}

/// A number of CPUs, or a part of the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Cpus(u32),
    /// One of so many, at least one.
    OneIn(u32),
}

impl Share {
    /// The number, on a machine of so many CPUs.
    pub fn of(self, cpus: usize) -> usize {
        match self {
            Self::Cpus(count) => count as usize,
            Self::OneIn(part) => cpus.div_ceil(part as usize).max(1),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(count) => count.fmt(f),
            Self::OneIn(part) => write!(f, "one CPU in {part}"),
        }
    }
}

/// `[intervals]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    /// Between two looks at everything.
    pub look: Duration,
    /// Between two searches for services by port and name, which read all processes.
    pub processes: Duration,
    /// Between two readings of the metric, as the paper does it. `None`: the kernel program says when it crosses the threshold.
    pub poll: Option<Duration>,
    /// Between two readings of the counters while a service runs on, which cost the service time.
    pub tick: Duration,
}

/// `[metric]`: how interference is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// From what.
    pub source: MetricSource,
    /// Over which events. `None`: the one that is known for this processor.
    pub formula: Option<String>,
}

/// From what interference is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// From counters where the machine has them, else from latency.
    Auto,
    /// From the processor's counters.
    Counters,
    /// From the service's own request times.
    Latency,
    /// From counters that were recorded.
    Replay(PathBuf),
}

impl MetricSource {
    /// Its name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Counters => "counters",
            Self::Latency => "latency",
            Self::Replay(_) => "replay",
        }
    }
}

/// `[lanes]`: how batch lanes are kept beside what the policy decides. The keys are options of `sidelane run`.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneGate {
    /// `--gate`.
    pub gate: GateChoice,
    /// `--policy`.
    pub policy: Option<PolicyKind>,
    /// `--budget`. Without one, a service's objective says what batch may cost.
    pub budget: Option<Duration>,
    /// `--min-idle`.
    pub min_idle: Duration,
    /// `--max-slowdown`, where batch never runs beside a request.
    pub max_slowdown: MaxSlowdown,
}

/// `[trace]`: flight recorders beside services, each with the service's objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRule {
    /// The names of the services. `None`: those that have an objective.
    pub services: Option<Vec<String>>,
    /// Where recordings are written.
    pub dir: PathBuf,
    /// How much is kept in memory.
    pub keep: Duration,
    /// So many recordings are written of each service, no more.
    pub recordings: u32,
    /// Without softirqs and incoming segments.
    pub light: bool,
}

/// Which cores are big.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BigCores {
    /// As the kernel tells cores apart.
    Found,
    /// These CPUs are of big and these of little cores.
    Given(CpuSet, CpuSet),
    /// All are alike: a lane is big while its siblings are idle. They are those of the machine and of `[policy]`.
    Siblings,
}

/// `[hurry]`: services whose long requests move to big cores. The keys are options of `sidelane hurry`.
#[derive(Clone, Debug, PartialEq)]
pub struct HurryRule {
    /// The names of the services. `None`: those that have an objective.
    pub services: Option<Vec<String>>,
    /// Which cores are big.
    pub cores: BigCores,
    /// How long a request is on a little core before it is long. `None`: it is learnt.
    pub threshold: Option<Duration>,
    /// The percentile that a learnt threshold is to keep low.
    pub percentile: f64,
    /// Between two looks for long requests. `None`: there is one when one is due.
    pub sampling: Option<Duration>,
    /// Where the moves of each service are written.
    pub log: Option<PathBuf>,
}
