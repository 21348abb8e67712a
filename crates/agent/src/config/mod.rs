//! The agent's file, `sidelane.toml`: the services, the batch, and the policy by which they share the machine.
//!
//! Reading it touches nothing else. [`super::discover`] finds out whether the machine has what the file names. All
//! problems of a file are reported at once, each with its line and what to do.

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
pub use machine::{ActiveSource, CounterSupport, LATENCY_THRESHOLD, MachineConfig, Unfit};
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_proxy::run::options::ProxyOptions;
pub use sidelane_toml::{Problem, Problems, Setting};

/// An example file with every key, with comments.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Settings of the file, with all defaults.
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
    /// `[lanes]`: settings of the gate of batch lanes.
    pub lanes: Option<LaneGate>,
    /// `[[proxy]]`, in the order of the file.
    pub proxies: Vec<ProxyOptions>,
    /// `[trace]`: services that have a flight recorder.
    pub trace: Option<TraceRule>,
    /// `[hurry]`: services whose long requests move to big cores.
    pub hurry: Option<HurryRule>,
    /// `[metrics]`: address that Prometheus reads.
    pub metrics: Option<SocketAddr>,
    /// `[audit]`: file of the decisions.
    pub audit: Option<PathBuf>,
    /// Each setting that has a default, with its value and its source.
    pub settings: Vec<Setting>,
}

/// A `[[service]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRule {
    /// Name of the service.
    pub name: String,
    /// How the service is found.
    pub matches: Match,
    /// Settings of the service's owner.
    pub settings: ServiceSettings,
}

/// Settings of a service's owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceSettings {
    /// Objective of the service.
    pub slo: Option<Objective>,
    /// Whether it may be placed on the reserved CPUs (Holmes, Algorithm 1).
    pub may_be_placed: bool,
    /// CPUs that count as its own. `None`: those that its threads may run on.
    pub cpus: Option<CpuSet>,
}

/// How a service is found. Each match of a pattern is a service.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// Each group of this path, with all groups below it.
    Cgroup(Glob),
    /// A unit of the machine's systemd.
    Unit(String),
    /// Each pod of this NAMESPACE/NAME.
    Pod(Glob),
    /// The processes that listen on this TCP port.
    Port(u16),
    /// The processes of this name.
    Comm(String),
}

/// A `[[batch]]`: the leaves of a tree of groups are containers.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchTree {
    /// Uppermost group of the tree; a pattern may match several.
    pub cgroup: Glob,
    /// Priority: containers with a higher one are given CPUs first.
    pub priority: i32,
    /// Number of CPUs that each container wants. `None`: what the container's own group says.
    pub cpus: Option<u32>,
}

/// Rules for the pods of this node. The cluster is not asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubernetes {
    /// Group of the kubelet. `None`: the groups that a kubelet uses by default.
    pub cgroup: Option<Glob>,
    /// Pods that are neither service nor batch, by NAMESPACE/NAME.
    pub exclude: Vec<Glob>,
    /// Settings of all pods that are services.
    pub settings: ServiceSettings,
}

/// `[policy]`: the policy that decides which CPUs batch may use.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// Algorithm.
    pub kind: Kind,
    /// Number of CPUs that all batch together always keeps.
    pub floor: u32,
    /// Sets of CPUs that count as the lanes of one core, although they share none.
    pub siblings: Vec<CpuSet>,
}

/// An algorithm, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Batch leaves the siblings of CPUs on which it disturbs a service (Holmes §4.3).
    Holmes(Holmes),
    /// A number of CPUs is kept idle for bursts (PerfIso).
    PerfIso {
        /// Number of idle CPUs.
        idle: Share,
    },
    /// Batch is not changed.
    Unmanaged,
}

impl Kind {
    /// Returns its name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holmes(_) => "holmes",
            Self::PerfIso { .. } => "perfiso",
            Self::Unmanaged => "unmanaged",
        }
    }
}

/// Settings of Holmes (Holmes §4.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Holmes {
    /// Interference at which batch leaves a sibling. `None`: the metric's own default.
    pub interference_threshold: Option<f64>,
    /// How long interference stays below the threshold before batch comes back.
    pub calm_time: Duration,
    /// Utilisation of the reserved CPUs at which one more is reserved, 0 to 1.
    pub reserved_busy: f64,
    /// CPUs that batch never uses.
    pub reserved: Reserved,
}

/// CPUs that batch never uses.
#[derive(Clone, Debug, PartialEq)]
pub enum Reserved {
    /// A number of them, chosen by the machine's topology.
    Count(Share),
    /// These CPUs.
    Cpus(CpuSet),
}

/// A number of CPUs, or a share of the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// This number.
    Cpus(u32),
    /// One of this number of CPUs, but at least one.
    OneIn(u32),
}

impl Share {
    /// Returns the number on a machine with `cpus` CPUs.
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
    /// Interval of the looks at everything.
    pub look: Duration,
    /// Interval of the searches for services by port and name, which read all processes.
    pub processes: Duration,
    /// Interval of readings of the metric, as in the paper. `None`: the kernel program reports when it crosses the
    /// threshold.
    pub poll: Option<Duration>,
    /// Interval of readings of the counters while a service runs on, which cost the service time.
    pub tick: Duration,
}

/// `[metric]`: how interference is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Source of interference.
    pub source: MetricSource,
    /// Formula over the events. `None`: the one that is known for this processor.
    pub formula: Option<String>,
}

/// Source of interference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// Counters if the machine has them, otherwise latency.
    Auto,
    /// The processor's counters.
    Counters,
    /// The service's own request times.
    Latency,
    /// A recording of counters.
    Replay(PathBuf),
}

impl MetricSource {
    /// Returns its name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Counters => "counters",
            Self::Latency => "latency",
            Self::Replay(_) => "replay",
        }
    }
}

/// `[lanes]`: how batch lanes are kept in addition to the policy's decisions. The keys are options of `sidelane run`.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneGate {
    /// `--gate`.
    pub gate: GateChoice,
    /// `--policy`.
    pub policy: Option<PolicyKind>,
    /// `--budget`. Without it, a service's objective says what batch may cost.
    pub budget: Option<Duration>,
    /// `--min-idle`.
    pub min_idle: Duration,
    /// `--max-slowdown`, if batch never runs beside a request.
    pub max_slowdown: MaxSlowdown,
}

/// `[trace]`: flight recorders beside services, each with the service's objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRule {
    /// Names of the services. `None`: those that have an objective.
    pub services: Option<Vec<String>>,
    /// Directory of the recordings.
    pub dir: PathBuf,
    /// Time that is kept in memory.
    pub keep: Duration,
    /// Bound of the recordings of each service.
    pub recordings: u32,
    /// Whether softirqs and incoming segments are left out.
    pub light: bool,
}

/// Choice of the big cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BigCores {
    /// Cores as the kernel distinguishes them.
    Found,
    /// Given CPUs: first those of big cores, then those of little ones.
    Given(CpuSet, CpuSet),
    /// Equal cores: a lane is big while its siblings are idle. The cores are those of the machine and of `[policy]`.
    Siblings,
}

/// `[hurry]`: services whose long requests move to big cores. The keys are options of `sidelane hurry`.
#[derive(Clone, Debug, PartialEq)]
pub struct HurryRule {
    /// Names of the services. `None`: those that have an objective.
    pub services: Option<Vec<String>>,
    /// Choice of the big cores.
    pub cores: BigCores,
    /// Time on a little core after which a request is long. `None`: it is learnt.
    pub threshold: Option<Duration>,
    /// Percentile that a learnt threshold is to keep low.
    pub percentile: f64,
    /// Interval of looks for long requests. `None`: a look takes place when a request becomes long.
    pub sampling: Option<Duration>,
    /// Directory of the logs with the moves of each service.
    pub log: Option<PathBuf>,
}
