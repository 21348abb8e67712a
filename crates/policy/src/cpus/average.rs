//! Mean of a share of time, computed once per window.

use crate::Nanos;

/// Mean of a share over windows of a fixed length. Observations also come at events, and an observation may cover a few
/// microseconds, so no single observation is judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    covered_ns: Nanos,
    /// Sum of share × nanoseconds.
    sum: f64,
}

impl Average {
    /// Adds the share of the last `elapsed_ns` nanoseconds. Returns the mean if these complete a window of `window_ns`;
    /// the next window begins then.
    pub(crate) fn add(&mut self, share: f64, elapsed_ns: Nanos, window_ns: Nanos) -> Option<f64> {
        self.covered_ns += elapsed_ns;
        self.sum += share * elapsed_ns as f64;
        let complete = self.covered_ns >= window_ns && self.covered_ns > 0;
        complete.then(|| core::mem::take(self)).map(|window| window.sum / window.covered_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_observation_has_little_weight() {
        let mut average = Average::default();
        assert_eq!(average.add(1.0, 100, 1_000), None);
        assert_eq!(average.add(0.0, 900, 1_000), Some(0.1));
        assert_eq!(average.add(1.0, 2_000, 1_000), Some(1.0));
    }

    #[test]
    fn observation_without_time_gives_no_mean() {
        assert_eq!(Average::default().add(1.0, 0, 0), None);
    }
}
