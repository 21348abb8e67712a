//! Command-line options that several verbs have.

use std::path::{Path, PathBuf};

use clap::Args;
use sidelane_report::Detail;

use sidelane_stats::rounds::RoundOptions;

/// Number of rounds of a measurement.
#[derive(Clone, Copy, Debug, Args)]
pub struct RoundArgs {
    /// Measure fewer and shorter rounds, for a first look: more checks may stay undecided
    #[arg(long)]
    pub quick: bool,
    /// Go on up to this number of rounds while a check is undecided, without a time limit
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
}

impl From<RoundArgs> for RoundOptions {
    fn from(RoundArgs { quick, rounds }: RoundArgs) -> Self {
        Self { quick, rounds }
    }
}

/// Exit code if Sidelane itself cannot do what it was asked: the service, the machine or a file does not allow it. Codes
/// below are verdicts, or the batch command's own.
pub const EXIT_OWN_FAILURE: u8 = 125;

/// Exit codes of a measurement.
pub const EXIT_CODES: &str = "\
Exit code: 0 if all checks hold. 1 if one is missed. 3 if none is missed and some are undecided: their 95 % \
intervals contain the bound, and the last line says what would decide it. 125 if nothing could be measured.";

/// File of a result for programs.
#[derive(Debug, Default, Args)]
pub struct JsonFile {
    /// Write the results to this file, as JSON
    #[arg(id = "json", long = "json", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Directory of a run, which `sidelane report` compares with others.
#[derive(Debug, Default, Args)]
pub struct RunDirectory {
    /// Keep the run in this new directory: options, machine, result and decisions; sidelane report compares such runs
    #[arg(id = "out", long = "out", value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Files of a result.
#[derive(Debug, Default, Args)]
pub struct ResultFiles {
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// Write the results to this file, as a page with pictures
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
}

impl ResultFiles {
    /// Returns the paths of all files that the user has asked for.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.json.file, &self.page, &self.table.csv].into_iter().filter_map(|path| path.as_deref())
    }
}

/// Arguments that say how much of a result the terminal shows.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DetailArgs {
    /// Show everything: each row, and all histograms
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Show only what was found and what failed, without tables
    #[arg(short, long)]
    pub quiet: bool,
}

impl From<DetailArgs> for Detail {
    fn from(DetailArgs { verbose, quiet }: DetailArgs) -> Self {
        match (verbose, quiet) {
            (true, _) => Detail::All,
            (_, true) => Detail::Quiet,
            _ => Detail::Usual,
        }
    }
}

/// File of a result's tables, and how much of them the terminal shows.
#[derive(Debug, Default, Args)]
pub struct TableArgs {
    /// Write the tables to this file, as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// How much the terminal shows
    #[command(flatten)]
    pub detail: DetailArgs,
}

/// Parses a share in percent, with a `%` sign at its end: values have units, as in the agent's file.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "it is no percentage; write a number from 0 to 100 and %, as in 5%".to_owned())
}
