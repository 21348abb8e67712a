//! The agent's file, `sidelane.toml`: the services, the batch, and the policy by which they share the machine.
//!
//! Reading the file reads nothing of the machine. [`super::discover`] finds out whether the machine has the cgroups and
//! processes that the file names. All problems of a file are reported at once, each with its line and what to do.

mod glob;
mod hazards;
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

pub use glob::{Glob, GlobError, PathMatch};
pub use kubernetes::PodClass;
pub use machine::{ActiveSource, CounterSupport, LATENCY_THRESHOLD, MachineConfig, Unfit};
use sidelane_hazards::run::options::HazardOptions;
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_proxy::run::options::ProxyOptions;
use sidelane_report::otlp::Destination;
pub use sidelane_toml::{Problem, Problems, Setting};

/// Example of a file with every key, with comments.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Settings of the agent's file, with all defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Tables `[[service]]`, in the order of the file.
    pub services: Vec<ServiceRule>,
    /// Tables `[[batch]]`, in the order of the file.
    pub batch: Vec<BatchTree>,
    /// Table `kubernetes`: rules by which pods are services and batch, too.
    pub kubernetes: Option<Kubernetes>,
    /// Table `[policy]`: the policy that decides which CPUs batch may use.
    pub policy: PolicyConfig,
    /// Table `[intervals]`: the intervals of checks.
    pub intervals: Intervals,
    /// Table `[metric]`: the way in which interference is measured.
    pub metric: Metric,
    /// Table `[lanes]`: settings of the gate of batch lanes.
    pub lanes: Option<LaneGate>,
    /// Tables `[[proxy]]`, in the order of the file.
    pub proxies: Vec<ProxyOptions>,
    /// Tables `[[hazards]]`, in the order of the file.
    pub hazards: Vec<HazardOptions>,
    /// Table `[trace]`: services that have a flight recorder.
    pub trace: Option<TraceRule>,
    /// Table `[hurry]`: services whose long requests move to big cores.
    pub hurry: Option<HurryRule>,
    /// Table `[metrics]`: address at which Prometheus reads metrics.
    pub metrics: Option<SocketAddr>,
    /// Table `[audit]`: path of the log of decisions.
    pub audit: Option<PathBuf>,
    /// Each setting that has a default, with its value and its source.
    pub settings: Vec<Setting>,
}

/// Table `[[service]]`: a rule that names a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRule {
    /// Name of the service.
    pub name: String,
    /// Rule by which the service is found.
    pub matches: Match,
    /// Settings that the service's owner chooses.
    pub settings: ServiceSettings,
}

/// Settings that a service's owner chooses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceSettings {
    /// Latency objective of the service.
    pub slo: Option<Objective>,
    /// Whether the service may be placed on the reserved CPUs (Holmes, Algorithm 1).
    pub may_be_placed: bool,
    /// CPUs that count as the service's own. `None`: the CPUs that its threads may run on.
    pub cpus: Option<CpuSet>,
}

/// Rule by which a service is found. Each match of a pattern is a service.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// Cgroup of this path, with all cgroups below it; each match is a service.
    Cgroup(Glob),
    /// Unit of the machine's systemd.
    Unit(String),
    /// Pod of this NAMESPACE/NAME; each match is a service.
    Pod(Glob),
    /// Processes that listen on this TCP port.
    Port(u16),
    /// Processes of this name.
    Comm(String),
}

/// Table `[[batch]]`: a tree of cgroups whose leaves are containers.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchTree {
    /// Uppermost cgroup of the tree. A pattern may match several trees.
    pub cgroup: Glob,
    /// Priority of the tree's containers. Containers with a higher priority are given CPUs first.
    pub priority: i32,
    /// Number of CPUs that each container wants. `None`: the number comes from the container's own cgroup.
    pub cpus: Option<u32>,
}

/// Rules for the pods of this node. The agent does not ask the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubernetes {
    /// Uppermost cgroup of the kubelet. `None`: the cgroups that a kubelet uses by default.
    pub cgroup: Option<Glob>,
    /// Pods that are neither service nor batch, by NAMESPACE/NAME.
    pub exclude: Vec<Glob>,
    /// Settings of all pods that are services.
    pub settings: ServiceSettings,
}

/// Table `[policy]`: the policy that decides which CPUs batch may use.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// Algorithm of the policy, with its settings.
    pub kind: Kind,
    /// Number of CPUs that all batch together always keeps.
    pub floor: u32,
    /// Sets of CPUs that count as lanes of one core, although the kernel reports no common core.
    pub siblings: Vec<CpuSet>,
}

/// Algorithm of the policy, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Holmes: batch leaves the siblings of CPUs on which it disturbs a service (Holmes §4.3).
    Holmes(Holmes),
    /// PerfIso: a number of CPUs is kept idle for bursts.
    PerfIso {
        /// Number of CPUs that are kept idle.
        idle: Share,
    },
    /// Unmanaged: batch is not changed.
    Unmanaged,
    /// Observe: nothing is changed, and no lane is lent. What could be lent is recorded.
    Observe(ObserveRule),
}

/// Keys of `[policy]` with kind `observe`: recordings for `sidelane estimate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserveRule {
    /// Folder of the recordings, with a folder for each service.
    pub dir: PathBuf,
    /// Limit of the number of recordings of each service.
    pub recordings: u32,
}

impl Kind {
    /// Returns the name of the algorithm in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holmes(_) => "holmes",
            Self::PerfIso { .. } => "perfiso",
            Self::Unmanaged => "unmanaged",
            Self::Observe(_) => "observe",
        }
    }
}

/// Settings of the algorithm Holmes (Holmes §4.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Holmes {
    /// Interference at which batch leaves a sibling. `None`: the metric's own default.
    pub interference_threshold: Option<f64>,
    /// Time for which interference has to stay below the threshold before batch comes back.
    pub calm_time: Duration,
    /// Utilisation of the reserved CPUs at which one more is reserved, 0 to 1.
    pub reserved_busy: f64,
    /// CPUs that batch never uses.
    pub reserved: Reserved,
}

/// CPUs that batch never uses.
#[derive(Clone, Debug, PartialEq)]
pub enum Reserved {
    /// Number of CPUs, chosen by the machine's topology.
    Count(Share),
    /// CPUs that the file names.
    Cpus(CpuSet),
}

/// Number of CPUs, or share of the machine's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Fixed number of CPUs.
    Cpus(u32),
    /// One CPU for each group of this number of CPUs, but at least one.
    OneIn(u32),
}

impl Share {
    /// Returns the number of CPUs that this share is on a machine with `total_cpus` CPUs.
    pub fn cpu_count(self, total_cpus: usize) -> usize {
        match self {
            Self::Cpus(count) => count as usize,
            Self::OneIn(part) => total_cpus.div_ceil(part as usize).max(1),
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

/// Table `[intervals]`: the intervals of checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    /// Interval of the checks of the machine while services and batch run.
    pub look: Duration,
    /// Interval of the searches for services by port and name, which read all processes.
    pub processes: Duration,
    /// Interval of checks of the metric, as in the Holmes paper. `None`: the kernel program reports when the metric
    /// crosses the threshold.
    pub poll: Option<Duration>,
    /// Interval of readings of the counters while a service runs without a context switch. Each reading costs the
    /// service time.
    pub tick: Duration,
}

/// Table `[metric]`: the way in which interference is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Source of the interference values.
    pub source: MetricSource,
    /// Formula over the events. `None`: the formula that is known for this processor.
    pub formula: Option<String>,
}

/// Source of interference values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// Hardware counters if the machine has them, otherwise latency.
    Auto,
    /// Hardware counters of the processor.
    Counters,
    /// Request times of the services.
    Latency,
    /// Recording of counters, at this path.
    Replay(PathBuf),
}

impl MetricSource {
    /// Returns the name of the source in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Counters => "counters",
            Self::Latency => "latency",
            Self::Replay(_) => "replay",
        }
    }
}

/// Table `[lanes]`: the gate that keeps batch off a lane while the service runs, and its settings. The keys are options
/// of `sidelane run`.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneGate {
    /// Gate of batch, as the option `--gate`.
    pub gate: GateChoice,
    /// Policy that decides when a lane is lent to batch, as the option `--policy`.
    pub policy: Option<PolicyKind>,
    /// Budget of a request, as the option `--budget`. Without it, a service's objective limits the cost of batch.
    pub budget: Option<Duration>,
    /// Idle time of a service after which batch gets a lane, as the option `--min-idle`.
    pub min_idle: Option<Duration>,
    /// Bound of the slowdown of requests, as the option `--max-slowdown`, if batch never runs beside a request.
    pub max_slowdown: MaxSlowdown,
}

/// Table `[trace]`: flight recorders beside services, each with the service's objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRule {
    /// Names of the recorded services. `None`: all services that have an objective.
    pub services: Option<Vec<String>>,
    /// Directory of the recordings.
    pub dir: PathBuf,
    /// Length of the time that a recorder keeps in memory.
    pub keep: Duration,
    /// Limit of the number of recordings of each service.
    pub recordings: u32,
    /// Whether softirqs and incoming segments are left out of recordings.
    pub light: bool,
    /// Destination to which the slow requests of recordings are exported, too; `None` for none.
    pub otlp: Option<Destination>,
}

/// Choice of the big cores to which long requests move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BigCores {
    /// Cores that the kernel itself reports as big and little.
    Found,
    /// CPUs that the file names: first the CPUs of big cores, then the CPUs of little cores.
    Given(CpuSet, CpuSet),
    /// Equal cores: a lane is big while its siblings are idle. The cores are those of the machine and of `[policy]`.
    Siblings,
}

/// Table `[hurry]`: services whose long requests move to big cores. The keys are options of `sidelane hurry`.
#[derive(Clone, Debug, PartialEq)]
pub struct HurryRule {
    /// Names of the services whose long requests move. `None`: all services that have an objective.
    pub services: Option<Vec<String>>,
    /// Choice of the big cores.
    pub cores: BigCores,
    /// Time on a little core after which a request is long. `None`: the time is learned.
    pub threshold: Option<Duration>,
    /// Percentile of latency that a learned threshold is to keep low.
    pub percentile: f64,
    /// Interval of checks for long requests. `None`: a check takes place when a request becomes long.
    pub sampling: Option<Duration>,
    /// Directory of the logs with the moves of each service; `None` without logs.
    pub log: Option<PathBuf>,
}
