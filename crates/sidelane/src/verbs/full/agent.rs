//! Implementation of `sidelane agent` and its subcommands.

use std::path::Path;

use anyhow::Result;

use crate::cli::{Agent, AgentArgs, EXIT_OWN_FAILURE, ShowArgs};
use crate::verbs::show::{check_json_writable, write_json};
use sidelane_agent as agent;
use sidelane_agent::AgentOptions;
use sidelane_agent::config::{Config, EXAMPLE};
use sidelane_agent::show::Shown;
use sidelane_report::terminal::{self, Level, eprint_with_level, print_fitted};

/// Exit code of `agent check` if it finds something wrong.
const EXIT_WRONG_FILE: u8 = 1;

pub(super) fn run_agent(args: AgentArgs) -> Result<u8> {
    let AgentArgs { verb, file, dry_run } = args;
    match verb {
        Some(Agent::Check { file }) => check_agent_file(&file),
        Some(Agent::Show(args)) => show_agent_file(&args),
        Some(Agent::Example) => Ok(terminal::print(EXAMPLE).map(|()| 0)?),
        None => match read_agent_file(&file.config) {
            Some(config) => agent::run(config, AgentOptions { config: file.config, dry_run }),
            None => Ok(EXIT_OWN_FAILURE),
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
    let Some(config) = read_agent_file(file) else { return Ok(EXIT_OWN_FAILURE) };
    let shown = Shown::from_machine(file, &config)?;
    write_json(args.json.file.as_deref(), &shown)?;
    terminal::print(&shown.render(terminal::stdout_width(), terminal::should_use_color()))?;
    Ok(shown.exit_code())
}

/// Reads the agent's file. If the file has problems, prints them and returns `None`.
fn read_agent_file(file: &Path) -> Option<Config> {
    Config::load(file).map_err(|problems| eprint_with_level(Level::Error, &problems.to_string())).ok()
}
