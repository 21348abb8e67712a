//! Arguments of the agent's verbs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::common::JsonFile;

/// Verbs for the agent's file.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Report everything that is wrong with a file: each line, and what to do
    #[command(
        before_help = "\
Check the file in this directory:
  sidelane agent check sidelane.toml
Check another file:
  sidelane agent check /etc/sidelane.toml",
        after_help = "Exit code: 0 if nothing is wrong with the file, else 1."
    )]
    Check {
        /// The file
        file: PathBuf,
    },
    /// Show what a file means on this machine now: services, containers, CPUs, all settings, what is missing
    #[command(
        before_help = "\
Show what sidelane.toml means on this machine:
  sidelane agent show
Show it as JSON, for another file:
  sidelane agent show --config /etc/sidelane.toml --json show.json",
        after_help = "Exit code: 0 if the agent would start here, 1 if it would not, 125 if the file is wrong."
    )]
    Show(ShowArgs),
    /// Print a file that has every key, with comments
    #[command(before_help = "\
Read about all keys:
  sidelane agent example
Begin a file of your own:
  sidelane agent example >sidelane.toml")]
    Example,
}

/// Arguments of `sidelane agent show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The file
    #[command(flatten)]
    pub agent: AgentFile,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
}

/// The agent's file.
#[derive(Debug, Args)]
pub struct AgentFile {
    /// The file; `sidelane agent example` prints one
    #[arg(long, value_name = "FILE", default_value = "sidelane.toml")]
    pub config: PathBuf,
}

/// Arguments of `sidelane agent`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    before_help = "\
See what the agent would do with sidelane.toml:
  sidelane agent --dry-run
Start the agent:
  sidelane agent --config /etc/sidelane.toml",
    after_help = "Exit code: 0 after SIGTERM or SIGINT, 125 if the agent cannot start or go on."
)]
pub struct AgentArgs {
    /// Other verbs for the file
    #[command(subcommand)]
    pub verb: Option<Agent>,
    /// The agent's file
    #[command(flatten)]
    pub file: AgentFile,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `sidelane status`.
#[derive(Debug, Args)]
#[command(before_help = "\
Show what runs where, and why:
  sidelane status
Print it as JSON, for programs:
  sidelane status --json")]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
