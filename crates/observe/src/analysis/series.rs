//! A signal over time, in memory of fixed size for any duration.
//!
//! Time is divided into bins of equal length. If there are more bins than fit, neighbours are joined: each bin is twice
//! as long then. So a short run has fine bins, and the bins of a long run cover all of it.

/// Limit of the number of bins in a series.
pub const BINS_MAX: usize = 4096;
/// First length of a bin, as a binary logarithm: 2^12 cycles, about a microsecond.
const SHIFT_MIN: u32 = 12;
/// Mean number of samples that a bin must have to be drawn.
const SAMPLES_A_BIN: u64 = 4;

/// Values of a signal within one time bin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// Number of samples in the bin.
    pub samples: u64,
    /// Sum of the values in the bin, for the mean.
    pub sum: f64,
    /// Minimum of the values in the bin.
    pub min: f64,
    /// Maximum of the values in the bin.
    pub max: f64,
    /// Last value in the bin.
    pub last: f64,
}

impl Bin {
    #[inline(always)]
    fn record(&mut self, value: f64) {
        self.join(&Bin { samples: 1, sum: value, min: value, max: value, last: value });
    }

    /// Adds `later`, the bin that follows this bin in time.
    fn join(&mut self, later: &Bin) {
        if later.samples == 0 {
            return;
        }
        let first = self.samples == 0;
        self.samples += later.samples;
        self.sum += later.sum;
        self.min = if first { later.min } else { self.min.min(later.min) };
        self.max = if first { later.max } else { self.max.max(later.max) };
        self.last = later.last;
    }

    /// Returns the mean of the samples in the bin; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum / self.samples as f64)
    }
}

#[derive(Clone, Debug)]
pub struct Series {
    bins: Box<[Bin]>,
    /// Start of the first bin, in cycles; 0 before the first sample.
    origin: u64,
    shift: u32,
    used: usize,
}

impl Default for Series {
    fn default() -> Self {
        Self { bins: vec![Bin::default(); BINS_MAX].into(), origin: 0, shift: SHIFT_MIN, used: 0 }
    }
}

impl Series {
    /// Adds the signal's value at the time `at_cycles`, which must not be earlier than the first recorded time.
    #[inline(always)]
    pub fn record(&mut self, at_cycles: u64, value: f64) {
        let bin = self.bin_index_for(at_cycles);
        self.bins[bin].record(value);
    }

    #[inline(always)]
    fn bin_index_for(&mut self, at_cycles: u64) -> usize {
        if self.used == 0 {
            self.origin = at_cycles;
        }
        let mut bin = self.unbounded_bin_index(at_cycles);
        while bin >= BINS_MAX {
            self.double_bin_length();
            bin = self.unbounded_bin_index(at_cycles);
        }
        self.used = self.used.max(bin + 1);
        bin
    }

    fn unbounded_bin_index(&self, at_cycles: u64) -> usize {
        (at_cycles.saturating_sub(self.origin) >> self.shift) as usize
    }

    fn double_bin_length(&mut self) {
        for bin in 0..BINS_MAX / 2 {
            let mut joined = self.bins[2 * bin];
            joined.join(&self.bins[2 * bin + 1]);
            self.bins[bin] = joined;
        }
        self.bins[BINS_MAX / 2..].fill(Bin::default());
        self.shift += 1;
        self.used = self.used.div_ceil(2);
    }

    /// Adds a later series of the same signal.
    pub fn append(&mut self, later: &Series) {
        for (at, bin) in later.bins().filter(|(_, bin)| bin.samples > 0) {
            let place = self.bin_index_for(at);
            self.bins[place].join(bin);
        }
    }

    /// Returns the length of a bin, in cycles.
    pub fn bin_cycles(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the bins, each with its start in cycles.
    pub fn bins(&self) -> impl Iterator<Item = (u64, &Bin)> {
        let start = |bin: usize| self.origin + ((bin as u64) << self.shift);
        self.bins[..self.used].iter().enumerate().map(move |(number, bin)| (start(number), bin))
    }

    /// Returns the length of a bin, and the bins with their starts in cycles. Bins are at least [`SAMPLES_A_BIN`] times
    /// as long as the mean distance of samples, so a bin without samples shows that the signal was not read.
    pub fn bins_for_drawing(&self) -> (u64, Vec<(u64, Bin)>) {
        let samples: u64 = self.bins[..self.used].iter().map(|bin| bin.samples).sum();
        let wanted = SAMPLES_A_BIN * self.used as u64;
        let joined = wanted.div_ceil(samples.max(1)).max(1) as usize;
        let join = |bins: &[Bin]| {
            let mut whole = Bin::default();
            bins.iter().for_each(|bin| whole.join(bin));
            whole
        };
        let length = (joined as u64) << self.shift;
        let starts = (0..).map(|bin| self.origin + bin * length);
        (length, starts.zip(self.bins[..self.used].chunks(joined).map(join)).collect())
    }

    /// Resets the series to empty.
    pub fn clear(&mut self) {
        self.bins[..self.used].fill(Bin::default());
        (self.origin, self.shift, self.used) = (0, SHIFT_MIN, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bins_get_longer_as_time_goes_on() {
        let mut series = Series::default();
        series.record(1_000, 5.0);
        series.record(1_000 + (1 << SHIFT_MIN), 7.0);
        assert_eq!(series.bins().count(), 2);
        series.record(1_000 + ((BINS_MAX as u64) << SHIFT_MIN), 9.0);
        assert_eq!(series.bin_cycles(), 2 << SHIFT_MIN);
        let filled: Vec<_> = series.bins().filter(|(_, bin)| bin.samples > 0).collect();
        assert_eq!(filled[0], (1_000, &Bin { samples: 2, sum: 12.0, min: 5.0, max: 7.0, last: 7.0 }));
        assert_eq!(filled[1].1.last, 9.0);
    }

    #[test]
    fn bins_that_are_drawn_have_no_holes_between_samples() {
        let mut series = Series::default();
        (0..40).for_each(|number| series.record(500 + (number << SHIFT_MIN) * 3 / 2, number as f64));
        assert!(series.bins().any(|(_, bin)| bin.samples == 0));
        let (length, bins) = series.bins_for_drawing();
        assert_eq!(length, 6 << SHIFT_MIN);
        assert!(bins.iter().all(|(_, bin)| bin.samples > 0), "{bins:?}");
        assert_eq!(bins.iter().map(|(_, bin)| bin.samples).sum::<u64>(), 40);
        assert_eq!((bins[1].0, bins[1].1.last), (500 + length, 7.0));
        (0..10_000).for_each(|number| series.record(500 + (59 << SHIFT_MIN) + number % 2, 1.0));
        assert_eq!(series.bins_for_drawing().0, series.bin_cycles());
    }

    proptest! {
        #[test]
        fn no_sample_is_lost_where_two_series_are_joined(
            steps in prop::collection::vec((0_u64..10_000_000, 0_u32..1000), 1..200),
            cut in 0_usize..200,
        ) {
            let (mut whole, mut first, mut second) = (Series::default(), Series::default(), Series::default());
            let mut at = 77;
            for (number, (step, value)) in steps.iter().enumerate() {
                at += step;
                whole.record(at, f64::from(*value));
                if number < cut { &mut first } else { &mut second }.record(at, f64::from(*value));
            }
            first.append(&second);
            for series in [&whole, &first] {
                let samples: u64 = series.bins().map(|(_, bin)| bin.samples).sum();
                let sum: f64 = series.bins().map(|(_, bin)| bin.sum).sum();
                prop_assert_eq!(samples, steps.len() as u64);
                prop_assert_eq!(sum, steps.iter().map(|(_, value)| f64::from(*value)).sum::<f64>());
                let last = series.bins().filter(|(_, bin)| bin.samples > 0).last().unwrap();
                prop_assert_eq!(last.1.last, f64::from(steps.last().unwrap().1));
            }
        }
    }
}
