//! Arguments of `sidelane estimate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelane_estimate::outcome::SlowdownRange;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_policy::borrow::Objective;
use sidelane_requests::objective::parse_objective;

use crate::cli::common::{JsonFile, RunDirectory};

/// Arguments of `sidelane estimate`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Find out what batch would get beside a service, and what requests would pay:
  sidelane estimate --service port:6379 --for 10m
Estimate again from recordings that --keep or the agent has written, with an objective:
  sidelane estimate /var/lib/sidelane/redis --slo p99=5ms",
    after_help = "\
The service is only observed, as by sidelane requests: nothing is held, moved or confined. A recording has times and CPU \
numbers, a description of the machine and the name of the service as you gave it: no payload, no addresses.

How much batch on the same core slows requests cannot be observed without batch. sidelane doctor measures how much the \
CPUs of this machine slow each other."
)]
pub struct EstimateArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE", conflicts_with = "recordings")]
    pub service: Option<Target>,
    /// Kept recordings, or folders of them, in place of a service; each folder below counts as a service
    #[arg(value_name = "RECORDING", required_unless_present = "service")]
    pub recordings: Vec<PathBuf>,
    /// Request and batch lanes, e.g. 0:1 or 0:1,2:3 [default: the service's CPUs and their SMT siblings]
    #[arg(long, value_name = "REQUEST:BATCH", requires = "service")]
    pub lanes: Option<String>,
    /// How long to record; Ctrl-C ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    pub length: Duration,
    /// Keep the recording in this file
    #[arg(long, value_name = "FILE", requires = "service")]
    pub keep: Option<PathBuf>,
    /// Latency objective of the service, as in p99=5ms [default: one and a half times its p99]
    #[arg(long, value_name = "OBJECTIVE", value_parser = parse_objective)]
    pub slo: Option<Objective>,
    /// How many times as long requests and batch take beside each other: a number, or two with - between [default:
    /// 1.2-1.8]
    #[arg(long, value_name = "FACTOR", value_parser = SlowdownRange::parse)]
    pub slowdown: Option<SlowdownRange>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
}
