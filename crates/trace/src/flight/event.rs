//! What a flight recorder tells whoever started it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sidelane_report::Unit;

/// What a flight recorder tells, as it happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It records the requests of this service from now on.
    Began(String),
    /// Without an objective: requests that take longer than this count as slow.
    Learned {
        /// The latency.
        limit_ns: u64,
        /// That of so many requests.
        requests: u64,
    },
    /// The objective is broken; how, in words.
    Broken(String),
    /// What the recording tells, in a line.
    Diagnosed(String),
    /// A recording is written.
    Written {
        /// For people.
        page: PathBuf,
        /// For `sidelane report`.
        log: PathBuf,
    },
    /// A recording could not be written, and nothing is left of it; why. The recorder goes on.
    Unwritten(String),
    /// That was the last recording: so many are written, no more.
    Full(u32),
    /// It has ended, and nothing was written.
    Unbroken,
}

/// Hears what a flight recorder tells, on whatever thread it tells it.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began(service) => write!(f, "recording the requests of {service}"),
            Self::Learned { limit_ns, requests } => {
                let limit = Unit::Ns.human(*limit_ns as f64);
                write!(
                    f,
                    "requests that take longer than {limit} count as slow: 3 times the p99 of the first {requests}"
                )
            }
            Self::Broken(how) | Self::Diagnosed(how) => f.write_str(how),
            Self::Written { page, log } => write!(f, "written to {} and {}", page.display(), log.display()),
            Self::Unwritten(why) => {
                write!(f, "the recording could not be written: {why}; make room, the next one is written as usual")
            }
            Self::Full(recordings) => {
                write!(f, "that was recording {recordings}; no more are written, to spare the disk")
            }
            Self::Unbroken => f.write_str("the objective was not broken; nothing was written"),
        }
    }
}
