//! The `sidelane` command.

use std::process::ExitCode;

use clap::Parser;
use sidelane::cli::{Cli, Verb};
use sidelane::{machine, verbs};
use sidelane_report::terminal::eprint_fitted;

/// The exit code of an error.
const EXIT_FAILURE: u8 = 1;
/// The exit code of an error in a run, whose batch may well end with 1.
const EXIT_OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    machine::begin();
    let verb = Cli::parse().verb;
    // The exit codes of `run` are batch's own but for a few, as with env and timeout.
    let failure = if matches!(verb, Verb::Run(_)) { EXIT_OWN_FAILURE } else { EXIT_FAILURE };
    verbs::dispatch(verb).map(ExitCode::from).unwrap_or_else(|error| {
        eprint_fitted(&format!("sidelane: {error:#}"));
        ExitCode::from(failure)
    })
}
