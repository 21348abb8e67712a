//! Arguments of `sidelane trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_report::otlp::Destination;

use super::look::Outputs;
use crate::cli::common::RunDirectory;
use sidelane_trace::slow_threshold::SlowThreshold;

/// Arguments of `sidelane trace`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Explain slow requests, on a page in the browser:
  sidelane trace --service port:8080 --slo 10ms --for 60s --open
Record the seconds before an objective breaks:
  sidelane trace --service port:8080 --slo p99=10ms --record /var/tmp",
    after_help = "\
Write a log that sidelane report shows again:
  sidelane trace --service port:6379 --log trace.log --page trace.html

Requests are seen at the service's TCP sockets; the service needs no change. The time of each request, from its first \
segment to the last of its response, is divided among causes. Those of slow requests are listed with what to do.

A flight recorder (--record) keeps the last 10 s in 32 MB of memory. It writes them as a log and a page when the \
objective breaks, once a minute at most. A time breaks at the first slow request; a percentile when too many requests \
of 10 s are beyond it."
)]
pub struct TraceArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// Latency above which a request is slow: a time, as in 10ms, or an objective, as in p99=10ms [default: the trace's
    /// own p99]
    #[arg(long, value_name = "OBJECTIVE", value_parser = SlowThreshold::parse)]
    pub slo: Option<SlowThreshold>,
    /// How long to trace; Ctrl-C ends it sooner [default: 10s; with --record until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// Record no softirqs and no incoming segments: costs the service less, and shows fewer causes
    #[arg(long)]
    pub light: bool,
    /// Keep the last seconds in memory, and write them into this directory when the objective breaks [default: .]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".",
          conflicts_with_all = ["log", "json", "page", "perfetto", "open", "out"])]
    pub record: Option<PathBuf>,
    /// Write every record to this file, for sidelane report
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Export the slow requests as OpenTelemetry traces, to a collector (http://HOST:4318) or to the end of a file; with
    /// --record those of each recording
    #[arg(long, value_name = "DESTINATION")]
    pub otlp: Option<Destination>,
    /// Files of the results
    #[command(flatten)]
    pub outputs: Outputs,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
}
