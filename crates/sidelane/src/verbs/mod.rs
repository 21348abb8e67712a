//! Implementation of the verbs: each passes the options to the crate that does the work, and writes and prints its
//! result.

mod agent;
mod doctor;
mod hurry;
mod look;
mod run;
pub mod show;
mod trace;

use std::path::Path;

use anyhow::Result;

use crate::cli::{Internal, ProxyArgs, SimArgs, Verb};
use show::{FirstError, check_files, check_json, style, write_and_open, write_json};
use sidelane_agent::status;
use sidelane_agent::status::StatusOptions;
use sidelane_doctor::reaction::instrumented;
use sidelane_lanes::batch;
use sidelane_lanes::batch::BatchClass;
use sidelane_proxy::run as proxy;
use sidelane_report::terminal::{eprint_fitted, print, print_fitted};
use sidelane_report::{Column, table};
use sidelane_rollback::own_threads::Manner;
use sidelane_rollback::{guardian, own_threads};
use sidelane_sim::run::SimOptions;
use sidelane_sim::{Choices, run as sim};

/// Exit code for a wrong file in an argument: a scenario, or an agent's file.
const EXIT_WRONG_FILE: u8 = 2;

/// Runs a verb, and returns its exit code.
pub fn dispatch(verb: Verb) -> Result<u8> {
    manner(&verb).into_iter().for_each(own_threads::begin);
    match verb {
        Verb::Run(args) => run::run_beside(args),
        Verb::Doctor(args) => doctor::examine(args),
        Verb::Compare(args) => run::weigh(*args),
        Verb::Calibrate(args) => doctor::find_metric(args),
        Verb::Requests(args) => look::watch_requests(args),
        Verb::List(args) => look::list_of(args),
        Verb::Proxy(args) => pass_on(*args),
        Verb::Observe(args) => look::observe(args),
        Verb::Trace(args) => trace::trace(args),
        Verb::Report(args) => look::report_again(args),
        Verb::Sim(args) => simulate(args),
        Verb::Hurry(args) => hurry::hurry_up(args),
        Verb::Agent(args) => agent::run_agent(args),
        Verb::Status(args) => status::run(StatusOptions { json: args.json }),
        Verb::Internal(internal) => run_internal(internal),
    }
}

/// Runs a hidden verb by which Sidelane starts itself, and returns its exit code.
///
/// # Errors
/// Fails with the error of the step that failed.
pub fn run_internal(internal: Internal) -> Result<u8> {
    match internal {
        Internal::Guardian { agent_pid, halt_fd } => Ok(guardian::main(agent_pid, halt_fd).map(|()| 0)?),
        Internal::Checks => instrumented::check_for_ever(),
        Internal::Batch { entrance_fd, class, without_rights, command } => {
            Ok(batch::main(entrance_fd, BatchClass::of_name(&class), without_rights, &command) as u8)
        }
    }
}

/// Returns how the verb treats the CPUs of the services that it names. Returns `None` for verbs that name no services,
/// start their own, or place all threads themselves for a measurement.
fn manner(verb: &Verb) -> Option<Manner> {
    match verb {
        Verb::Trace(_) | Verb::Requests(_) | Verb::Observe(_) | Verb::List(_) => Some(Manner::Looks),
        Verb::Run(_) | Verb::Compare(_) | Verb::Hurry(_) | Verb::Proxy(_) | Verb::Agent(_) => Some(Manner::Acts),
        Verb::Doctor(_) | Verb::Calibrate(_) | Verb::Report(_) | Verb::Sim(_) | Verb::Status(_) | Verb::Internal(_) => {
            None
        }
    }
}

fn pass_on(args: ProxyArgs) -> Result<u8> {
    check_json(&args.json)?;
    let json = args.json.file.clone();
    let logs_to_stdout = args.access_log.as_deref() == Some(Path::new(proxy::STDOUT));
    let summary = proxy::run(args.into())?;
    let mut failed = FirstError::default();
    failed.of(write_json(json.as_deref(), &summary));
    match logs_to_stdout {
        true => eprint_fitted(summary.to_string().trim_end()),
        false => failed.of(print_fitted(&summary.to_string())),
    }
    failed.or(0)
}

fn simulate(args: SimArgs) -> Result<u8> {
    check_files(&args.files)?;
    let choices = Choices { seed: args.seed, quick: args.quick };
    let simulated = match sim::run(&SimOptions { scenario: args.scenario, choices }) {
        Ok(simulated) => simulated,
        Err(error) => {
            eprint_fitted(&format!("sidelane: {error}"));
            return Ok(EXIT_WRONG_FILE);
        }
    };
    let result = &simulated.result;
    let mut failed = FirstError::default();
    failed.of(args.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    let shown = |column: &Column| simulated.shows(&column.key);
    failed.of(args.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    failed.of(print(&table::render_tables(result, shown, style(&args.files.table))));
    failed.of(write_and_open(result, args.files.page, args.open.then_some("sidelane-sim.html")));
    failed.or(result.exit_code())
}
