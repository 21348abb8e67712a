//! Arguments of `sidelane doctor` and `calibrate`.

use clap::Args;

use super::common::{JsonFile, RunDirectory, TableArgs};

/// Arguments of `sidelane doctor`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Check this machine, in half a minute:
  sidelane doctor
Check it in 8 s, and show every finding:
  sidelane doctor --quick -v",
    after_help = "Exit code: 0 if `sidelane run` would work here, 1 if not."
)]
pub struct DoctorArgs {
    /// Measure fewer rounds: ends within 8 s
    #[arg(long)]
    pub quick: bool,
    /// The lane pair to try [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// Show all findings, and how fast batch leaves a lane by each gate
    #[arg(short, long)]
    pub verbose: bool,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
}

/// Arguments of `sidelane calibrate`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Find a metric and a threshold for this processor:
  sidelane calibrate --quick
Try a formula of your own:
  sidelane calibrate --events 'page-faults / task-clock'",
    after_help = "Exit code: 0 if a metric and a threshold were found, 1 if not, 125 if nothing could be measured."
)]
pub struct CalibrateArgs {
    /// Measure fewer and shorter steps
    #[arg(long)]
    pub quick: bool,
    /// The pair of CPUs [default: two SMT siblings, or CPUs 0 and 1]
    #[arg(long, value_name = "ONE:OTHER")]
    pub lanes: Option<String>,
    /// A formula to try, such as 'page-faults / task-clock'; may be repeated [default: this processor's candidates]
    #[arg(long, value_name = "FORMULA")]
    pub events: Vec<String>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
}
