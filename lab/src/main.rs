//! Entry point of the command `sidelane-lab`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use sidelane_diagnostics::machine;
use sidelane_lab::cli::{Cli, Verb};
use sidelane_lab::{this_run, verbs};
use sidelane_report::terminal::eprint_fitted;

/// Exit code of an error for most verbs.
const EXIT_FAILURE: u8 = 1;
/// Exit code of an error for verbs whose exit code 1 means that a check was missed.
const EXIT_OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    machine::begin_steal_measurement();
    let verb = Cli::parse().verb;
    let measures = matches!(verb, Verb::Demo(_) | Verb::Bench(_));
    if measures {
        this_run::record_run();
    }
    let failure = if measures { EXIT_OWN_FAILURE } else { EXIT_FAILURE };
    verbs::dispatch(verb).map(ExitCode::from).unwrap_or_else(|error| {
        eprint_fitted(&format!("sidelane-lab: {error:#}"));
        ExitCode::from(failure)
    })
}
