//! Arguments of the verbs that look at services: `requests`, `list`, `observe` and `report`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;

use super::common::{JsonFile, ResultFiles, TableArgs, parse_percent};
use sidelane_channels::signal::Signal;
use sidelane_observe::period::Period;
use sidelane_trace::slow_threshold::SlowThreshold;

/// Arguments of `sidelane requests`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane requests --service port:6379
  sidelane requests --service comm:memcached --for 1s --log requests.jsonl

Requests are seen at the service's TCP sockets, without its help and whatever it speaks: a receive \
after a send begins one, the sends that follow are its response. Requests that came together and \
were answered together count as one. A service that emits its requests through runtime/c/sidelane.h \
is believed instead.")]
pub struct RequestsArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// For how long; Ctrl-C ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub length: Duration,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The table
    #[command(flatten)]
    pub table: TableArgs,
    /// Write every request here, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Arguments of `sidelane list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane list pid:1234
  sidelane list port:6379 --filter stat_")]
pub struct ListArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(value_name = "SERVICE")]
    pub service: Target,
    /// Only what has this in its name
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
}

/// Arguments of `sidelane observe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane observe --service pid:1234 --for 10s
  sidelane observe --service pid:1234 --signal lane,jvm --for 10s --open
  sidelane observe --signal tag:myapp.phase --signal counter:myapp.done --cpu 1 -- ./myapp

Signals:
  tag:NAME, counter:NAME, rate:NAME   what the program emits (runtime/c/sidelane_signal.h)
  lane                                which thread runs on the observed lane
  request                             whether it works on a request, how many wait, how many are done
  jvm, jvm:NAME                       HotSpot's counters, without an agent
  tag:mem:[PID:]SYMBOL[+OFFSET][/u32] a variable of a process, or a field: server.stat_numcommands
  counter:file:PATH#FIELD             a number in a file of /proc or a cgroup
  ipc, perf:EVENT                     instructions a cycle; counters of processor and kernel
  cpc                                 cycles a cycle: 1, and how far from it is the observer's error
Every counter gets a rate, and every rate is told for each value of every tag.")]
pub struct ObserveArgs {
    /// As sidelane list
    #[arg(long, value_name = "SERVICE", hide = true, conflicts_with_all = ["service", "signals", "command"])]
    pub list: Option<Target>,
    /// As in sidelane list
    #[arg(long, value_name = "TEXT", hide = true, requires = "list")]
    pub filter: Option<String>,
    /// What to observe: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE", conflicts_with = "command")]
    pub service: Option<Target>,
    /// The signals, several times or with commas between [default: lane, request, and jvm where there is one]
    #[arg(long = "signal", value_name = "SIGNAL", value_delimiter = ',')]
    pub signals: Vec<Signal>,
    /// A counter of what the target gets done, for what observing costs it [default: the first one with enough events]
    #[arg(long, value_name = "SIGNAL")]
    pub progress: Option<Signal>,
    /// For how long; Ctrl-C and the target's end end it sooner
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// How far samples lie apart: max, or in the mean so much, as in 1200cycles or 10us
    #[arg(long, value_name = "PERIOD", default_value = "max")]
    pub period: Period,
    /// The lane that is observed; a command is put on it [default: the only one that the target may use]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<u32>,
    /// The observer's lane [default: one that the target does not use, of another core for signals in memory]
    #[arg(long, value_name = "CPU")]
    pub observer_cpu: Option<u32>,
    /// By how many percent the two readings of the clock may differ
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = parse_percent)]
    pub tolerance: f64,
    /// Write every sample here; sidelane report reads it again
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Where results go
    #[command(flatten)]
    pub outputs: Outputs,
    /// The command to observe
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `sidelane report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The log
    pub log: PathBuf,
    /// From so long after the first sample, or the begin of the trace, on
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_time)]
    pub from: Duration,
    /// Up to so long after it [default: to the end]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<Duration>,
    /// By how many percent the two readings of the clock may differ [default: as it was observed]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub tolerance: Option<f64>,
    /// What a request of a trace may take, as in 10ms [default: as it was traced]
    #[arg(long, value_name = "OBJECTIVE", value_parser = SlowThreshold::parse)]
    pub slo: Option<SlowThreshold>,
    /// Where results go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Where the results of an observation or a trace go, besides the terminal.
#[derive(Debug, Args)]
pub struct Outputs {
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
    /// Write a trace for Perfetto here (ui.perfetto.dev); of an observation's log, with each change of a tag
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Open the page when all is done
    #[arg(long)]
    pub open: bool,
}
