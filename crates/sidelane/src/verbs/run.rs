//! Implementation of `sidelane run` and `compare`.

use anyhow::Result;
use clap::CommandFactory;

use super::out::RunOutput;
use super::show::{FirstError, show_tables};
use crate::cli::{Cli, CompareArgs, RunArgs, WhenBlocked};
use sidelane_compare::{COLUMNS, Comparison};
use sidelane_host::service::Target;
use sidelane_lanes::plan::{RequestedBatch, RunRequest};
use sidelane_lanes::run::{OnBlocked, ProgressOptions, Run, RunOptions};
use sidelane_report::terminal::{eprint_fitted, print_fitted};

/// Exit code of a run that missed its objective, or exceeded the overlap bound that the user set.
const EXIT_PROMISE_BROKEN: u8 = 99;
/// Exit code of a comparison that Ctrl-C ended before it was decided, as of a program that SIGINT ended.
const EXIT_INTERRUPTED: u8 = 130;

pub(super) fn run_batch(args: RunArgs, output: &RunOutput) -> Result<u8> {
    let lending = args.lend.lending().unwrap_or_else(|error| exit_with_usage(&error.to_string()));
    let asked = RunRequest {
        services: pair_lanes(args.services, args.lanes),
        pin_service: args.pin_service,
        gate: args.lend.gate,
        lending,
        max_slowdown: args.lend.max_slowdown,
        batch: match args.adopt {
            Some(target) => RequestedBatch::Adopted(target),
            None => RequestedBatch::Command(args.command),
        },
    };
    if !args.dry_run {
        output.begin(&args.out)?;
    }
    let run = Run::prepare(RunOptions {
        asked,
        audit: output.audit_log(args.audit).map(|path| (path, args.audit_level)),
        json: args.json.file.clone(),
        grace: args.grace,
        on_blocked: OnBlocked { after: args.blocked_after, ends: args.on_blocked == WhenBlocked::Fail },
        max_overlap_ppm: args.fail_on_overlap.map(|percent| (percent * 1e4).round() as u32),
        allow_realtime: args.allow_realtime,
        progress: ProgressOptions { quiet: args.quiet, status_every: args.status },
    })?;
    if let Some(code) = run.check_command() {
        return Ok(code);
    }
    if args.dry_run {
        return print_plan(&run.summary_lines());
    }
    let (exit_code, summary) = run.run()?;
    // A broken promise is an error, so a quiet run prints it too.
    eprint_fitted(&if args.quiet { summary.broken_promises() } else { summary.to_string() });
    // Batch has done its work: its exit code is returned even if the figures cannot be written.
    let result = summary.to_result();
    let mut failed = FirstError::default();
    failed.keep_error(args.json.file.map_or(Ok(()), |path| result.write_json(&path)));
    failed.keep_error(output.keep(&result));
    if let Err(error) = failed.into_result(()) {
        eprint_fitted(&format!("sidelane: {error:#}"));
    }
    let fails =
        args.fail_on_slo && summary.misses_objective() || args.fail_on_overlap.is_some() && summary.breaks_promise();
    Ok(if fails { EXIT_PROMISE_BROKEN } else { exit_code })
}

pub(super) fn run_compare(mut args: CompareArgs, output: &RunOutput) -> Result<u8> {
    let (files, out) = (std::mem::take(&mut args.files), std::mem::take(&mut args.out));
    let dry_run = args.dry_run;
    let options = args.options().unwrap_or_else(|error| exit_with_usage(&error.to_string()));
    let comparison = Comparison::prepare(options, files.paths())?;
    if dry_run {
        return print_plan(&comparison.lines());
    }
    output.begin(&out)?;
    let (result, is_interrupted) = comparison.run()?;
    let mut failed = FirstError::default();
    failed.keep_error(output.keep(&result));
    let verdict = show_tables(&result, |column| COLUMNS.contains(&column.key.as_str()), &files)?;
    failed.into_result(if is_interrupted { EXIT_INTERRUPTED } else { verdict })
}

/// Prints the plan of a run.
fn print_plan(lines: &[String]) -> Result<u8> {
    Ok(lines.iter().try_for_each(|line| print_fitted(line)).map(|()| 0)?)
}

/// Pairs each service with its lanes: lanes are given for no service, or for all.
fn pair_lanes(services: Vec<Target>, lanes: Vec<String>) -> Vec<(Target, Option<String>)> {
    if !lanes.is_empty() && lanes.len() != services.len() {
        let (services, lanes) = (services.len(), lanes.len());
        exit_with_usage(&format!(
            "--lanes is given {lanes} times for {services} services; write it once for each --service, or not at all"
        ));
    }
    let lanes = lanes.into_iter().map(Some).chain(std::iter::repeat(None));
    services.into_iter().zip(lanes).collect()
}

/// Exits with the usage and the exit code of wrong arguments.
fn exit_with_usage(reason: &str) -> ! {
    Cli::command().error(clap::error::ErrorKind::ArgumentConflict, reason).exit()
}
