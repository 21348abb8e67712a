//! Entry point of the command `sidelane-lab`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use sidelane::cli::EXIT_OWN_FAILURE;
use sidelane_diagnostics::machine;
use sidelane_lab::cli::Cli;
use sidelane_lab::{interrupt, this_run, verbs};
use sidelane_report::terminal::eprint_fitted;

fn main() -> ExitCode {
    machine::begin_steal_measurement();
    let verb = Cli::parse().verb;
    if verb.measures() {
        this_run::record_run();
    }
    verbs::dispatch(verb).map(ExitCode::from).unwrap_or_else(|error| match interrupt::exit_code() {
        // Programs of the measurement got Ctrl-C too, so any error may be its result.
        Some(code) => {
            eprint_fitted("sidelane-lab: ended early; all changes are undone");
            ExitCode::from(code)
        }
        None => {
            eprint_fitted(&format!("sidelane-lab: {error:#}"));
            ExitCode::from(EXIT_OWN_FAILURE)
        }
    })
}
