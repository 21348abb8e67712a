//! Directory of a run (`--out`), for all verbs that measure; and `sidelane report` for such directories.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Result, bail};
use serde_json::{Map, Value};
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_host::wall_clock::format_utc;
use sidelane_report::terminal::{self, eprint_fitted};
use sidelane_report::{Detail, ResultFile, RunFolder, RunHead, StoredRun, table};
use sidelane_stats::run_comparison::{Comparison, compare_runs};

use super::show::{FirstError, style, write_and_open_page};
use crate::cli::{ReportArgs, RunDirectory};

/// Command line of this process, and the directory in which its run is kept, if the user wants one.
pub struct RunOutput {
    verb: String,
    options: Map<String, Value>,
    folder: RefCell<Option<RunFolder>>,
}

impl RunOutput {
    /// Takes the verb of the command line, with its resolved options.
    pub fn new((verb, options): (String, Map<String, Value>)) -> Self {
        Self { verb, options, folder: RefCell::default() }
    }

    /// Makes the directory, if the user wants one. Verbs call this when their arguments are checked.
    pub(super) fn begin(&self, out: &RunDirectory) -> Result<()> {
        let Some(dir) = &out.dir else { return Ok(()) };
        let machine = machine::describe(PairKind::Declared);
        let head = RunHead::begin(self.verb.clone(), format_utc(SystemTime::now()), self.options.clone(), machine);
        *self.folder.borrow_mut() = Some(RunFolder::begin(dir, head)?);
        Ok(())
    }

    /// Returns the path of an audit log: the one that the user named, or the one of the directory.
    pub(super) fn audit_log(&self, named: Option<PathBuf>) -> Option<PathBuf> {
        named.or_else(|| self.folder.borrow().as_ref().map(RunFolder::audit_log))
    }

    /// Writes the result into the directory, if there is one.
    pub(super) fn keep(&self, result: &ResultFile) -> Result<()> {
        Ok(self.folder.borrow().as_ref().map_or(Ok(()), |folder| folder.keep_result(result))?)
    }

    /// Writes into the directory how the verb ended, and returns that.
    pub(super) fn end(self, outcome: Result<u8>) -> Result<u8> {
        let Some(folder) = self.folder.into_inner() else { return outcome };
        let written = folder.end(outcome.as_ref().err().map(|error| format!("{error:#}")));
        match (outcome, written) {
            // Batch has done its work: its exit code is returned even if the state cannot be written.
            (Ok(code), Err(error)) if self.verb == "run" => {
                eprint_fitted(&format!("sidelane: {:#}", anyhow::Error::from(error)));
                Ok(code)
            }
            (Ok(_), Err(error)) => Err(error.into()),
            (outcome, _) => outcome,
        }
    }
}

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
