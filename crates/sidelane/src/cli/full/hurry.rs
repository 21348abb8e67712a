//! Arguments of `sidelane hurry`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_policy::hurryup::{Config, Mapping, Options};

use crate::cli::common::{JsonFile, RunDirectory};
use sidelane_hurry::{SourceOption, policy_config};

fn parse_percentile(text: &str) -> Result<f64, String> {
    let percentile = text.parse::<f64>().ok().filter(|percentile| (0.0..=100.0).contains(percentile));
    percentile.ok_or_else(|| "it is no percentile; write a number from 0 to 100, as in 99".to_owned())
}

/// Arguments of `sidelane hurry`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Move long requests to big cores, until Ctrl-C:
  sidelane hurry --service port:9200
Keep the p99 low, and log each move:
  sidelane hurry --service port:9200 --percentile 99 --log moves.jsonl",
    after_help = "\
The setting of the paper (Hurry-up):
  sidelane hurry --service pid:1234 --big 0,1 --little 2-5 --sampling 25ms --threshold 50ms --paper --stats pipe:/run/hurry

Each thread that works on requests is bound to one core. A request that has been on a little core for longer than the \
threshold changes places with a thread on a big core. Big cores are found, and the threshold is learnt. At the end, \
and after kill -9, all threads have the CPUs back that they had.

Requests are seen at the service's TCP sockets. If the service emits them (runtime/c/sidelane.h), or writes lines \
THREAD;REQUEST;MILLISECONDS to a pipe at each begin and end (--stats), those count instead."
)]
pub struct HurryArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// CPUs of big cores [default: from the kernel]
    #[arg(long, value_name = "CPUS", requires = "little")]
    pub big: Option<CpuSet>,
    /// CPUs of little cores
    #[arg(long, value_name = "CPUS", requires = "big")]
    pub little: Option<CpuSet>,
    /// All cores are alike: a lane counts as big while its SMT siblings are idle. With CPUs, once for each core: treat
    /// these as siblings
    #[arg(long, value_name = "CPUS", num_args = 0..=1, conflicts_with = "big")]
    pub siblings: Option<Vec<CpuSet>>,
    /// How threads are mapped to cores; all but hurry-up are for comparison
    #[arg(long, value_name = "HOW", value_enum, default_value = "hurry-up")]
    pub mapping: How,
    /// Time on a little core after which a request is long, as in 50ms [default: learnt]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub threshold: Option<Duration>,
    /// Percentile of latency that a learnt threshold keeps low
    #[arg(long, value_name = "NUMBER", default_value_t = 90.0, value_parser = parse_percentile, conflicts_with = "threshold")]
    pub percentile: f64,
    /// Look for long requests at this interval, as the paper does with 25ms [default: whenever a request is due]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub sampling: Option<Duration>,
    /// Choose the big core as in Algorithm 1 of the Hurry-up paper: the thread there always leaves it, even if its own
    /// request is longer
    #[arg(long)]
    pub paper: bool,
    /// Named pipe to which the service writes its requests, as in pipe:/run/hurry
    #[arg(long, value_name = "PIPE")]
    pub stats: Option<SourceOption>,
    /// How long to move requests; Ctrl-C ends it sooner [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// Write every move to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
}

/// Mapping of threads to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Threads are on all cores; long requests move to big ones
    HurryUp,
    /// Threads are on all cores, and stay where they were put
    Static,
    /// Threads are on big cores only
    AllBig,
    /// Threads are on little cores only
    AllLittle,
    /// The kernel places threads
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
    /// Returns the settings of the mapping policy. `little_speed_milli` is the speed of a little core, in thousandths
    /// of the speed of a big core.
    pub fn config(&self, little_speed_milli: Option<u32>) -> Config {
        Config {
            mapping: self.mapping.into(),
            options: if self.paper { Options::PAPER } else { Options::default() },
            ..policy_config(self.percentile, self.sampling, self.threshold, little_speed_milli)
        }
    }
}
