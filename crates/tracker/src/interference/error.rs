//! Reasons why interference is not counted.

use std::io;

use thiserror::Error;

use crate::tracker::TrackerError;

/// Reason why interference is not counted.
#[derive(Debug, Error)]
pub enum InterferenceError {
    /// Event that cannot be counted on one of the CPUs.
    #[error(
        "cannot count `{name}` on CPU {cpu} ({source}); run as root or with CAP_PERFMON, name other events, or in a \
         virtual machine ask its host for a virtual PMU"
    )]
    Event {
        /// Name of the event.
        name: String,
        /// Number of the CPU.
        cpu: u32,
        /// Error of the system.
        source: io::Error,
    },
    /// Ring of threshold crossings that cannot be created or mapped.
    #[error(
        "cannot open the ring buffer by which the kernel reports interference; raise the limits of memory and open \
         files (ulimit -l, ulimit -n)"
    )]
    Crossings(#[source] io::Error),
    /// Kernel program that cannot be set up.
    #[error(transparent)]
    Kernel(#[from] TrackerError),
}
