//! What each scenario has beside its parts: files and choices that it is given, the seed and the length of its runs.

use sidelane_toml::{Reader, Refused};

use super::parts;
use crate::model::RunEnd;
use crate::time::Nanos;

/// What is wrong is recorded in the document.
pub(super) type Result<T> = std::result::Result<T, Refused>;

/// Reads a file that a scenario names, or returns the error.
pub type Files<'f> = &'f dyn Fn(&str) -> std::result::Result<String, String>;

/// Choices that are not in the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices {
    /// Replaces the file's seed.
    pub seed: Option<u64>,
    /// Whether to apply `[quick]`.
    pub quick: bool,
}

/// The seed of a file's runs.
pub(super) fn seed(top: &Reader, choices: Choices) -> u64 {
    let seed = top.whole("seed", 0..=u64::MAX >> 1).unwrap_or(1);
    choices.seed.unwrap_or(seed)
}

/// How long a run warms up, and how long it is.
pub(super) fn length(top: &Reader) -> Result<(Nanos, RunEnd)> {
    let warm_up_ns = top.number("warm_up_s", 0.0..=1e6).map_or(0, |seconds| parts::ms(seconds * 1e3));
    let time = top.number("run_s", 1e-6..=1e7).map(|seconds| RunEnd::Time(parts::ms(seconds * 1e3)));
    let requests = top.whole("requests", 1..=1_000_000_000_000).map(RunEnd::Requests);
    match (time, requests) {
        (Some(_), Some(_)) => Err(top.wrong("requests", "is given, but run_s is given, too", "write one of them")),
        (time, requests) => {
            let until = time.or(requests).ok_or_else(|| top.missing("run_s", "write run_s or requests"))?;
            Ok((warm_up_ns, until))
        }
    }
}
