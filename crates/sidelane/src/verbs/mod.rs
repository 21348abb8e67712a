//! Implementation of the verbs: each passes the options to the crate that does the work, and writes and prints its
//! result.

mod agent;
pub mod completions;
mod doctor;
mod estimate;
mod hurry;
mod look;
pub mod out;
pub mod privileges;
mod run;
pub mod show;
mod trace;

use std::path::Path;

use anyhow::Result;

use crate::cli::{HazardsArgs, Internal, ProxyArgs, SimArgs, Verb};
use out::RunOutput;
use show::{FirstError, check_files_writable, check_json_writable, style, write_and_open_page, write_json};
use sidelane_agent::status;
use sidelane_agent::status::StatusOptions;
use sidelane_doctor::reaction::instrumented;
use sidelane_hazards::run as hazards;
use sidelane_lanes::batch;
use sidelane_lanes::batch::BatchClass;
use sidelane_proxy::run as proxy;
use sidelane_report::terminal::{eprint_fitted, print, print_fitted};
use sidelane_report::{Column, table};
use sidelane_rollback::own_threads::ServiceRelation;
use sidelane_rollback::{guardian, own_threads};
use sidelane_sim::run::SimOptions;
use sidelane_sim::{Choices, run as sim};
use sidelane_top as top;
use sidelane_top::TopOptions;

/// Exit code if Sidelane itself cannot do what it was asked: the service, the machine or a file does not allow it. Codes
/// below are verdicts, or the batch command's own.
pub const EXIT_OWN_FAILURE: u8 = 125;

/// Runs a verb, and returns its exit code.
pub fn dispatch(verb: Verb, output: RunOutput) -> Result<u8> {
    privileges::give_up_capabilities(&verb);
    treatment_of_service_cpus(&verb).into_iter().for_each(own_threads::start_placing);
    let outcome = run_verb(verb, &output);
    output.end(outcome)
}

fn run_verb(verb: Verb, output: &RunOutput) -> Result<u8> {
    match verb {
        Verb::Run(args) => run::run_batch(args, output),
        Verb::Doctor(args) => doctor::run_doctor(args, output),
        Verb::Estimate(args) => estimate::run_estimate(args, output),
        Verb::Compare(args) => run::run_compare(*args, output),
        Verb::Calibrate(args) => doctor::run_calibrate(args, output),
        Verb::Requests(args) => look::watch_requests(args, output),
        Verb::List(args) => look::run_list(args),
        Verb::Proxy(args) => run_proxy(*args, output),
        Verb::Hazards(args) => run_hazards(args),
        Verb::Observe(args) => look::observe(args, output),
        Verb::Trace(args) => trace::trace(args, output),
        Verb::Report(args) => look::run_report(args, output),
        Verb::Sim(args) => simulate(args, output),
        Verb::Hurry(args) => hurry::run_hurry(args, output),
        Verb::Agent(args) => agent::run_agent(args),
        Verb::Status(args) => status::run(StatusOptions { json: args.json }),
        Verb::Completions(args) => completions::print_completions(args),
        Verb::Top(args) => top::run(TopOptions { replay: args.replay, record: args.record }),
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
        Internal::Checks => instrumented::check_lane_forever(),
        Internal::Batch { entrance_fd, class, without_rights, command } => {
            Ok(batch::main(entrance_fd, BatchClass::from_name(&class), without_rights, &command) as u8)
        }
    }
}

/// Returns how the verb treats the CPUs of the services that it names. Returns `None` for verbs that name no services,
/// start their own, or place all threads themselves for a measurement.
fn treatment_of_service_cpus(verb: &Verb) -> Option<ServiceRelation> {
    match verb {
        Verb::Trace(_) | Verb::Requests(_) | Verb::Observe(_) | Verb::List(_) | Verb::Estimate(_) => {
            Some(ServiceRelation::Observes)
        }
        Verb::Run(_) | Verb::Compare(_) | Verb::Hurry(_) | Verb::Proxy(_) | Verb::Hazards(_) | Verb::Agent(_) => {
            Some(ServiceRelation::ActsFor)
        }
        Verb::Doctor(_)
        | Verb::Calibrate(_)
        | Verb::Report(_)
        | Verb::Sim(_)
        | Verb::Status(_)
        | Verb::Completions(_)
        | Verb::Top(_)
        | Verb::Internal(_) => None,
    }
}

fn run_proxy(args: ProxyArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    output.begin(&args.out)?;
    let json = args.json.file.clone();
    let logs_to_stdout = args.access_log.as_deref() == Some(Path::new(proxy::STDOUT));
    let summary = proxy::run(args.into())?;
    let mut failed = FirstError::default();
    failed.keep_error(write_json(json.as_deref(), &summary));
    failed.keep_error(output.keep(&summary.to_result()));
    match logs_to_stdout {
        true => eprint_fitted(summary.to_string().trim_end()),
        false => failed.keep_error(print_fitted(&summary.to_string())),
    }
    failed.into_result(0)
}

fn run_hazards(args: HazardsArgs) -> Result<u8> {
    let summary = hazards::run(args.into())?;
    print_fitted(&summary.to_string())?;
    Ok(0)
}

fn simulate(args: SimArgs, output: &RunOutput) -> Result<u8> {
    check_files_writable(&args.files)?;
    output.begin(&args.out)?;
    let choices = Choices { seed: args.seed, quick: args.quick };
    let simulated = match sim::run(&SimOptions { scenario: args.scenario, choices }) {
        Ok(simulated) => simulated,
        Err(error) => {
            eprint_fitted(&format!("sidelane: {error}"));
            return Ok(EXIT_OWN_FAILURE);
        }
    };
    let result = &simulated.result;
    let mut failed = FirstError::default();
    failed.keep_error(args.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(output.keep(result));
    let shown = |column: &Column| simulated.shows_column(&column.key);
    failed.keep_error(args.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    failed.keep_error(print(&table::render_tables(result, shown, style(&args.files.table))));
    failed.keep_error(write_and_open_page(result, args.files.page, args.open.then_some("sidelane-sim.html")));
    failed.into_result(result.exit_code())
}
