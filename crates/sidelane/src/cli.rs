//! The command line: typed arguments, nothing else.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sidelane_policy::borrow::{BorrowConfig, Budget, Lending, Objective, PolicyKind};

use crate::bench::guard::{Source, Way};
use crate::bench::rounds::Patience;
use crate::channel::signal::Signal;
use crate::experiment::sibling::Carrier;
use crate::lane::adopt::{AdoptError, Adoptee};
use crate::lane::gate::GateChoice;
use crate::lane::objective::parse_objective;
use crate::lane::terms::LendingError;
use crate::observe::period::Period;
use crate::proxy::options::{Hedge, ProxyOptions, Watched, parse_address};
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_proxy::config::{Limits, Protocol};

/// Run batch work in the idle moments of latency-critical services, on the same cores.
#[derive(Debug, Parser)]
#[command(name = "sidelane", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a batch command while the service is idle
    Run(RunArgs),
    /// Say what this machine can do, what it lacks and how fast batch leaves a lane here
    Doctor(DoctorArgs),
    /// Show it: a search service and a batch job on one core, with and without Sidelane
    Demo(DemoArgs),
    /// Find out which counters tell interference on this processor, and from which value on
    Calibrate(CalibrateArgs),
    /// Look at a service's requests: how many, how long, how many waited
    Requests(RequestsArgs),
    /// Say what can be observed of a service: its signals, and where they are found
    List(ListArgs),
    /// Look at signals of running programs through a microscope: tags, counters and rates
    Observe(ObserveArgs),
    /// Show an observation again, from the log that `sidelane observe --log` wrote
    Report(ReportArgs),
    /// Measure what Sidelane itself costs, leaks and gains on this machine
    #[command(subcommand)]
    Bench(Bench),
    /// Run an experiment on a simulated machine, with the same policies
    Sim(SimArgs),
    /// Pass requests on to a server, and to another one while that is slow for a known reason
    Proxy(Box<ProxyArgs>),
    /// Share the whole machine between services and batch containers, by what a file says
    Agent(AgentArgs),
    /// Say what runs where and why, from the running agent
    Status(StatusArgs),
    /// Put the machine right when the agent dies (not for users)
    #[command(name = crate::undo::guardian::VERB, hide = true)]
    Guardian {
        /// The agent's process id.
        agent_pid: u32,
    },
    /// Wait at the gate and become the batch command (not for users)
    #[command(name = crate::lane::batch::VERB, hide = true)]
    Batch {
        /// Where the gate is.
        entrance_fd: i32,
        /// `idle`, `ext` or `ordinary`.
        class: String,
        /// The batch command.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// What can be done with the agent's file.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Say what is wrong with a file: each line, and what to do
    #[command(after_help = "Exit code: 0 if nothing is wrong with the file, else 2.")]
    Check {
        /// The file
        file: PathBuf,
    },
    /// Say what a file comes to on this machine now: services, containers, CPUs, all settings, what is missing
    #[command(after_help = "Exit code: 0, or 1 if the agent would not start here, or 2 if the file is wrong.")]
    Show(ShowArgs),
    /// Print a file in which everything is said, with comments
    Example,
}

/// Arguments of `sidelane agent show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The file
    #[command(flatten)]
    pub agent: AgentFile,
    /// Write it here, for programs
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The agent's file.
#[derive(Debug, Args)]
pub struct AgentFile {
    /// The file, as `sidelane agent example` prints one
    #[arg(long, value_name = "FILE", default_value = "sidelane.toml")]
    pub config: PathBuf,
}

/// Arguments of `sidelane agent`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Exit code: 0 after SIGTERM or SIGINT, 1 if the agent cannot go on, 2 if the file is wrong.")]
pub struct AgentArgs {
    /// What to do with the file instead
    #[command(subcommand)]
    pub verb: Option<Agent>,
    /// The agent's file
    #[command(flatten)]
    pub file: AgentFile,
    /// Only say what would be done: nothing is changed
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `sidelane status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sidelane proxy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane proxy --listen :8080 --active 127.0.0.1:9001 --backup 127.0.0.1:9002
  sidelane proxy --listen :8080 --active 127.0.0.1:9001 --backup 127.0.0.1:9002 --hazard jvm-gc,restart
  sidelane proxy --listen :6380 --active 127.0.0.1:6379 --protocol redis

When a hazard of the active server begins, it and the backup change places, and requests in flight that are safe to
repeat are sent to the new active server, too. The first answer counts. GET /.sidelane/tale/NUMBER, with the number of
an answer's field Sidelane-Request, tells what became of a request. Exit code: 0 after SIGTERM or SIGINT.")]
pub struct ProxyArgs {
    /// Where clients come: ADDRESS:PORT, or :PORT for every address of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub listen: SocketAddr,
    /// The server that is asked at first
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub active: SocketAddr,
    /// The server that takes its place [default: none: hazards are only counted]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub backup: Option<SocketAddr>,
    /// What clients and servers speak
    #[arg(long, value_name = "NAME", default_value = "http", value_parser = ["http", "redis"])]
    pub protocol: String,
    /// What is watched for: jvm-gc, safepoint, stopped, throttled, restart; all that can be seen; none
    #[arg(long, value_name = "HAZARDS", default_value = "all")]
    pub hazard: Watched,
    /// When requests are sent to both servers: hazard, timer:TIME (once they have waited for so long), none
    #[arg(long, value_name = "WHEN", default_value = "hazard")]
    pub hedge: Hedge,
    /// Methods or commands that are safe to repeat [default: GET,HEAD,OPTIONS; for redis commands that only read]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub repeat: Vec<String>,
    /// Where requests go that are not safe to repeat: the active server, or always the first, as for a replica
    #[arg(long, value_name = "WHERE", default_value = "active", value_parser = ["active", "first"])]
    pub once_to: String,
    /// How many more requests servers get in the long run, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = parse_percent)]
    pub budget: f64,
    /// How many hedges there may be at once
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub burst: u64,
    /// How many requests warm up a server that comes back
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    pub warm_up: u32,
    /// How often hazards are looked for
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = parse_time)]
    pub poll: Duration,
    /// How long the head of a request may take from its first byte on
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub head_time: Duration,
    /// How long a connection may be silent
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub idle_time: Duration,
    /// How long servers may take to begin an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub answer_time: Duration,
    /// How many clients there may be at once [default: as many as open files allow]
    #[arg(long, value_name = "NUMBER")]
    pub clients: Option<usize>,
    /// Where Prometheus reads
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub metrics: Option<SocketAddr>,
    /// For how long [default: until it is ended]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// Write the summary here, for programs
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl From<ProxyArgs> for ProxyOptions {
    fn from(args: ProxyArgs) -> Self {
        let limits = Limits {
            head_time: args.head_time,
            idle_time: args.idle_time,
            answer_time: args.answer_time,
            clients: args.clients,
            ..Limits::default()
        };
        Self {
            listen: args.listen,
            active: args.active,
            backup: args.backup,
            protocol: if args.protocol == "redis" { Protocol::Redis } else { Protocol::Http },
            hazards: args.hazard,
            hedge: args.hedge,
            repeat: args.repeat,
            unsafe_stay: args.once_to == "first",
            budget_percent: args.budget,
            burst: args.burst,
            warm_up: args.warm_up,
            poll: args.poll,
            limits,
            metrics: args.metrics,
            length: args.length,
        }
    }
}

/// Arguments of `sidelane doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Fewer rounds: ends within 8 s
    #[arg(long)]
    pub quick: bool,
    /// The lane pair to try [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// Write findings and figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Arguments of `sidelane calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if there is a metric and a threshold, 1 if nothing is concluded.")]
pub struct CalibrateArgs {
    /// Fewer and shorter steps
    #[arg(long)]
    pub quick: bool,
    /// The pair of CPUs [default: two SMT siblings, or CPUs 0 and 1]
    #[arg(long, value_name = "ONE:OTHER")]
    pub lanes: Option<String>,
    /// A formula to try, such as 'page-faults / task-clock'; may be repeated [default: this processor's candidates]
    #[arg(long, value_name = "FORMULA")]
    pub events: Vec<String>,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How far a measurement goes on by itself.
#[derive(Clone, Copy, Debug, Args)]
pub struct PatienceArgs {
    /// Fewer and shorter rounds, for a first look: more may stay undecided
    #[arg(long)]
    pub quick: bool,
    /// Go on to so many rounds, however long it takes, while a check is undecided
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
}

impl From<PatienceArgs> for Patience {
    fn from(PatienceArgs { quick, rounds }: PatienceArgs) -> Self {
        Self { quick, rounds }
    }
}

/// What a measurement's exit code says.
const EXIT_CODES: &str = "\
Exit code: 0 if all checks hold, 1 if one is missed, 3 if none is missed but some are undecided: their
95 % intervals contain the bound, and the last line says what would decide it.";

/// Arguments of `sidelane demo`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct DemoArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The lane pair [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// What makes lanes that share no core slow each other [default: built-in; none where they share one]
    #[arg(long, value_name = "HOW", value_enum)]
    pub sibling: Option<Carrier>,
    /// How busy the load keeps the request lane, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(5..=95))]
    pub load: u8,
    /// The batch job: a kernel, or a real compression
    #[arg(long, default_value = "matrix", value_parser = ["loop", "matrix", "flush", "zstd"])]
    pub batch: String,
    /// Directory for result.json and index.html
    #[arg(long, value_name = "DIR", default_value = "sidelane-demo")]
    pub out: PathBuf,
    /// Write the results here too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory that keeps the search index between runs [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The cost of tracking and of holds to the service, and the leak of a long hold
    Hold(PairArgs),
    /// The cost of checks in batch programs, and how fast they nap
    Gate(PairArgs),
    /// How well requests are seen at a service's sockets, and what that costs it
    Requests(PairArgs),
    /// How finely signals are observed, how truly, and what that costs the target
    Observe(ObserveBenchArgs),
    /// How fast lanes sleep, and what each way of sharing a core costs the service and gains
    Lanes(LanesArgs),
    /// What each way of sharing a machine costs services and gains: PerfIso, Holmes, and a gate beside it
    Guard(GuardArgs),
    /// Check on a simulated machine what papers draw from their figures
    Papers(PapersArgs),
    /// Run a scenario for real and simulated, and compare
    Parity(ParityArgs),
    /// How truly two CPUs that are made one core slow each other, and what that costs
    Sibling(SiblingArgs),
}

/// Arguments of the benches that need a pair of lanes, and no more.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PairArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The lane pair to measure on
    #[arg(long, value_name = "REQUEST:BATCH", default_value = "0:1")]
    pub lanes: String,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Arguments of `sidelane bench sibling`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SiblingArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// Two CPUs that share no core [default: CPUs 0 and 1]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory that keeps the search index between runs [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// Where a result goes, besides the terminal.
#[derive(Debug, Args)]
pub struct ResultFiles {
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write them here too, as a page with pictures
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// Arguments of `sidelane bench observe`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ObserveBenchArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The target's lane and the observer's
    #[arg(long, value_name = "TARGET:OBSERVER", default_value = "0:1")]
    pub lanes: String,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench papers`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PapersArgs {
    /// Shorter runs, as the scenarios' [quick] says
    #[arg(long)]
    pub quick: bool,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench parity`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ParityArgs {
    /// The experiment, such as scenarios/parity.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The lane pair [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// What makes lanes that share no core slow each other [default: built-in; none where they share one]
    #[arg(long, value_name = "HOW", value_enum)]
    pub sibling: Option<Carrier>,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory that keeps the search index between runs [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// Arguments of `sidelane requests`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane requests --of port:6379
  sidelane requests --of comm:memcached --for 1s --log requests.jsonl

Requests are seen at the service's TCP sockets, without its help and whatever it speaks: a receive
after a send begins one, the sends that follow are its response. Requests that came together and
were answered together count as one. A service that emits its requests through runtime/c/sidelane.h
is believed instead.")]
pub struct RequestsArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, visible_alias = "of", value_name = "SERVICE")]
    pub service: Target,
    /// For how long; Ctrl-C ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub length: Duration,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
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
    /// Write the list here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Arguments of `sidelane observe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane observe --service pid:1234 --signals lane,request,jvm --for 10s --open
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
    #[arg(long, visible_alias = "target", value_name = "SERVICE", conflicts_with = "command")]
    pub service: Option<Target>,
    /// The signals, several times or with commas between
    #[arg(long = "signal", alias = "signals", value_name = "SIGNAL", value_delimiter = ',')]
    pub signals: Vec<Signal>,
    /// A counter of what the target gets done, for what observing costs it [default: the first one observed]
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
    /// From so long after the first sample on
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_time)]
    pub from: Duration,
    /// Up to so long after the first sample [default: to the end]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<Duration>,
    /// By how many percent the two readings of the clock may differ [default: as it was observed]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub tolerance: Option<f64>,
    /// Where results go
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Where the results of an observation go, besides the terminal.
#[derive(Debug, Args)]
pub struct Outputs {
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
    /// Write a trace for Perfetto here (ui.perfetto.dev); of a log, with each change of a tag
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Open the page when all is done
    #[arg(long)]
    pub open: bool,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("a percentage lies between 0 and 100".into()) }
}

/// Arguments of `sidelane bench lanes`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct LanesArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The lane pair [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// What makes lanes that share no core slow each other [default: built-in; none where they share one]
    #[arg(long, value_name = "HOW", value_enum)]
    pub sibling: Option<Carrier>,
    /// How busy the load keeps the request lane, in percent [default: 10,30,50,70,90]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(5..=95))]
    pub loads: Option<Vec<u8>>,
    /// The batch jobs [default: loop,matrix,flush,zstd]
    #[arg(long, value_name = "JOB", value_delimiter = ',', value_parser = ["loop", "matrix", "flush", "zstd"])]
    pub batches: Option<Vec<String>>,
    /// What searches may take, as in p99=50ms [default: 2.5 times their p99 alone at half load]
    #[arg(long, value_name = "OBJECTIVE", value_parser = parse_objective)]
    pub slo: Option<Objective>,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
    /// Directory that keeps the search index between runs [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// Arguments of `sidelane bench guard`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct GuardArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The lane pair [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// What makes lanes that share no core slow each other [default: built-in; none where they share one]
    #[arg(long, value_name = "HOW", value_enum)]
    pub sibling: Option<Carrier>,
    /// The ways of sharing to measure, besides the stores alone [default: all]
    #[arg(long, value_name = "WAY", value_enum, value_delimiter = ',')]
    pub ways: Option<Vec<Way>>,
    /// From what the agent tells how much services are disturbed
    #[arg(long, value_name = "FROM", value_enum, default_value = "harm")]
    pub interference: Source,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane sim`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane sim scenarios/elfen-fig11.toml --open
  sidelane sim scenarios/elfen-fig11.toml --quick --json fig11.json

The same scenario and seed give the same result on every machine. Nothing is measured, and the result says so.")]
pub struct SimArgs {
    /// The experiment, as in the files of scenarios/
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// In place of the scenario's seed
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// A shorter run, as the scenario's [quick] says
    #[arg(long)]
    pub quick: bool,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
    /// Show the page in the browser
    #[arg(long)]
    pub open: bool,
}

/// Arguments of `sidelane run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane run --service port:6379 -- make -j2
  sidelane run --service pid:1234 --lanes 0:1 -- ./train.py
  sidelane run --service port:8080 --slo p99=100ms -- ./train.py
  sidelane run --service port:6379 --lanes 0:1 --service port:8080 --lanes 2:3 -- make -j2
  sidelane run --service port:6379 --adopt cgroup:/batch.slice/job

Sidelane never ends adopted batch: at Ctrl-C, and if sidelane is killed, each of its processes goes on with the
CPUs, the scheduling class and the groups that it had.

A budget or an objective needs to know the service's requests: they are seen at its TCP sockets, or it
emits them through runtime/c/sidelane.h and is believed instead.

The exit code is the batch command's own, or 0 if batch was adopted and given back; 1 if it could not be started
or adopted, 2 for wrong arguments.")]
pub struct RunArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH; once for each of several
    #[arg(long = "service", visible_alias = "beside", value_name = "SERVICE", required = true)]
    pub services: Vec<Target>,
    /// Request and batch lanes, e.g. 0:1 or 0:1,2:3; once for each service [default: the service's CPUs and their
    /// SMT siblings]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Vec<String>,
    /// Confine the service to its request lanes for the time of the run
    #[arg(long)]
    pub pin_service: bool,
    /// How batch gets off its lane when the service starts
    #[arg(long, value_enum, default_value_t)]
    pub gate: GateChoice,
    /// When batch may run beside a request: borrow-idle, fixed-budget, refresh-budget, dynamic-refresh
    /// or deadline; to compare with, elfen-fixed, elfen-refresh or elfen-dynamic [default: borrow-idle;
    /// with a budget dynamic-refresh; with an objective deadline]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PolicyKind>,
    /// How much later batch may make a request; under deadline, how old a request gets before batch
    /// leaves it
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "slo")]
    pub budget: Option<Duration>,
    /// What requests may take, as in p99=100ms: what batch may cost is what this leaves
    #[arg(long, value_name = "OBJECTIVE", value_parser = parse_objective)]
    pub slo: Option<Objective>,
    /// How long the service must have been idle before batch gets its lane back
    #[arg(long, value_name = "TIME", default_value = "8us", value_parser = parse_time)]
    pub min_idle: Duration,
    /// How long batch may go on after a signal that asks it to end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub grace: Duration,
    /// Write the run's figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write every decision and its reason here, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Batch that runs already, instead of a command: pid:NUMBER or cgroup:/PATH
    #[arg(long, value_name = "BATCH", value_parser = parse_adoptee, conflicts_with = "command")]
    pub adopt: Option<Target>,
    /// The batch command
    #[arg(last = true, required_unless_present = "adopt", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

fn parse_adoptee(text: &str) -> Result<Target, AdoptError> {
    Adoptee::parse(text)
}

impl RunArgs {
    /// How lanes are lent, if the options go together.
    pub fn lending(&self) -> Result<Lending, LendingError> {
        let budget = match (self.budget, self.slo) {
            (Some(budget), _) => Budget::Given(budget.as_nanos() as u64),
            (None, Some(objective)) => Budget::Slo(objective),
            (None, None) => Budget::None,
        };
        let config = BorrowConfig { min_idle_ns: self.min_idle.as_nanos() as u64, ..Default::default() };
        Ok(Lending::new(self.policy, budget, config)?)
    }
}
