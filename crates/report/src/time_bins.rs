//! Signal over the time of a run, in a bounded number of bins, however long the run is.
//!
//! Bins have one length. When the last one is full, each pair of bins becomes one, so their length doubles.

use std::time::Duration;

use crate::picture::{SignalSeries, SignalValues};
use crate::unit::Unit;

/// Most bins of a signal: more than a page has pixels for.
const BINS_MAX: usize = 1_200;

/// Values of a signal, counted in bins of equal length.
#[derive(Clone, Debug)]
pub struct TimeBins {
    length: Duration,
    bins: Vec<Bin>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    samples: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Bin {
    fn add(&mut self, other: Self) {
        if self.samples == 0 {
            *self = other;
        } else if other.samples > 0 {
            self.samples += other.samples;
            self.sum += other.sum;
            (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        }
    }

    fn value(&self, of: impl Fn(&Self) -> f64) -> Option<f64> {
        (self.samples > 0).then(|| six_digits(of(self)))
    }
}

impl TimeBins {
    /// Makes a signal without values, in bins of `length` at first.
    pub fn new(length: Duration) -> Self {
        Self { length: length.max(Duration::from_micros(1)), bins: Vec::new() }
    }

    /// Adds a value at a time since the begin of the run.
    pub fn add(&mut self, at: Duration, value: f64) {
        let mut place = self.place(at);
        while place >= BINS_MAX {
            self.join_pairs();
            place = self.place(at);
        }
        if self.bins.len() <= place {
            self.bins.resize(place + 1, Bin::default());
        }
        self.bins[place].add(Bin { samples: 1, sum: value, min: value, max: value });
    }

    fn place(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.length.as_nanos()).unwrap_or(usize::MAX)
    }

    fn join_pairs(&mut self) {
        self.length *= 2;
        self.bins = self
            .bins
            .chunks(2)
            .map(|pair| {
                let mut joined = pair[0];
                pair.iter().skip(1).for_each(|other| joined.add(*other));
                joined
            })
            .collect();
    }

    /// Returns the values of all bins, or `None` without values.
    pub fn to_signal(&self, name: &str, unit: Unit) -> Option<SignalSeries> {
        let of = |value: fn(&Bin) -> f64| self.bins.iter().map(|bin| bin.value(value)).collect();
        let values = SignalValues::Rate {
            unit,
            mean: of(|bin| bin.sum / bin.samples as f64),
            min: of(|bin| bin.min),
            max: of(|bin| bin.max),
        };
        self.signal(name, values)
    }

    /// Returns how many values each bin has, per second; `None` without values.
    pub fn to_rate(&self, name: &str) -> Option<SignalSeries> {
        let per_s: Vec<Option<f64>> =
            self.bins.iter().map(|bin| Some(six_digits(bin.samples as f64 / self.length.as_secs_f64()))).collect();
        let values = SignalValues::Rate { unit: Unit::PerS, mean: per_s.clone(), min: per_s.clone(), max: per_s };
        // A bin without values has a rate of 0, so it counts as sampled.
        let signal = self.signal(name, values)?;
        Some(SignalSeries { samples: vec![1; self.bins.len()], ..signal })
    }

    fn signal(&self, name: &str, values: SignalValues) -> Option<SignalSeries> {
        (!self.bins.is_empty()).then(|| SignalSeries {
            name: name.to_owned(),
            from_us: 0.0,
            bin_us: self.length.as_secs_f64() * 1e6,
            samples: self.bins.iter().map(|bin| bin.samples).collect(),
            values,
        })
    }
}

/// Rounds to six significant digits, as all numbers in pictures are.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(bins: &TimeBins) -> (f64, Vec<u64>, Vec<Option<f64>>) {
        let signal = bins.to_signal("latency", Unit::Us).unwrap();
        let SignalValues::Rate { mean, .. } = signal.values else { unreachable!("it is a rate") };
        (signal.bin_us, signal.samples, mean)
    }

    #[test]
    fn bins_have_the_mean_of_their_values_and_gaps_have_none() {
        let mut bins = TimeBins::new(Duration::from_millis(10));
        for (ms, value) in [(0, 1.0), (9, 3.0), (25, 5.0)] {
            bins.add(Duration::from_millis(ms), value);
        }
        assert_eq!(means(&bins), (10_000.0, vec![2, 0, 1], vec![Some(2.0), None, Some(5.0)]));
        let SignalValues::Rate { mean, .. } = bins.to_rate("requests").unwrap().values else { unreachable!() };
        assert_eq!(mean, [Some(200.0), Some(0.0), Some(100.0)]);
        assert!(TimeBins::new(Duration::ZERO).to_signal("latency", Unit::Us).is_none());
    }

    #[test]
    fn long_runs_keep_all_values_in_a_bounded_number_of_bins() {
        let mut bins = TimeBins::new(Duration::from_millis(1));
        (0..100_000).for_each(|ms| bins.add(Duration::from_millis(ms), 1.0));
        let (bin_us, samples, _) = means(&bins);
        assert_eq!((bin_us, samples.iter().sum::<u64>()), (128_000.0, 100_000));
        bins.add(Duration::from_secs(u64::MAX / 4), 1.0);
        assert!(means(&bins).1.len() <= BINS_MAX);
    }
}
