//! The command line: typed arguments, nothing else.

mod agent;
mod common;
mod compare;
mod doctor;
mod hurry;
mod look;
mod proxy;
mod run;
mod sim;
mod trace;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

pub use agent::{Agent, AgentArgs, AgentFile, ShowArgs, StatusArgs};
pub use common::{EXIT_CODES, JsonFile, ResultFiles, RoundArgs, TableArgs};
pub use compare::CompareArgs;
pub use doctor::{CalibrateArgs, DoctorArgs};
pub use hurry::HurryArgs;
pub use look::{ListArgs, ObserveArgs, Outputs, ReportArgs, RequestsArgs};
pub use proxy::ProxyArgs;
pub use run::{RunArgs, WhenBlocked};
pub use sim::SimArgs;
pub use trace::TraceArgs;

/// Run batch work in the idle moments of latency-critical services, on the same cores.
#[derive(Debug, Parser)]
#[command(name = "sidelane", version, arg_required_else_help = true, max_term_width = 100)]
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
    /// Say whether Sidelane is worth it for a service of yours, under its own traffic
    Compare(Box<CompareArgs>),
    /// Find out which counters tell interference on this processor, and from which value on
    Calibrate(CalibrateArgs),
    /// Look at a service's requests: how many, how long, how many waited
    Requests(RequestsArgs),
    /// Say what can be observed of a service: its signals, and where they are found
    List(ListArgs),
    /// Look at signals of running programs through a microscope: tags, counters and rates
    Observe(ObserveArgs),
    /// Say why a service's requests are slow, request by request, and what to do about it
    Trace(TraceArgs),
    /// Show an observation or a trace again, from the log that `sidelane observe` or `trace` wrote
    Report(ReportArgs),
    /// Run an experiment on a simulated machine, with the same policies
    Sim(SimArgs),
    /// Proxy requests to a server, and to its backup while the server is in a GC pause, throttled, stopped or restarting
    Proxy(Box<ProxyArgs>),
    /// Move a service's long-running requests to big cores, on a machine with big and little ones
    Hurry(HurryArgs),
    /// Share the whole machine between services and batch containers, by what a file says
    Agent(AgentArgs),
    /// Say what runs where and why, from the running agent
    Status(StatusArgs),
    /// What Sidelane starts of its own program
    #[command(flatten)]
    Internal(Internal),
}

/// What Sidelane starts of its own program: every program that runs sessions has these.
#[derive(Debug, Subcommand)]
pub enum Internal {
    /// Put the machine right when the agent dies (not for users)
    #[command(name = sidelane_rollback::guardian::VERB, hide = true)]
    Guardian {
        /// The agent's process id.
        agent_pid: u32,
        /// The ring that tells of halts of the agent.
        bell_fd: Option<i32>,
    },
    /// Run as batch that checks its lane, to measure the gate (not for users)
    #[command(name = sidelane_doctor::reaction::instrumented::VERB, hide = true)]
    Checks,
    /// Wait at the gate and become the batch command (not for users)
    #[command(name = sidelane_lanes::batch::VERB, hide = true)]
    Batch {
        /// Where the gate is.
        entrance_fd: i32,
        /// `idle`, `ext` or `ordinary`.
        class: String,
        /// Give up the rights by which the command could run before others.
        #[arg(long)]
        without_rights: bool,
        /// The batch command.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}
