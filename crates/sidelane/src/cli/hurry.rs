//! Arguments of `sidelane hurry`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_policy::hurryup::{Config, Mapping, Options};

use super::common::{JsonFile, parse_percent};
use sidelane_hurry::{SourceOption, tuned};

/// Arguments of `sidelane hurry`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane hurry --service port:9200
  sidelane hurry --service port:9200 --percentile 99 --log moves.jsonl
  sidelane hurry --service pid:1234 --big 0,1 --little 2-5 --sampling 25ms --threshold 50ms --paper --stats pipe:/run/hurry

Each thread that works on requests is bound to one core. A request that has been on a little core for longer than the \
threshold changes places with a thread on a big core. Which cores are big is found, and the threshold is learnt. When \
sidelane ends, by whatever, all threads have the CPUs back that they had.
Requests are seen at the service's TCP sockets. A service that emits them (runtime/c/sidelane.h), or that writes lines \
THREAD;REQUEST;MILLISECONDS to a pipe at each begin and end (--stats), is believed instead.")]
pub struct HurryArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// CPUs of big cores [default: as the kernel tells cores apart]
    #[arg(long, value_name = "CPUS", requires = "little")]
    pub big: Option<CpuSet>,
    /// CPUs of little cores
    #[arg(long, value_name = "CPUS", requires = "big")]
    pub little: Option<CpuSet>,
    /// All cores are alike: a lane is big while its siblings are idle. With CPUs, once for each core: these are siblings
    #[arg(long, value_name = "CPUS", num_args = 0..=1, conflicts_with = "big")]
    pub siblings: Option<Vec<CpuSet>>,
    /// How threads are mapped: the others are there to compare with
    #[arg(long, value_name = "HOW", value_enum, default_value = "hurry-up")]
    pub mapping: How,
    /// Time on a little core after which a request is long, as in 50ms [default: learnt]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub threshold: Option<Duration>,
    /// The percentile that a learnt threshold is to keep low
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = parse_percent, conflicts_with = "threshold")]
    pub percentile: f64,
    /// Shortest time between looks for long requests, as in the paper [default: look when one is due]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub sampling: Option<Duration>,
    /// Move as the paper's Algorithm 1 is printed: any thread on a big core may have to leave it
    #[arg(long)]
    pub paper: bool,
    /// The pipe to which the service writes what its threads work on, as in pipe:/run/hurry
    #[arg(long, value_name = "PIPE")]
    pub stats: Option<SourceOption>,
    /// For how long; Ctrl-C ends it sooner [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// Write every move here, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
}

/// How threads are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// On all cores, and long requests move to big ones.
    HurryUp,
    /// On all cores, and they stay there.
    Static,
    /// On big cores only.
    AllBig,
    /// On little cores only.
    AllLittle,
    /// Wherever the kernel puts them.
    Kernel,
}

impl From<How> for Mapping {
    fn from(how: How) -> Self {
        match how {
            How::HurryUp => Self::HurryUp,
            How::Static => Self::Static,
            How::AllBig => Self::AllBig,
            How::AllLittle => Self::AllLittle,
            How::Kernel => Self::Kernel,
        }
    }
}

impl HurryArgs {
    /// What the policy is asked for, on a machine whose little cores are that fast.
    pub fn config(&self, little_speed_milli: Option<u32>) -> Config {
        Config {
            mapping: self.mapping.into(),
            options: if self.paper { Options::PAPER } else { Options::default() },
            ..tuned(self.percentile, self.sampling, self.threshold, little_speed_milli)
        }
    }
}
