//! Arguments of `sidelane trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;

use super::look::Outputs;
use sidelane_trace::slow_threshold::SlowThreshold;

/// Arguments of `sidelane trace`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane trace --service port:8080 --slo 10ms --for 60s --open
  sidelane trace --service port:6379 --log trace.log --page trace.html
  sidelane trace --service port:8080 --slo p99=10ms --record /var/tmp

Requests are seen at the service's TCP sockets, without its help. Each request's time, from its first \
segment to the last of its response, is divided among causes; those of slow requests are told with \
what to do. sidelane report shows a log again.
A flight recorder (--record) keeps the last 10 s in 32 MB of memory. When the objective breaks, at the \
first slow request, or when too many of 10 s are beyond a percentile, it writes them as a log and a \
page, once a minute at most.")]
pub struct TraceArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// What a request may take: a time, as in 10ms, or a percentile, as in p99=10ms [default: the trace's own p99]
    #[arg(long, value_name = "OBJECTIVE", value_parser = SlowThreshold::parse)]
    pub slo: Option<SlowThreshold>,
    /// For how long; Ctrl-C ends it sooner [default: 10s; with --record until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// Record no softirqs and incoming segments: costs the service less, and tells fewer causes
    #[arg(long)]
    pub light: bool,
    /// Keep the last seconds, and write them into this directory when the objective breaks [default: .]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".",
          conflicts_with_all = ["log", "json", "page", "perfetto", "open"])]
    pub record: Option<PathBuf>,
    /// Write every record here; sidelane report reads it again
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Where results go
    #[command(flatten)]
    pub outputs: Outputs,
}
