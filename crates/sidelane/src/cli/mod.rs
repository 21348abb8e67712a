//! Command line of `sidelane`: typed arguments, nothing else.

mod agent;
mod common;
mod compare;
mod completions;
mod doctor;
mod estimate;
mod hazards;
mod hurry;
mod look;
mod proxy;
mod resolved;
mod run;
mod sim;
mod top;
mod trace;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

pub use agent::{Agent, AgentArgs, AgentFile, ShowArgs, StatusArgs};
pub use common::{EXIT_CODES, JsonFile, ResultFiles, RoundArgs, RunDirectory, TableArgs};
pub use compare::CompareArgs;
pub use completions::{CompletionsArgs, Shell};
pub use doctor::{CalibrateArgs, DoctorArgs};
pub use estimate::EstimateArgs;
pub use hazards::HazardsArgs;
pub use hurry::HurryArgs;
pub use look::{ListArgs, ObserveArgs, Outputs, ReportArgs, RequestsArgs};
pub use proxy::ProxyArgs;
pub use resolved::resolved_options;
pub use run::{RunArgs, WhenBlocked};
pub use sim::SimArgs;
pub use top::TopArgs;
pub use trace::TraceArgs;

/// Run batch work in the idle moments of latency-critical services, on the same cores.
#[derive(Debug, Parser)]
#[command(name = "sidelane", version, arg_required_else_help = true, max_term_width = 100)]
#[command(before_help = "\
Find out why a service is slow:
  sidelane trace --service port:8080 --for 10s
Run batch while the service is idle:
  sidelane run --service port:8080 -- make -j2")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Verbs of the `sidelane` command.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a batch command while the service is idle
    Run(RunArgs),
    /// Check what this machine supports, and measure how fast batch leaves a lane
    Doctor(DoctorArgs),
    /// Find out what batch would get beside a service, and what requests would pay, without changing anything
    Estimate(EstimateArgs),
    /// Measure whether Sidelane pays off for a service, under the service's own traffic
    Compare(Box<CompareArgs>),
    /// Find the counters that show interference on this processor, and the threshold to use
    Calibrate(CalibrateArgs),
    /// Measure a service's requests: number, latency, server time and queueing
    Requests(RequestsArgs),
    /// List the signals of a service, and where they are found
    List(ListArgs),
    /// Read signals of running programs as fast as the caches allow: tags, counters and rates
    Observe(ObserveArgs),
    /// Find out why a service's requests are slow, request by request, and what to do about it
    Trace(TraceArgs),
    /// Compare runs that --out has kept, or show an observation or a trace again from its log
    Report(ReportArgs),
    /// Run an experiment on a simulated machine, with the same policies
    Sim(SimArgs),
    /// Proxy requests to a server, and to its backup while the server is in a GC pause, throttled, stopped or restarting
    Proxy(Box<ProxyArgs>),
    /// Drain servers in HAProxy, or tell other programs, while a server is in a GC pause, throttled, stopped or
    /// restarting
    Hazards(HazardsArgs),
    /// Move a service's long-running requests to big cores, on a machine with big and little ones
    Hurry(HurryArgs),
    /// Share the machine between services and batch containers, as a file says
    Agent(AgentArgs),
    /// Show what runs where and why, from the running agent
    Status(StatusArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Watch lanes, services and batch live, from the running agent or a run
    Top(TopArgs),
    /// Verbs that Sidelane itself starts
    #[command(flatten)]
    Internal(Internal),
}

/// Verbs that Sidelane itself starts: every program that runs sessions has these.
#[derive(Debug, Subcommand)]
pub enum Internal {
    /// Undo all changes to the machine when Sidelane dies (not for users)
    #[command(name = sidelane_rollback::guardian::VERB, hide = true)]
    Guardian {
        /// Process id of the Sidelane that it guards.
        agent_pid: u32,
        /// Descriptor of the ring that reports when that process is halted.
        halt_fd: Option<i32>,
    },
    /// Run as batch that checks its lane, to measure the gate (not for users)
    #[command(name = sidelane_doctor::reaction::instrumented::VERB, hide = true)]
    Checks,
    /// Wait at the gate and become the batch command (not for users)
    #[command(name = sidelane_lanes::batch::VERB, hide = true)]
    Batch {
        /// Descriptor of the gate.
        entrance_fd: i32,
        /// `idle`, `ext` or `ordinary`.
        class: String,
        /// Give up the rights by which the command could preempt other threads.
        #[arg(long)]
        without_rights: bool,
        /// The batch command.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}
