//! The command line: the demo, the benches, and the programs that they start.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use sidelane::cli::{Internal, JsonFile, TableArgs};

use crate::experiment::sibling::SlowdownMechanism;

/// Sidelane's laboratory: what it costs, leaks and gains, measured on this machine.
#[derive(Debug, Parser)]
#[command(name = "sidelane-lab", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// Verb that the user chose.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a search service and a batch job on one core, with and without Sidelane, and compare
    Demo(DemoArgs),
    /// Measure what Sidelane itself costs, leaks and gains on this machine
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(crate::bench::cli::Bench),
    /// Make the page of the results files in a folder
    #[cfg(feature = "bench")]
    Results(crate::bench::cli::ResultsArgs),
    /// The programs that experiments run
    #[command(flatten)]
    Program(sidelane_programs::LabCommand),
    /// Verbs that Sidelane itself starts
    #[command(flatten)]
    Internal(Internal),
}

impl Verb {
    /// Returns whether the verb measures something on this machine.
    pub fn measures(&self) -> bool {
        match self {
            Verb::Demo(_) => true,
            #[cfg(feature = "bench")]
            Verb::Bench(_) => true,
            _ => false,
        }
    }
}

/// Options of the core on which an experiment measures, and of its emulation.
#[derive(Debug, Args)]
pub struct CoreArgs {
    /// The lane pair [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// What makes lanes that share no core slow each other [default: built-in; none where they share one]
    #[arg(long, value_name = "HOW", value_enum)]
    pub sibling: Option<SlowdownMechanism>,
}

/// Option for the folder of the search index.
#[derive(Debug, Args)]
pub struct CacheDir {
    /// Directory that keeps the search index between runs [default: the user's cache directory]
    #[arg(id = "cache", long = "cache", value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `sidelane-lab demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 if it ran, 125 if nothing could be measured, 130 after Ctrl-C. With --check: 0 if all checks hold, 1 if one \
is missed, 3 if none is missed but some are undecided.")]
pub struct DemoArgs {
    /// Exit with the verdict of the checks, after longer runs, with bounds and a load that do not depend on this machine
    #[arg(long)]
    pub check: bool,
    /// Go on up to this number of rounds while a check is undecided, without a time limit
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// Options of the core and its emulation.
    #[command(flatten)]
    pub core: CoreArgs,
    /// How busy the load keeps the request lane, in percent [default: 50, or 30 on a noisy machine]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=95))]
    pub load: Option<u8>,
    /// The batch job: a kernel, or a real compression
    #[arg(long, default_value = "matrix", value_parser = ["loop", "matrix", "flush", "zstd"])]
    pub batch: String,
    /// Directory for result.json and index.html
    #[arg(long, value_name = "DIR", default_value = "sidelane-demo")]
    pub out: PathBuf,
    /// Option for the JSON file of the results.
    #[command(flatten)]
    pub json: JsonFile,
    /// Options of the printed tables.
    #[command(flatten)]
    pub table: TableArgs,
    /// Folder of the search index.
    #[command(flatten)]
    pub cache: CacheDir,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
