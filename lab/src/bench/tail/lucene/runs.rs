//! What was seen of one start of a server.

use super::load::Iteration;
use super::way::Way;

/// One run of one way.
pub(super) struct Run {
    pub(super) round: u64,
    pub(super) way: Way,
    pub(super) iterations: Vec<Iteration>,
}

impl Run {
    /// Of all iterations.
    pub(super) fn max_us(&self) -> Option<f64> {
        self.iterations.iter().filter_map(|iteration| iteration.max_us).reduce(f64::max)
    }
}
