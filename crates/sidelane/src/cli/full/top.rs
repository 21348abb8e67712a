//! Arguments of `sidelane top`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `sidelane top`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Watch the agent, or a run:
  sidelane top
Record what is shown:
  sidelane top --record session.jsonl",
    after_help = "Exit code: 0, or 125 without a terminal, without an agent and a run, or for a wrong recording."
)]
pub struct TopArgs {
    /// Recording to show
    #[arg(value_name = "FILE", conflicts_with = "record")]
    pub replay: Option<PathBuf>,
    /// Write what is shown to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}
