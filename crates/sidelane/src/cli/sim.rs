//! Arguments of `sidelane sim`.

use std::path::PathBuf;

use clap::Args;

use super::common::ResultFiles;

/// Arguments of `sidelane sim`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane sim lab/scenarios/elfen-fig11.toml --open
  sidelane sim lab/scenarios/elfen-fig11.toml --quick --json fig11.json

The same scenario and seed give the same result on every machine. Nothing is measured, and the result says so.")]
pub struct SimArgs {
    /// The experiment, as in the files of lab/scenarios/
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
