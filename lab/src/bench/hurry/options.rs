//! The options of `sidelane-lab bench hurry`.

use std::path::PathBuf;
use std::time::Duration;

use crate::experiment::sibling::Carrier;
use sidelane_stats::rounds::Patience;

/// The speed of a little core, of 1: the paper's Fig. 3 has 3.2 times the tail latency on one.
pub const LITTLE_SPEED: f64 = 0.31;

/// The options of a run of `sidelane-lab bench hurry`.
#[derive(Clone, Debug)]
pub struct HurryOptions {
    /// Whether to measure less, and the limit of rounds.
    pub patience: Patience,
    /// `--cores`: the big one and the little one.
    pub cores: String,
    /// `--slow-cpu`: who makes the little core slow.
    pub slow_cpu: Carrier,
    /// `--speed`: how fast it is, of 1.
    pub speed: f64,
    /// `--mean`: how long a mean search is to take on the big core, if not as long as usual.
    pub mean: Option<Duration>,
    /// Where the index is kept between runs.
    pub cache: PathBuf,
}
