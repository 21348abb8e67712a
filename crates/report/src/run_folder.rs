//! Folder of a run, which `--out DIR` keeps so that runs can be compared later.
//!
//! - `run.json`: what was asked for, on which machine, and whether the run is complete. It is written first, with the
//!   state `unfinished`, and again at the end. A run that is killed leaves the first one.
//! - `result.json`: the result, as `--json` writes it.
//! - `audit.jsonl`: decisions and their reasons, of verbs that decide.
//!
//! Each file of JSON is written completely or not at all. While a run goes on, its folder is locked (`flock`), so a
//! second run cannot take it, and a reader can distinguish a run that goes on from one that was broken off.
//!
//! A folder with anything else in it, or with a complete run, is refused: nothing is lost by a wrong `--out`.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::result::{Machine, ResultFile};
use crate::whole_file::{WriteError, write_atomically};

const HEAD: &str = "run.json";
const RESULT: &str = "result.json";
const AUDIT: &str = "audit.jsonl";
/// Value of `format` in the head: only folders with it are runs.
const FORMAT: &str = "sidelane run 1";
/// Largest file that is read. A result with the requests of a trace has some megabytes.
const BYTES_MAX: u64 = 256 << 20;

/// What was asked for, on which machine, and whether the run is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHead {
    format: String,
    /// Whether the run has ended.
    pub state: RunState,
    /// Reason why the run failed; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Verb of the run, such as `requests`.
    pub verb: String,
    /// Version of the Sidelane that ran.
    pub version: String,
    /// Start of the run in UTC, such as `2026-03-01T14:02:11.123456Z`.
    pub began: String,
    /// Options of the run with their values, also those that the user left out and that have a default.
    pub options: Map<String, Value>,
    /// Machine of the run.
    pub machine: Machine,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The run goes on, or was broken off.
    Unfinished,
    /// The run has ended with an error.
    Failed,
    /// The run has ended with a result.
    Complete,
}

impl RunHead {
    /// Describes a run that begins.
    pub fn begin(verb: String, began: String, options: Map<String, Value>, machine: Machine) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (format, state) = (FORMAT.to_owned(), RunState::Unfinished);
        Self { format, state, error: None, verb, version, began, options, machine }
    }
}

/// Reason why a folder cannot keep a run, or cannot be read as one.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder has something else in it.
    #[error("cannot keep the run in {}: it has files that are no run ({file}); name a new directory", dir.display())]
    Foreign {
        /// Path of the folder.
        dir: PathBuf,
        /// Name of a file in it.
        file: String,
    },
    /// The folder has a complete run.
    #[error("cannot keep the run in {}: it has the run of {began}; name a new directory, or remove this one", dir.display())]
    Taken {
        /// Path of the folder.
        dir: PathBuf,
        /// Start of the run in the folder.
        began: String,
    },
    /// Another run writes into the folder.
    #[error("cannot keep the run in {}: another run writes into it; name a new directory", dir.display())]
    Busy {
        /// Path of the folder.
        dir: PathBuf,
    },
    /// The folder cannot be made or read.
    #[error("cannot keep the run in {}: {source}; name a directory that can be made and written", dir.display())]
    Unusable {
        /// Path of the folder.
        dir: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file of the folder cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The folder is not one of a run.
    #[error("cannot read the run in {}: {why}; name a directory that --out has written", dir.display())]
    NoRun {
        /// Path of the folder.
        dir: PathBuf,
        /// Why it is no run.
        why: String,
    },
    /// The run in the folder is not complete.
    #[error("cannot compare the run in {}: {why}; leave it out, or repeat it", dir.display())]
    Incomplete {
        /// Path of the folder.
        dir: PathBuf,
        /// What happened to the run.
        why: String,
    },
}

/// Folder of a run that goes on.
#[derive(Debug)]
pub struct RunFolder {
    dir: PathBuf,
    head: RunHead,
    has_result: Cell<bool>,
    /// Open folder, locked until the process ends.
    _lock: File,
}

impl RunFolder {
    /// Makes the folder `dir` for a run that begins. A folder that exists must be empty, or have a run that was not
    /// completed, which is replaced.
    ///
    /// # Errors
    /// If the folder has anything else in it, or cannot be written. Its files are unchanged then.
    pub fn begin(dir: &Path, head: RunHead) -> Result<Self, FolderError> {
        let unusable = |source| FolderError::Unusable { dir: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(unusable)?;
        let lock = File::open(dir).map_err(unusable)?;
        // Other errors than this one come from file systems without locks.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(FolderError::Busy { dir: dir.to_owned() });
        }
        check_replaceable(dir)?;
        for file in [RESULT, AUDIT] {
            fs::remove_file(dir.join(file)).or_else(ignore_missing).map_err(unusable)?;
        }
        let folder = Self { dir: dir.to_owned(), head, has_result: Cell::new(false), _lock: lock };
        write_json(&folder.dir.join(HEAD), &folder.head)?;
        Ok(folder)
    }

    /// Returns the path of the audit log, for verbs that decide.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join(AUDIT)
    }

    /// Writes the result of the run.
    ///
    /// # Errors
    /// If it cannot be written, as on a full disk.
    pub fn keep_result(&self, result: &ResultFile) -> Result<(), WriteError> {
        write_json(&self.dir.join(RESULT), result)?;
        self.has_result.set(true);
        Ok(())
    }

    /// Ends the run: it is complete if its result was written, or else failed because of `error`.
    ///
    /// # Errors
    /// If the state cannot be written, as on a full disk. The folder then says that the run is unfinished.
    pub fn end(mut self, error: Option<String>) -> Result<(), WriteError> {
        self.head.state = if self.has_result.get() { RunState::Complete } else { RunState::Failed };
        self.head.error = error;
        write_json(&self.dir.join(HEAD), &self.head)
    }
}

/// Checks that a new run may replace the content of the folder.
fn check_replaceable(dir: &Path) -> Result<(), FolderError> {
    let unusable = |source| FolderError::Unusable { dir: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(unusable)? {
        names.push(entry.map_err(unusable)?.file_name());
    }
    if names.is_empty() {
        return Ok(());
    }
    let is_own = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        let is_temporary = [HEAD, RESULT].iter().any(|file| name.starts_with(&format!(".{file}.")));
        [HEAD, RESULT, AUDIT].contains(&name.as_ref()) || is_temporary
    };
    let foreign = |name: &std::ffi::OsStr| FolderError::Foreign {
        dir: dir.to_owned(),
        file: name.to_string_lossy().into_owned(),
    };
    if let Some(name) = names.iter().find(|name| !is_own(name)) {
        return Err(foreign(name));
    }
    match read_head(dir) {
        Ok(head) if head.state == RunState::Complete => {
            Err(FolderError::Taken { dir: dir.to_owned(), began: head.began })
        }
        Ok(_) => Ok(()),
        Err(_) => Err(foreign(&names[0])),
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), WriteError> {
    let mut json =
        serde_json::to_vec_pretty(value).map_err(|error| WriteError { path: path.to_owned(), source: error.into() })?;
    json.push(b'\n');
    write_atomically(path, &json)
}

/// Complete run that was read from its folder.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// Path of the folder, as the user named it.
    pub dir: PathBuf,
    /// What was asked for, and on which machine.
    pub head: RunHead,
    /// Result of the run.
    pub result: ResultFile,
}

impl StoredRun {
    /// Reads the run in the folder `dir`.
    ///
    /// # Errors
    /// If the folder is not one of a run, or the run is not complete.
    pub fn read(dir: &Path) -> Result<Self, FolderError> {
        let no_run = |why| FolderError::NoRun { dir: dir.to_owned(), why };
        Self::parse(dir, &read_bytes(&dir.join(HEAD)).map_err(no_run)?, || read_bytes(&dir.join(RESULT)))
    }

    /// Parses the run of the folder `dir` from the content of its head, and of its result.
    ///
    /// # Errors
    /// If they are not of a run, or the run is not complete.
    pub fn parse(
        dir: &Path,
        head: &[u8],
        result: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<Self, FolderError> {
        let no_run = |why| FolderError::NoRun { dir: dir.to_owned(), why };
        let head = parse_head(head).map_err(no_run)?;
        let why = match head.state {
            RunState::Complete => None,
            RunState::Failed => Some(format!("it failed ({})", head.error.as_deref().unwrap_or("without a reason"))),
            RunState::Unfinished if is_locked(dir) => Some("it still goes on".to_owned()),
            RunState::Unfinished => Some("it was broken off".to_owned()),
        };
        if let Some(why) = why {
            return Err(FolderError::Incomplete { dir: dir.to_owned(), why });
        }
        let result = result().and_then(|bytes| parse(RESULT, &bytes)).map_err(no_run)?;
        Ok(Self { dir: dir.to_owned(), head, result })
    }
}

fn is_locked(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

fn read_head(dir: &Path) -> Result<RunHead, String> {
    parse_head(&read_bytes(&dir.join(HEAD))?)
}

fn parse_head(bytes: &[u8]) -> Result<RunHead, String> {
    let head: RunHead = parse(HEAD, bytes)?;
    if head.format != FORMAT {
        return Err(format!("{HEAD} has the format `{}`, and this Sidelane reads `{FORMAT}`", head.format));
    }
    Ok(head)
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The type is known before the file is opened: a pipe would block.
    let file = fs::metadata(path).map_err(|error| format!("{name}: {error}"))?;
    if !file.is_file() || file.len() > BYTES_MAX {
        return Err(format!("{name} is no file of at most {} MB", BYTES_MAX >> 20));
    }
    fs::read(path).map_err(|error| format!("{name}: {error}"))
}

fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("{name} cannot be parsed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn head(options: &[(&str, &str)]) -> RunHead {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        RunHead::begin("requests".into(), "2026-03-01T14:02:11.000000Z".into(), options, sample::demo().machine)
    }

    fn begin(dir: &Path) -> Result<RunFolder, FolderError> {
        RunFolder::begin(dir, head(&[("--service", "port:1")]))
    }

    /// Returns all files of a folder with their content.
    fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let mut files: Vec<_> =
            entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect();
        files.sort();
        files
    }

    #[test]
    fn complete_run_reads_back_as_it_was_written() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("new/run");
        let folder = begin(&dir).unwrap();
        folder.keep_result(&sample::demo()).unwrap();
        folder.end(None).unwrap();
        let read = StoredRun::read(&dir).unwrap();
        assert_eq!((read.result, read.head.state), (sample::demo(), RunState::Complete));
        assert_eq!(read.head.options, head(&[("--service", "port:1")]).options);
        assert_eq!(content(&dir).len(), 2, "no temporary file is left");
    }

    #[test]
    fn folder_says_that_a_run_goes_on_was_broken_off_or_failed() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        let said = || StoredRun::read(&dir).unwrap_err().to_string();
        let folder = begin(&dir).unwrap();
        assert!(said().contains("it still goes on"), "{}", said());
        assert!(matches!(begin(&dir), Err(FolderError::Busy { .. })));
        drop(folder);
        assert!(said().contains("it was broken off; leave it out"), "{}", said());
        begin(&dir).unwrap().end(Some("the service is gone".into())).unwrap();
        assert!(said().contains("it failed (the service is gone)"), "{}", said());
        let folder = begin(&dir).unwrap();
        fs::write(folder.audit_log(), "{}\n").unwrap();
        folder.keep_result(&sample::demo()).unwrap();
        folder.end(None).unwrap();
        assert!(StoredRun::read(&dir).is_ok(), "a run that was not complete is replaced");
    }

    #[test]
    fn folder_of_something_else_or_of_a_complete_run_loses_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path();
        let refused = |why: &str| {
            let before = content(dir);
            let error = begin(dir).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(content(dir), before);
        };
        fs::write(dir.join("thesis.tex"), "all of it").unwrap();
        refused("it has files that are no run (thesis.tex)");
        fs::rename(dir.join("thesis.tex"), dir.join(RESULT)).unwrap();
        refused("it has files that are no run (result.json)");
        fs::write(dir.join(HEAD), "{}").unwrap();
        refused("it has files that are no run");
        for file in [HEAD, RESULT] {
            fs::remove_file(dir.join(file)).unwrap();
        }
        let folder = begin(dir).unwrap();
        folder.keep_result(&sample::demo()).unwrap();
        folder.end(None).unwrap();
        refused("it has the run of 2026-03-01T14:02:11");
        let file = dir.join(RESULT);
        assert!(matches!(begin(&file), Err(FolderError::Unusable { .. })), "a file is no directory");
    }

    #[test]
    fn result_that_is_missing_or_foreign_is_refused_with_its_name() {
        let parent = tempfile::tempdir().unwrap();
        let folder = begin(parent.path()).unwrap();
        folder.keep_result(&sample::demo()).unwrap();
        folder.end(None).unwrap();
        fs::write(parent.path().join(RESULT), "{\"rows\": 3").unwrap();
        let error = StoredRun::read(parent.path()).unwrap_err().to_string();
        assert!(error.contains("result.json cannot be parsed"), "{error}");
        fs::remove_file(parent.path().join(RESULT)).unwrap();
        fs::create_dir(parent.path().join(RESULT)).unwrap();
        let error = StoredRun::read(parent.path()).unwrap_err().to_string();
        assert!(error.contains("result.json is no file"), "{error}");
    }
}
