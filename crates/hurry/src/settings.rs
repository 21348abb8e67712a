//! What was asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sidelane_host::cores::Cores;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Target;
use sidelane_policy::hurryup::{Config, Learning, Looks, Threshold};
use thiserror::Error;

/// What `sidelane hurry` was asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The service.
    pub service: Target,
    /// Which cores are big and which little.
    pub sizes: Sizes,
    /// How threads are mapped.
    pub config: Config,
    /// Who tells what threads work on.
    pub told: Told,
    /// Where each move is written down.
    pub log: Option<PathBuf>,
}

impl Settings {
    /// What is said when all is ready.
    pub fn opening(&self) -> String {
        format!("sidelane: mapping threads of {} to {}", self.service, self.sizes)
    }
}

/// What the policy is asked for, as far as it is tuned; all else is as usual. The percentile is of one hundred.
pub fn tuned(
    percentile: f64,
    sampling: Option<Duration>,
    threshold: Option<Duration>,
    little_speed_milli: Option<u32>,
) -> Config {
    let nanos = |time: Duration| time.as_nanos() as u64;
    let learning = Learning::of((percentile * 100.0).round() as u32, little_speed_milli);
    Config {
        looks: sampling.map_or(Looks::Events, |every| Looks::Sampling(nanos(every))),
        threshold: threshold.map_or(Threshold::Learnt(learning), |at| Threshold::Given(nanos(at))),
        ..Config::default()
    }
}

/// What a lane does while its sibling works, in thousandths of what it does alone: two busy lanes of a core do 1.2 times
/// as much as one.
const LANE_SPEED_MILLI: u32 = 600;

/// Which cores are big and which little.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Always the same ones.
    Cores(Cores),
    /// All are alike: a lane is big while its siblings are idle. The lanes of each core.
    Lanes(Vec<CpuSet>),
}

impl Sizes {
    /// The siblings of a machine whose cores have these lanes.
    ///
    /// # Errors
    /// If no core has several lanes.
    pub fn of_siblings(cores: impl IntoIterator<Item = CpuSet>) -> Result<Self, HurryError> {
        let cores: Vec<CpuSet> = cores.into_iter().filter(|core| core.len() > 1).collect();
        if cores.is_empty() { Err(HurryError::NoSiblings) } else { Ok(Self::Lanes(cores)) }
    }

    /// How fast a little core is, in thousandths of a big one, if that is known.
    pub fn little_speed_milli(&self) -> Option<u32> {
        match self {
            Self::Cores(cores) => cores.little_speed_milli,
            Self::Lanes(_) => Some(LANE_SPEED_MILLI),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(Cores { big, little, source, .. }) => {
                write!(f, "big CPUs {big} and little CPUs {little} ({source})")
            }
            Self::Lanes(cores) => {
                let cores: Vec<String> = cores.iter().map(|core| format!("{{{core}}}")).collect();
                write!(f, "lanes of the cores {}, each of which is big while its siblings are idle", cores.join(" "))
            }
        }
    }
}

/// Who tells what threads work on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// The service itself, if it emits its requests; else the kernel program, from its sockets.
    #[default]
    Found,
    /// The service writes lines to this pipe, as the paper's does.
    Pipe(PathBuf),
}

/// Why threads cannot be mapped.
#[derive(Debug, Error)]
pub enum HurryError {
    /// Not the name of a pipe.
    #[error("`{0}` is no place for statistics: write pipe: and the path of a named pipe, as in pipe:/run/hurry")]
    Syntax(String),
    /// There are no siblings.
    #[error(
        "no core of this machine has several lanes: leave --siblings out, or say which CPUs share a core, as in \
         --siblings 0,4 --siblings 1,5"
    )]
    NoSiblings,
    /// There is something else of this name.
    #[error("{0} is no named pipe: remove it, or choose another name for --stats")]
    NoPipe(PathBuf),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found => f.write_str("found"),
            Self::Pipe(path) => write!(f, "pipe:{}", path.display()),
        }
    }
}

impl FromStr for Told {
    type Err = HurryError;

    fn from_str(text: &str) -> Result<Self, HurryError> {
        let path = text.strip_prefix("pipe:").filter(|path| !path.is_empty());
        path.map(|path| Self::Pipe(path.into())).ok_or_else(|| HurryError::Syntax(text.to_owned()))
    }
}
