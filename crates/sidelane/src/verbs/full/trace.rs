//! Implementation of `sidelane trace`, and `report` for its log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cli::{Outputs, ReportArgs, TraceArgs};
use crate::verbs::out::RunOutput;
use crate::verbs::show::{FirstError, check_outputs_writable, style, write_and_open_page};
use sidelane_host::shutdown::Shutdown;
use sidelane_report::otlp::Destination;
use sidelane_report::terminal::{eprint_fitted, print, print_fitted};
use sidelane_report::{Detail, check_directory_exists, table};
use sidelane_rollback::own_threads::run_bulk_work;
use sidelane_trace::flight;
use sidelane_trace::flight::{Event, FlightOptions};
use sidelane_trace::report::TraceReport;
use sidelane_trace::run::{self, ReplayOptions, TraceOptions, replay};
use sidelane_trace::slow_threshold::SlowThreshold;
use sidelane_trace::terminal::{headline, render_report};

/// Default length of a trace.
const TRACE_LENGTH: Duration = Duration::from_secs(10);

pub(super) fn trace(args: TraceArgs, output: &RunOutput) -> Result<u8> {
    check_outputs_writable(&args.outputs.files, args.outputs.perfetto.as_deref())?;
    args.log.as_deref().map_or(Ok(()), check_directory_exists)?;
    args.otlp.as_ref().map_or(Ok(()), Destination::check)?;
    let threshold = args.slo.unwrap_or(SlowThreshold::P99);
    if let Some(dir) = args.record {
        return run_flight_recorder(
            &FlightOptions {
                service: args.service.to_string(),
                target: args.service,
                threshold,
                light: args.light,
                dir,
                keep: flight::KEEP,
                recordings: flight::RECORDINGS,
                otlp: args.otlp,
            },
            args.length,
        );
    }
    output.begin(&args.out)?;
    let length = args.length.unwrap_or(TRACE_LENGTH);
    let options = TraceOptions { target: args.service, threshold, length, light: args.light, log: args.log };
    let report = run::trace(&options)?;
    run_bulk_work(|| write_report(&report, args.outputs, args.otlp.as_ref(), output))
}

fn run_flight_recorder(options: &FlightOptions, length: Option<Duration>) -> Result<u8> {
    let tell = |event: Event| match event {
        Event::Began(_) => eprint_fitted(&format!("sidelane: {event}; Ctrl-C ends it")),
        _ => eprint_fitted(&format!("sidelane: {event}")),
    };
    flight::run(options, length, Shutdown::on_posix_signals()?, Arc::new(tell)).map(|()| 0)
}

pub(super) fn report_trace(log: &Path, args: ReportArgs, output: &RunOutput) -> Result<u8> {
    ensure!(
        args.tolerance.is_none(),
        "cannot use --tolerance with {}: it is a log of `sidelane trace`; leave --tolerance out",
        log.display()
    );
    let options = ReplayOptions {
        from_s: args.from.as_secs_f64(),
        to_s: args.to.map(|to| to.as_secs_f64()),
        threshold: args.slo,
    };
    args.otlp.as_ref().map_or(Ok(()), Destination::check)?;
    write_report(&replay(log, &options)?, args.outputs, args.otlp.as_ref(), output)
}

fn print_exported(report: &TraceReport, otlp: &Destination) -> Result<()> {
    match report.diagnosis.slow {
        0 => Ok(()),
        _ => Ok(print_fitted(&format!("\n{}\n", report.export(otlp)?))?),
    }
}

/// Writes a trace to the wanted files, prints it, and exports its slow requests.
fn write_report(report: &TraceReport, outputs: Outputs, otlp: Option<&Destination>, output: &RunOutput) -> Result<u8> {
    let result = report.to_result();
    let mut failed = FirstError::default();
    failed.keep_error(outputs.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(output.keep(&result));
    failed.keep_error(outputs.perfetto.as_deref().map_or(Ok(()), |path| report.to_perfetto_trace().write(path)));
    failed.keep_error(outputs.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    let style = style(&outputs.files.table);
    failed.keep_error(match style.detail {
        Detail::Quiet => print_fitted(&headline(report)),
        _ => print(&render_report(report, style.width)),
    });
    if style.detail == Detail::All {
        failed.keep_error(print(&format!("\n{}", table::render_tables(&result, |_| true, style))));
    }
    failed.keep_error(write_and_open_page(&result, outputs.files.page, outputs.open.then_some("sidelane-trace.html")));
    failed.keep_error(otlp.map_or(Ok(()), |otlp| print_exported(report, otlp)));
    failed.into_result(result.exit_code())
}
