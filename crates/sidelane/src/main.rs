//! Entry point of the `sidelane` command.

// The print macros panic if the output was closed; `sidelane_report::terminal` is used instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::FromArgMatches;
use sidelane::cli::{Cli, EXIT_OWN_FAILURE, parse_arguments, resolved_options};
use sidelane::verbs;
use sidelane::verbs::out::RunOutput;
use sidelane_diagnostics::machine;
use sidelane_report::terminal::{Level, eprint_with_level};

fn main() -> ExitCode {
    machine::begin_steal_measurement();
    let matches = parse_arguments();
    let verb = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).verb;
    let output = RunOutput::new(resolved_options(&matches));
    verbs::dispatch(verb, output).map(ExitCode::from).unwrap_or_else(|error| {
        eprint_with_level(Level::Error, &format!("sidelane: {error:#}"));
        ExitCode::from(EXIT_OWN_FAILURE)
    })
}
