//! Implementation of the verbs that a build without the feature `full` lacks.

mod agent;
mod estimate;
mod hurry;
mod look;
mod runs;
mod trace;

use std::path::Path;

use anyhow::Result;

use super::out::RunOutput;
use super::show::{FirstError, check_files_writable, check_json_writable, style, write_and_open_page, write_json};
use crate::cli::{EXIT_OWN_FAILURE, FullVerb, HazardsArgs, ProxyArgs, SimArgs};
use sidelane_agent::status;
use sidelane_agent::status::StatusOptions;
use sidelane_hazards::run as hazards;
use sidelane_proxy::run as proxy;
use sidelane_report::terminal::{eprint_fitted, print, print_fitted};
use sidelane_report::{Column, table};
use sidelane_rollback::own_threads::ServiceRelation;
use sidelane_sim::run::SimOptions;
use sidelane_sim::{Choices, run as sim};
use sidelane_top as top;
use sidelane_top::TopOptions;

pub(super) fn run_verb(verb: FullVerb, output: &RunOutput) -> Result<u8> {
    match verb {
        FullVerb::Estimate(args) => estimate::run_estimate(args, output),
        FullVerb::Requests(args) => look::watch_requests(args, output),
        FullVerb::List(args) => look::run_list(args),
        FullVerb::Observe(args) => look::observe(args, output),
        FullVerb::Trace(args) => trace::trace(args, output),
        FullVerb::Report(args) => look::run_report(args, output),
        FullVerb::Sim(args) => simulate(args, output),
        FullVerb::Proxy(args) => run_proxy(*args, output),
        FullVerb::Hazards(args) => run_hazards(args),
        FullVerb::Hurry(args) => hurry::run_hurry(args, output),
        FullVerb::Agent(args) => agent::run_agent(args),
        FullVerb::Status(args) => status::run(StatusOptions { json: args.json }),
        FullVerb::Top(args) => top::run(TopOptions { replay: args.replay, record: args.record }),
    }
}

/// Returns how the verb treats the CPUs of the services that it names. Returns `None` for verbs that name no services.
pub(super) fn treatment_of_service_cpus(verb: &FullVerb) -> Option<ServiceRelation> {
    match verb {
        FullVerb::Trace(_)
        | FullVerb::Requests(_)
        | FullVerb::Observe(_)
        | FullVerb::List(_)
        | FullVerb::Estimate(_) => Some(ServiceRelation::Observes),
        FullVerb::Hurry(_) | FullVerb::Proxy(_) | FullVerb::Hazards(_) | FullVerb::Agent(_) => {
            Some(ServiceRelation::ActsFor)
        }
        FullVerb::Report(_) | FullVerb::Sim(_) | FullVerb::Status(_) | FullVerb::Top(_) => None,
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
