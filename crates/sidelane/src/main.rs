//! Entry point of the `sidelane` command.

// The print macros panic if the output was closed; `sidelane_report::terminal` is used instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use sidelane::cli::{Cli, Verb};
use sidelane::verbs;
use sidelane_diagnostics::machine;
use sidelane_report::terminal::eprint_fitted;

/// Exit code of an error.
const EXIT_FAILURE: u8 = 1;
/// Exit code of an error if 1 has another meaning: batch that ended with 1, or a missed check.
const EXIT_OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    machine::begin_steal_measurement();
    let verb = Cli::parse().verb;
    let has_own_codes = matches!(verb, Verb::Run(_) | Verb::Compare(_));
    let failure = if has_own_codes { EXIT_OWN_FAILURE } else { EXIT_FAILURE };
    verbs::dispatch(verb).map(ExitCode::from).unwrap_or_else(|error| {
        eprint_fitted(&format!("sidelane: {error:#}"));
        ExitCode::from(failure)
    })
}
