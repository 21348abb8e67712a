//! Completions for shells, from the definition of the command line.

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::{generate, shells};

use crate::cli::{Cli, CompletionsArgs, Shell};
use sidelane_report::terminal::print;

/// Name of the command that is completed.
const NAME: &str = "sidelane";

pub(super) fn print_completions(args: CompletionsArgs) -> Result<u8> {
    print(&completions(args.shell))?;
    Ok(0)
}

/// Returns the completions of `sidelane` for a shell, without hidden verbs.
pub fn completions(shell: Shell) -> String {
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    // clap completes hidden verbs too, and cannot remove a verb from a command.
    let mut shown = Command::new(NAME).version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let mut script = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut shown, NAME, &mut script),
        Shell::Fish => generate(shells::Fish, &mut shown, NAME, &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut shown, NAME, &mut script),
    }
    String::from_utf8_lossy(&script).into_owned()
}
