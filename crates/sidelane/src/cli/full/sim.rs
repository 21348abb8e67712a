//! Arguments of `sidelane sim`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::common::{ResultFiles, RunDirectory};

/// Arguments of `sidelane sim`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Run an experiment, and open its page:
  sidelane sim lab/scenarios/elfen-fig11.toml --open
Run a shorter one, and keep the figures:
  sidelane sim lab/scenarios/elfen-fig11.toml --quick --json fig11.json",
    after_help = "\
The same scenario and seed give the same result on every machine. Nothing is measured, and the result says so."
)]
pub struct SimArgs {
    /// The experiment, as in the files of lab/scenarios/
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Seed of all random numbers [default: the scenario's]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Run the shorter variant that `[quick]` of the scenario describes
    #[arg(long)]
    pub quick: bool,
    /// Files of the results
    #[command(flatten)]
    pub files: ResultFiles,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
    /// Open the page in the browser at the end
    #[arg(long)]
    pub open: bool,
}
