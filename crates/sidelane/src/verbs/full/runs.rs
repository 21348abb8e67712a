//! Implementation of `sidelane report` for directories of runs.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::cli::ReportArgs;
use crate::verbs::show::{FirstError, style, write_and_open_page};
use sidelane_report::{Detail, ResultFile, StoredRun, table, terminal};
use sidelane_stats::run_comparison::{Comparison, compare_runs};

/// Compares runs, or shows the only one.
pub(super) fn report_runs(args: ReportArgs) -> Result<u8> {
    let first = args.paths[0].display();
    let of_logs = [
        (!args.from.is_zero(), "--from"),
        (args.to.is_some(), "--to"),
        (args.tolerance.is_some(), "--tolerance"),
        (args.slo.is_some(), "--slo"),
        (args.otlp.is_some(), "--otlp"),
        (args.outputs.perfetto.is_some(), "--perfetto"),
    ];
    if let Some((_, option)) = of_logs.into_iter().find(|(is_given, _)| *is_given) {
        bail!("cannot use {option} with {first}: it is the directory of a run, not a log; leave {option} out");
    }
    let read = |paths: &[PathBuf]| paths.iter().map(|dir| StoredRun::read(dir)).collect::<Result<Vec<_>, _>>();
    let (mut runs, against) = (read(&args.paths)?, read(&args.against)?);
    let is_comparison = runs.len() + against.len() > 1;
    let Comparison { result, brief } = match is_comparison {
        true => compare_runs(&runs, &against)?,
        false => {
            let result = runs.remove(0).result;
            Comparison { brief: result.rows.clone(), result }
        }
    };
    let style = style(&args.outputs.files.table);
    let mut failed = FirstError::default();
    failed.keep_error(args.outputs.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(args.outputs.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    let shown = if style.detail == Detail::All { result.clone() } else { ResultFile { rows: brief, ..result.clone() } };
    failed.keep_error(terminal::print(&table::render_tables(&shown, |_| true, style)));
    let page_to_open = args.outputs.open.then_some("sidelane-report.html");
    failed.keep_error(write_and_open_page(&result, args.outputs.files.page, page_to_open));
    failed.into_result(if is_comparison { 0 } else { result.exit_code() })
}
