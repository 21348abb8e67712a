//! A mean and its confidence interval.

/// Quantile of the normal distribution that leaves 2.5 % on either side.
const Z_95: f64 = 1.96;

/// Mean with its 95 % confidence interval, for enough samples to assume a normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean of the samples.
    pub mean: f64,
    /// Half the width of the confidence interval.
    pub half_width: f64,
    /// Number of samples behind the estimate.
    pub count: u64,
}

impl Estimate {
    /// Computes the estimate from single samples; `None` for fewer than two samples, since one sample has no spread.
    pub fn from_samples(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::from_counted_samples(samples.into_iter().map(|sample| (sample, 1)))
    }

    /// Computes the estimate from samples with the number of times that each occurred.
    pub fn from_counted_samples(samples: impl IntoIterator<Item = (f64, u64)>) -> Option<Self> {
        // Uses Welford's algorithm, since sums of squares would lose their significant digits by cancellation.
        let (mut count, mut mean, mut squares) = (0_u64, 0.0, 0.0);
        for (value, times) in samples.into_iter().filter(|(_, times)| *times > 0) {
            count += times;
            let distance: f64 = value - mean;
            mean += distance * times as f64 / count as f64;
            squares += distance * (value - mean) * times as f64;
        }
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt())?;
        Some(Self { mean, half_width: Z_95 * deviation / (count as f64).sqrt(), count })
    }

    /// Multiplies the estimate by `factor`, to convert it to another unit.
    pub fn scaled_by(self, factor: f64) -> Self {
        Self { mean: self.mean * factor, half_width: self.half_width * factor, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    #[test]
    fn mean_and_interval_of_a_known_sample() {
        let estimate = Estimate::from_samples([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((estimate.mean, estimate.count), (5.0, 8));
        // The variance is 32/7, so the half width is 1.96 × √(32/7/8).
        assert!((estimate.half_width - 1.4816).abs() < 1e-3, "{}", estimate.half_width);
        assert_eq!(estimate.scaled_by(2.0).mean, 10.0);
    }

    #[test]
    fn counted_samples_equal_repeated_samples() {
        let counted = Estimate::from_counted_samples([(1.0, 3), (5.0, 0), (2.0, 1)]).unwrap();
        let single = Estimate::from_samples([1.0, 1.0, 2.0, 1.0]).unwrap();
        assert!((counted.mean - single.mean).abs() < 1e-12 && (counted.half_width - single.half_width).abs() < 1e-12);
    }

    #[test]
    fn one_sample_has_no_spread() {
        assert_eq!(Estimate::from_samples([7.0]), None);
        assert_eq!(Estimate::from_samples([]), None);
    }
}
