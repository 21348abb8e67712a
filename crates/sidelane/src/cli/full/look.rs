//! Arguments of the verbs that observe services: `requests`, `list`, `observe` and `report`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;

use crate::cli::common::{JsonFile, ResultFiles, RunDirectory, TableArgs, parse_percent};
use sidelane_channels::signal::Signal;
use sidelane_observe::period::Period;
use sidelane_report::otlp::Destination;
use sidelane_trace::slow_threshold::SlowThreshold;

/// Arguments of `sidelane requests`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Measure the requests of 10 s:
  sidelane requests --service port:6379
Write each request to a file, too:
  sidelane requests --service comm:memcached --for 1s --log requests.jsonl",
    after_help = "\
Requests are seen at the service's TCP sockets, in any protocol, and the service needs no change. A receive after a \
send begins a request; the sends that follow are its response. Requests that arrive together and are answered together \
count as one. If the service emits its requests through runtime/c/sidelane.h, those count instead."
)]
pub struct RequestsArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// How long to measure; Ctrl-C ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub length: Duration,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The table
    #[command(flatten)]
    pub table: TableArgs,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
    /// Write every request to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Arguments of `sidelane list`.
#[derive(Debug, Args)]
#[command(before_help = "\
List all signals of a process:
  sidelane list pid:1234
List those whose names contain a text:
  sidelane list port:6379 --filter stat_")]
pub struct ListArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(value_name = "SERVICE")]
    pub service: Target,
    /// List only signals whose names contain this text
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
}

/// Arguments of `sidelane observe`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Observe a running program for 10 s:
  sidelane observe --service pid:1234 --for 10s
Choose signals, and open the result as a page:
  sidelane observe --service pid:1234 --signal lane,jvm --for 10s --open",
    after_help = "\
Start a program and observe what it emits:
  sidelane observe --signal tag:myapp.phase --signal counter:myapp.done --cpu 1 -- ./myapp

Signals:
  tag:NAME, counter:NAME, rate:NAME   what the program emits (runtime/c/sidelane_signal.h)
  lane                                which thread runs on the observed lane
  request                             whether the lane works on a request, how many wait, how many are done
  jvm, jvm:NAME                       HotSpot's counters, without an agent
  tag:mem:[PID:]SYMBOL[+OFFSET][/u32] a variable of a process, or a field: server.stat_numcommands
  counter:file:PATH#FIELD             a number in a file of /proc or a cgroup
  ipc, perf:EVENT                     instructions per cycle; counters of processor and kernel
  cpc                                 cycles per cycle: 1; its distance from 1 is the observer's error
Every counter gets a rate. Every rate is shown for each value of every tag."
)]
pub struct ObserveArgs {
    /// The same as sidelane list
    #[arg(long, value_name = "SERVICE", hide = true, conflicts_with_all = ["service", "signals", "command"])]
    pub list: Option<Target>,
    /// The same as in sidelane list
    #[arg(long, value_name = "TEXT", hide = true, requires = "list")]
    pub filter: Option<String>,
    /// What to observe: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE", conflicts_with = "command")]
    pub service: Option<Target>,
    /// The signals, several times or with commas between [default: lane, request, and jvm where there is one]
    #[arg(long = "signal", value_name = "SIGNAL", value_delimiter = ',')]
    pub signals: Vec<Signal>,
    /// Counter of the target's progress, by which the cost of observing is measured [default: the first one with enough
    /// events]
    #[arg(long, value_name = "SIGNAL")]
    pub progress: Option<Signal>,
    /// How long to observe; Ctrl-C or the end of the target ends it sooner
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// Mean distance of samples, as in 1200cycles or 10us; max samples as fast as possible
    #[arg(long, value_name = "PERIOD", default_value = "max")]
    pub period: Period,
    /// The observed lane; a command is started on it [default: the only one that the target may use]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<u32>,
    /// The observer's lane [default: one that the target does not use; for signals in memory one of another core]
    #[arg(long, value_name = "CPU")]
    pub observer_cpu: Option<u32>,
    /// How much the two clock readings of a sample may differ, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent)]
    pub tolerance: f64,
    /// Write every sample to this file, for sidelane report
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Files of the results
    #[command(flatten)]
    pub outputs: Outputs,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
    /// The command to observe
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `sidelane report`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Compare runs that --out has kept, and open the page:
  sidelane report before-1 before-2 after-1 after-2 --open
Show a trace again, with another limit:
  sidelane report trace.log --slo 10ms",
    after_help = "\
More examples:
  sidelane report after-1 after-2 --against before-1 before-2
  sidelane report observation.log --from 2s --to 3s --open

Runs with the same options on the same machine are rounds of one variant, and the variant that is named first is the \
baseline. If the service itself was changed, its options are the same: name the baseline with --against. Six runs of \
each variant, taken in turns, give 95 % intervals."
)]
pub struct ReportArgs {
    /// Directories of runs, or one log
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Runs that are the baseline of all others, whatever their options
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub against: Vec<PathBuf>,
    /// Leave out what came before this time, counted from the first sample or the begin of the trace
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_time)]
    pub from: Duration,
    /// Leave out what came after this time [default: nothing]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<Duration>,
    /// How much the two clock readings of a sample may differ, in percent [default: as it was observed]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub tolerance: Option<f64>,
    /// Latency above which a request of a trace is slow, as in 10ms or p99=10ms [default: as it was traced]
    #[arg(long, value_name = "OBJECTIVE", value_parser = SlowThreshold::parse)]
    pub slo: Option<SlowThreshold>,
    /// Export the slow requests of a trace, as sidelane trace does
    #[arg(long, value_name = "DESTINATION")]
    pub otlp: Option<Destination>,
    /// Files of the results
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Files of the results of an observation or a trace.
#[derive(Debug, Args)]
pub struct Outputs {
    /// Files of any result
    #[command(flatten)]
    pub files: ResultFiles,
    /// Write a trace for Perfetto (ui.perfetto.dev) to this file; from an observation's log it has each change of a tag
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Open the page in the browser at the end
    #[arg(long)]
    pub open: bool,
}
