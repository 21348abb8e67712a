//! Reasons why interference is not counted.

use std::io;

use thiserror::Error;

use crate::tracker::TrackerError;

/// The reason why interference is not counted.
#[derive(Debug, Error)]
pub enum InterferenceError {
    /// An event cannot be counted on one of the CPUs.
    #[error(
        "`{name}` cannot be counted on CPU {cpu} ({source}); in a virtual machine, ask its host for a virtual PMU, or \
         name other events; without root, give the process CAP_PERFMON"
    )]
    Event {
        /// Its name.
        name: String,
        /// The CPU.
        cpu: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The bell cannot be used.
    #[error("the bell of the interference counters cannot be used")]
    Bell(#[source] io::Error),
    /// The kernel program cannot be set up.
    #[error(transparent)]
    Kernel(#[from] TrackerError),
}
