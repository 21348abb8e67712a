//! Parts of every scenario: the files and choices that it is given, its seed, and the length of its runs.

use std::path::{Path, PathBuf};

use sidelane_toml::{Reader, Refused};

use super::parts;
use crate::model::RunEnd;
use crate::recording::Recording;
use crate::time::Nanos;

/// Result of reading a part; the document records each error.
pub(super) type Result<T> = std::result::Result<T, Refused>;

/// Files that a scenario names.
pub trait NamedFiles {
    /// Returns the text of a file, or the reason why it cannot be read.
    fn text(&self, name: &str) -> std::result::Result<String, String>;

    /// Returns the recordings in a folder, or the reason why they cannot be read.
    fn recordings(&self, name: &str) -> std::result::Result<Vec<Recording>, String> {
        Err(format!("{name} is not a folder here"))
    }
}

impl<F: Fn(&str) -> std::result::Result<String, String>> NamedFiles for F {
    fn text(&self, name: &str) -> std::result::Result<String, String> {
        self(name)
    }
}

/// Reader of the files that a scenario names.
pub type Files<'f> = &'f dyn NamedFiles;

/// Files beside a scenario.
pub(super) struct FilesBeside<'p>(pub &'p Path);

impl FilesBeside<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.parent().unwrap_or(Path::new(".")).join(name)
    }
}

impl NamedFiles for FilesBeside<'_> {
    fn text(&self, name: &str) -> std::result::Result<String, String> {
        std::fs::read_to_string(self.path(name)).map_err(|why| why.to_string())
    }

    fn recordings(&self, name: &str) -> std::result::Result<Vec<Recording>, String> {
        Recording::load_each(&[self.path(name)]).map_err(|why| why.to_string())
    }
}

/// Choices of the user that are not in the scenario file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices {
    /// Seed that replaces the file's seed.
    pub seed: Option<u64>,
    /// Whether to apply the changes in `[quick]`, for a short run.
    pub quick: bool,
}

/// Returns the seed of a scenario's runs.
pub(super) fn read_seed(top: &Reader, choices: Choices) -> u64 {
    let seed = top.whole_number("seed", 0..=u64::MAX >> 1).unwrap_or(1);
    choices.seed.unwrap_or(seed)
}

/// Reads the length of the warm-up, and the end of the run.
pub(super) fn read_warm_up_and_end(top: &Reader) -> Result<(Nanos, RunEnd)> {
    let warm_up_ns = top.number("warm_up_s", 0.0..=1e6).map_or(0, |seconds| parts::ms_to_ns(seconds * 1e3));
    let time = top.number("run_s", 1e-6..=1e7).map(|seconds| RunEnd::Time(parts::ms_to_ns(seconds * 1e3)));
    let requests = top.whole_number("requests", 1..=1_000_000_000_000).map(RunEnd::Requests);
    match (time, requests) {
        (Some(_), Some(_)) => {
            Err(top.record_problem("requests", "is given, but run_s is given, too", "write one of them"))
        }
        (time, requests) => {
            let until = time.or(requests).ok_or_else(|| top.record_missing("run_s", "write run_s or requests"))?;
            Ok((warm_up_ns, until))
        }
    }
}
