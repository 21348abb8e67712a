//! Implementation of `sidelane requests`, `list`, `observe`, and `report` for an observation's log.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use super::runs::report_runs;
use super::trace::report_trace;
use crate::cli::{ListArgs, ObserveArgs, Outputs, ReportArgs, RequestsArgs};
use crate::verbs::out::RunOutput;
use crate::verbs::show::{
    FirstError, check_csv_writable, check_json_writable, check_outputs_writable, style, write_and_open_page, write_json,
};
use sidelane_host::service::Target;
use sidelane_observe::list::{Listing, list_process_signals};
use sidelane_observe::observed::Observed;
use sidelane_observe::replay::{ReplayOptions, replay};
use sidelane_observe::session;
use sidelane_observe::session::ObserveOptions;
use sidelane_report::terminal::{self, print, print_fitted};
use sidelane_report::{Detail, table};
use sidelane_requests::watch;
use sidelane_requests::watch::WatchOptions;
use sidelane_rollback::own_threads;
use sidelane_rollback::own_threads::run_bulk_work;
use sidelane_trace::log::is_trace_log;

pub(super) fn watch_requests(args: RequestsArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    output.begin(&args.out)?;
    let summary = watch::run(&WatchOptions { target: args.service, length: args.length, log: args.log })?;
    let (result, style) = (summary.to_result(), style(&args.table));
    let mut failed = FirstError::default();
    failed.keep_error(args.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    failed.keep_error(args.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(output.keep(&result));
    failed.keep_error(print_fitted(&summary.text(style.detail)));
    if style.detail == Detail::All {
        failed.keep_error(print(&format!("\n{}", table::render_tables(&result, |_| true, style))));
    }
    failed.into_result(0)
}

pub(super) fn run_list(args: ListArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    list_signals(&args.service, args.filter.as_deref(), args.json.file.as_deref())
}

/// Lists the signals of each process of the target.
fn list_signals(target: &Target, filter: Option<&str>, json: Option<&Path>) -> Result<u8> {
    let pids = target.find()?.pids;
    own_threads::keep_off_service_cpus(&target.to_string(), &pids);
    // Reading the symbols of large programs takes seconds, so it is bulk work, which this thread does in SCHED_IDLE at
    // first.
    let listings: Vec<Listing> =
        run_bulk_work(|| pids.into_iter().map(|pid| list_process_signals(pid, filter)).collect());
    write_json(json, &listings)?;
    for listing in &listings {
        print(&listing.render(terminal::stdout_width(), terminal::should_use_color()))?;
    }
    Ok(0)
}

pub(super) fn observe(args: ObserveArgs, output: &RunOutput) -> Result<u8> {
    check_outputs_writable(&args.outputs.files, args.outputs.perfetto.as_deref())?;
    if let Some(target) = &args.list {
        return list_signals(target, args.filter.as_deref(), args.outputs.files.json.file.as_deref());
    }
    output.begin(&args.out)?;
    let observation = session::run(&ObserveOptions {
        target: args.service,
        command: args.command,
        signals: args.signals,
        progress: args.progress,
        length: args.length,
        period: args.period,
        cpu: args.cpu,
        observer_cpu: args.observer_cpu,
        tolerance: args.tolerance / 100.0,
        log: args.log,
        live: true,
    })?;
    run_bulk_work(|| write_observation(&observation, args.outputs, output))
}

pub(super) fn run_report(mut args: ReportArgs, output: &RunOutput) -> Result<u8> {
    check_outputs_writable(&args.outputs.files, args.outputs.perfetto.as_deref())?;
    if args.paths[0].is_dir() || !args.against.is_empty() {
        return report_runs(args);
    }
    let log = args.paths.remove(0);
    ensure!(
        args.paths.is_empty(),
        "cannot compare {}: it is no directory of a run; name directories that --out has written, or one log",
        log.display()
    );
    if is_trace_log(&log) {
        return report_trace(&log, args, output);
    }
    let of_traces = [(args.slo.is_some(), "--slo"), (args.otlp.is_some(), "--otlp")];
    if let Some((_, option)) = of_traces.into_iter().find(|(is_given, _)| *is_given) {
        bail!("cannot use {option} with {}: it is not a log of `sidelane trace`; leave {option} out", log.display());
    }
    let options = ReplayOptions {
        from_s: args.from.as_secs_f64(),
        to_s: args.to.map(|to| to.as_secs_f64()),
        tolerance: args.tolerance.map(|percent| percent / 100.0),
        turns: args.outputs.perfetto.is_some(),
    };
    write_observation(&replay(&log, &options)?, args.outputs, output)
}

/// Writes an observation to the wanted files, and prints it.
fn write_observation(observation: &Observed, outputs: Outputs, output: &RunOutput) -> Result<u8> {
    let result = observation.to_result();
    let mut failed = FirstError::default();
    failed.keep_error(outputs.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(output.keep(&result));
    failed.keep_error(outputs.perfetto.as_deref().map_or(Ok(()), |path| observation.to_trace().write(path)));
    failed.keep_error(outputs.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    let style = style(&outputs.files.table);
    let shown = observation.fit_to_terminal(&result, style.width, style.detail);
    failed.keep_error(print(&table::render_tables(&shown, |_| true, style)));
    if style.detail == Detail::All {
        failed.keep_error(print(&format!("\n{}", observation.histograms(style.width))));
    }
    failed.keep_error(write_and_open_page(
        &result,
        outputs.files.page,
        outputs.open.then_some("sidelane-observe.html"),
    ));
    failed.into_result(result.exit_code())
}
