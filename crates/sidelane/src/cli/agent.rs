//! Arguments of the agent's verbs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::JsonFile;

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
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
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
