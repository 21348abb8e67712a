//! Command line of `sidelane`: typed arguments, nothing else.

mod common;
mod compare;
mod completions;
mod doctor;
#[cfg(feature = "full")]
mod full;
mod resolved;
mod run;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, Parser, Subcommand};

pub use common::{EXIT_CODES, EXIT_OWN_FAILURE, JsonFile, ResultFiles, RoundArgs, RunDirectory, TableArgs};
pub use compare::CompareArgs;
pub use completions::{CompletionsArgs, Shell};
pub use doctor::{CalibrateArgs, DoctorArgs};
#[cfg(feature = "full")]
pub use full::{
    Agent, AgentArgs, AgentFile, EstimateArgs, FullVerb, HazardsArgs, HurryArgs, ListArgs, ObserveArgs, Outputs,
    ProxyArgs, ReportArgs, RequestsArgs, ShowArgs, SimArgs, StatusArgs, TopArgs, TraceArgs,
};
pub use resolved::resolved_options;
pub use run::{RunArgs, WhenBlocked};

/// First lines of the help: what most users want.
#[cfg(feature = "full")]
const EXAMPLES: &str = "\
Find out why a service is slow:
  sidelane trace --service port:8080 --for 10s
Run batch while the service is idle:
  sidelane run --service port:8080 -- make -j2";
#[cfg(not(feature = "full"))]
const EXAMPLES: &str = "\
Run batch while the service is idle:
  sidelane run --service port:8080 -- make -j2
Other verbs, such as trace and agent, are in a build with the feature `full`: `make build`.";

/// Returns the arguments of this process, or ends it with what is wrong with them.
pub fn parse_arguments() -> ArgMatches {
    Cli::command().try_get_matches().unwrap_or_else(|mut error| {
        if cfg!(not(feature = "full")) && error.kind() == ErrorKind::InvalidSubcommand {
            let advice = "other verbs, such as trace and agent, are in the build of all verbs: 'make build'";
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        }
        error.exit()
    })
}

/// Run batch work in the idle moments of latency-critical services, on the same cores.
#[derive(Debug, Parser)]
#[command(name = "sidelane", version, arg_required_else_help = true, max_term_width = 100)]
#[command(before_help = EXAMPLES)]
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
    /// Measure whether Sidelane pays off for a service, under the service's own traffic
    Compare(Box<CompareArgs>),
    /// Find the counters that show interference on this processor, and the threshold to use
    Calibrate(CalibrateArgs),
    /// Verbs that a build without the feature `full` lacks
    #[cfg(feature = "full")]
    #[command(flatten)]
    Full(FullVerb),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
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
