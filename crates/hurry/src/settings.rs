//! Settings of `sidelane hurry`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sidelane_host::cores::{Cores, CoresError, Source};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Target;
use sidelane_policy::hurryup::{Config, Learning, ScanTimes, Threshold};
use thiserror::Error;

/// Settings of a mapper, from options or from the agent's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Service whose threads are mapped.
    pub service: Target,
    /// Rule for which cores are big and which are little.
    pub sizes: CoreSizes,
    /// Configuration of the policy.
    pub config: Config,
    /// Source of the events that tell which thread works on which request.
    pub source: SourceOption,
    /// Path of the audit log with one line for each move; `None` for no log.
    pub log: Option<PathBuf>,
}

impl Settings {
    /// Returns the line that is printed when the mapper is ready.
    pub fn ready_message(&self) -> String {
        format!("sidelane: mapping threads of {} to {}", self.service, self.sizes)
    }
}

/// Returns the configuration of the policy with the given values; `None` keeps a default. `percentile` ranges from 0 to
/// 100, and `little_speed_milli` is in thousandths of a big core's speed.
pub fn policy_config(
    percentile: f64,
    sampling: Option<Duration>,
    threshold: Option<Duration>,
    little_speed_milli: Option<u32>,
) -> Config {
    let nanos = |time: Duration| time.as_nanos() as u64;
    let learning = Learning::with_percentile((percentile * 100.0).round() as u32, little_speed_milli);
    Config {
        scan_times: sampling.map_or(ScanTimes::Events, |every| ScanTimes::Sampling(nanos(every))),
        threshold: threshold.map_or(Threshold::Learnt(learning), |at| Threshold::Given(nanos(at))),
        ..Config::default()
    }
}

/// Speed of a lane while its sibling works, in thousandths of its speed alone. Two busy lanes of a core do 1.2 times as
/// much as one.
const LANE_SPEED_MILLI: u32 = 600;

/// Rule for which cores are big and which are little.
#[derive(Clone, Debug, PartialEq)]
pub enum CoreSizes {
    /// Fixed sets of big and little cores.
    Cores(Cores),
    /// Lanes of each core, all of the same kind. A lane is big while its siblings are idle.
    Lanes(Vec<CpuSet>),
}

impl CoreSizes {
    /// Creates the rule for sibling lanes, from the lanes of each core. Cores with a single lane are left out.
    ///
    /// # Errors
    /// Fails if no core has several lanes.
    pub fn from_siblings(cores: impl IntoIterator<Item = CpuSet>) -> Result<Self, HurryError> {
        let cores: Vec<CpuSet> = cores.into_iter().filter(|core| core.len() > 1).collect();
        if cores.is_empty() { Err(HurryError::NoSiblings) } else { Ok(Self::Lanes(cores)) }
    }

    /// Returns whether the user named cores, and the kernel shows no difference between any cores of this machine.
    pub fn are_equal_cores(&self) -> bool {
        let is_given = matches!(self, Self::Cores(cores) if cores.source == Source::Given);
        is_given && matches!(Cores::find(Path::new("/sys")), Err(CoresError::AllEqual(_)))
    }

    /// Returns the speed of a little core in thousandths of a big one; `None` if it is unknown.
    pub fn little_speed_milli(&self) -> Option<u32> {
        match self {
            Self::Cores(cores) => cores.little_speed_milli,
            Self::Lanes(_) => Some(LANE_SPEED_MILLI),
        }
    }
}

impl fmt::Display for CoreSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(Cores { big, little, source, .. }) => {
                write!(f, "big CPUs {big} and little CPUs {little} ({source})")
            }
            Self::Lanes(cores) => {
                let cores: Vec<String> = cores.iter().map(|core| format!("{{{core}}}")).collect();
                write!(f, "lanes of the cores {}; a lane is big while its siblings are idle", cores.join(" "))
            }
        }
    }
}

/// Source of the events that tell which thread works on which request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceOption {
    /// Requests that the service emits, if it does; otherwise requests that the kernel program observes at the
    /// service's sockets.
    #[default]
    Found,
    /// Named pipe to which the service writes lines of text, as in the paper.
    Pipe(PathBuf),
}

/// Error: the threads of a service cannot be mapped.
#[derive(Debug, Error)]
pub enum HurryError {
    /// The option is not `pipe:` with a path.
    #[error("cannot use `{0}` for --stats; write pipe: and the path of a named pipe, as in pipe:/run/hurry")]
    Syntax(String),
    /// No core has sibling lanes.
    #[error(
        "cannot use --siblings: no core of this machine has several lanes; leave it out, or name CPUs of one core, as \
         in --siblings 0,4 --siblings 1,5"
    )]
    NoSiblings,
    /// The path exists, and is not a named pipe.
    #[error("cannot use {0} for --stats: it is not a named pipe; remove it, or choose another path")]
    NoPipe(PathBuf),
}

impl fmt::Display for SourceOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found => f.write_str("found"),
            Self::Pipe(path) => write!(f, "pipe:{}", path.display()),
        }
    }
}

impl FromStr for SourceOption {
    type Err = HurryError;

    fn from_str(text: &str) -> Result<Self, HurryError> {
        let path = text.strip_prefix("pipe:").filter(|path| !path.is_empty());
        path.map(|path| Self::Pipe(path.into())).ok_or_else(|| HurryError::Syntax(text.to_owned()))
    }
}
