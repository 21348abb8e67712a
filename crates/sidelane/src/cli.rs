//! The command line: typed arguments, nothing else.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
    #[command(name = crate::lane::guardian::VERB, hide = true)]
    Guardian { agent_pid: u32 },
    #[command(name = crate::lane::batch::VERB, hide = true)]
    Batch {
        entrance_fd: i32,
        class: String,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Arguments of `sidelane run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane run --beside port:6379 -- make -j2
  sidelane run --beside pid:1234 --lanes 0:1 -- ./train.py

The exit code is the batch command's own; 1 if it could not be started, 2 for wrong arguments.")]
pub struct RunArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub beside: String,
    /// Request and batch lanes, e.g. 0:1 or 0:1,2:3 [default: the service's CPUs and their SMT siblings]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// Confine the service to its request lanes for the time of the run
    #[arg(long)]
    pub pin_service: bool,
    /// Shortest idle moment worth borrowing, e.g. 8us
    #[arg(long, value_name = "TIME")]
    pub min_idle: Option<String>,
    /// How long batch may go on after a signal that asks it to end
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub grace: String,
    /// Write the run's figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write every decision and its reason here, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// The batch command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
