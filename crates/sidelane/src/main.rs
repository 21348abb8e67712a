//! The `sidelane` command.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use sidelane::cli::{Cli, RunArgs, Verb};
use sidelane::lane::batch::{self, BatchClass};
use sidelane::lane::{guardian, run};

fn main() -> ExitCode {
    match dispatch(Cli::parse().verb) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("sidelane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Run(args) => run_beside(args),
        Verb::Guardian { agent_pid } => Ok(guardian::main(agent_pid).map(|()| 0)?),
        Verb::Batch { entrance_fd, class, command } => {
            let class = if class == "idle" { BatchClass::Idle } else { BatchClass::Ordinary };
            Ok(batch::main(entrance_fd, class, &command) as u8)
        }
    }
}

fn run_beside(args: RunArgs) -> Result<u8> {
    let options = run::RunOptions {
        target: args.beside.parse()?,
        lanes: args.lanes,
        pin_service: args.pin_service,
        policy: Default::default(),
        audit: args.audit,
        grace: Duration::from_secs(10),
        command: args.command,
    };
    let (outcome, summary) = run::run(options)?;
    eprint!("{summary}");
    Ok(outcome.exit_code() as u8)
}
