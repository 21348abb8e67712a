//! Directory of a run (`--out`), for all verbs that measure.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::{Map, Value};
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_host::wall_clock::format_utc;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::{ResultFile, RunFolder, RunHead};

use crate::cli::RunDirectory;

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
