//! The summary of a set of durations: percentiles in microseconds, and the latency curve.

use std::path::Path;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::clock::Nanos;

/// Significant digits kept by the histograms: an error of at most 0.1 %.
const DIGITS: u8 = 3;

/// Histogram of durations that grows with the values added to it.
#[derive(Debug)]
pub struct Durations(Histogram<u64>);

/// Point of the latency curve: `percentile` per cent of the durations were at most `us`.
#[derive(Debug, Serialize)]
pub struct CurvePoint {
    pub percentile: f64,
    pub us: f64,
}

impl Durations {
    /// Returns an empty histogram of durations.
    pub fn new() -> Self {
        Durations(Histogram::new(DIGITS).expect("three digits are allowed"))
    }

    /// Adds one duration to the histogram.
    pub fn add(&mut self, duration_ns: Nanos) {
        self.0.record(duration_ns).expect("the histogram resizes itself");
    }

    /// Returns the number of added durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the mean of the durations in microseconds.
    pub fn mean_us(&self) -> f64 {
        round_to_tenths(self.0.mean() / 1e3)
    }

    /// Returns the longest duration in microseconds.
    pub fn max_us(&self) -> f64 {
        round_to_tenths(self.0.max() as f64 / 1e3)
    }

    /// Returns the duration in microseconds that `percentile` per cent of the durations did not exceed.
    pub fn percentile_us(&self, percentile: f64) -> f64 {
        round_to_tenths(self.0.value_at_percentile(percentile) as f64 / 1e3)
    }

    /// Returns about a hundred points, half of them above the 90th percentile, up to the highest percentile that the
    /// number of samples supports.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let body = (1..=44).map(|step| f64::from(step) * 2.0);
        let tail = (0..=56).map(|step| 100.0 - 10f64.powf(1.0 - f64::from(step) / 14.0));
        let finest = 100.0 - 100.0 / self.count().max(1) as f64;
        body.chain(tail)
            .take_while(|&percentile| percentile <= finest)
            .chain([100.0])
            .map(|percentile| self.curve_point(percentile))
            .collect()
    }

    fn curve_point(&self, percentile: f64) -> CurvePoint {
        CurvePoint { percentile: (percentile * 1e4).round() / 1e4, us: self.percentile_us(percentile) }
    }
}

/// Writes a result to a file as JSON.
pub fn write_json(path: &Path, result: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(result)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("cannot write the result to {}", path.display()))
}

/// Rounds to tenths of a microsecond, the resolution of a clock read.
fn round_to_tenths(us: f64) -> f64 {
    (us * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations_up_to_us(longest_us: u64) -> Durations {
        let mut durations = Durations::new();
        (1..=longest_us).for_each(|us| durations.add(us * 1000));
        durations
    }

    #[test]
    fn percentiles_are_within_histogram_precision() {
        let durations = durations_up_to_us(1000);
        assert!((durations.percentile_us(50.0) - 500.0).abs() < 1.0);
        assert!((durations.percentile_us(99.0) - 990.0).abs() < 2.0);
        assert!((durations.mean_us() - 500.5).abs() < 1.0);
    }

    #[test]
    fn the_curve_rises_and_ends_at_the_maximum() {
        let durations = durations_up_to_us(100_000);
        let curve = durations.curve();
        assert!((90..=110).contains(&curve.len()), "{} points", curve.len());
        assert!(curve.windows(2).all(|pair| pair[0].percentile < pair[1].percentile));
        assert!(curve.windows(2).all(|pair| pair[0].us <= pair[1].us));
        assert_eq!(curve.last().unwrap().us, durations.max_us());
    }

    #[test]
    fn few_samples_give_a_short_curve() {
        assert_eq!(Durations::new().curve().len(), 1);
        assert!(
            durations_up_to_us(10).curve().iter().all(|point| point.percentile <= 90.0 || point.percentile == 100.0)
        );
    }
}
