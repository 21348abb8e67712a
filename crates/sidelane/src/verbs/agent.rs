//! Implementation of `sidelane agent` and its subcommands.

use std::path::Path;

use anyhow::Result;

use super::EXIT_WRONG_FILE;
use super::show::{check_json_writable, write_json};
use crate::cli::{Agent, AgentArgs, ShowArgs};
use sidelane_agent as agent;
use sidelane_agent::AgentOptions;
use sidelane_agent::config::{Config, EXAMPLE};
use sidelane_agent::show::Shown;
use sidelane_report::terminal::{self, eprint_fitted, print_fitted};

pub(super) fn run_agent(args: AgentArgs) -> Result<u8> {
    let AgentArgs { verb, file, dry_run } = args;
    match verb {
        Some(Agent::Check { file }) => check_agent_file(&file),
        Some(Agent::Show(args)) => show_agent_file(&args),
        Some(Agent::Example) => Ok(terminal::print(EXAMPLE).map(|()| 0)?),
        None => match read_agent_file(&file.config) {
            Some(config) => agent::run(config, AgentOptions { config: file.config, dry_run }),
            None => Ok(EXIT_WRONG_FILE),
        },
    }
}

fn check_agent_file(file: &Path) -> Result<u8> {
    let Some(config) = read_agent_file(file) else { return Ok(EXIT_WRONG_FILE) };
    print_fitted(&format!("{}: {}", file.display(), config.summary()))?;
    Ok(0)
}

fn show_agent_file(args: &ShowArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    let file = &args.agent.config;
    let Some(config) = read_agent_file(file) else { return Ok(EXIT_WRONG_FILE) };
    let shown = Shown::from_machine(file, &config)?;
    write_json(args.json.file.as_deref(), &shown)?;
    terminal::print(&shown.render(terminal::stdout_width(), terminal::should_use_color()))?;
    Ok(shown.exit_code())
}

/// Reads the agent's file. If the file has problems, prints them and returns `None`.
fn read_agent_file(file: &Path) -> Option<Config> {
    Config::load(file).map_err(|problems| eprint_fitted(&problems.to_string())).ok()
}
