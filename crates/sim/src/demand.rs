//! The amount of work of a request.
//!
//! *Lucene-like.* The Elfen paper shows the demand of Lucene queries in its Fig. 1, without numbers. The text of the
//! paper about this figure determines a lognormal distribution that is cut off at the slowest query. A lane with 120
//! requests a second is 71 % busy (Fig. 5), so the mean is 5.9 ms. "Most requests are short, but a few are very long",
//! over one to two orders of magnitude. At 100 requests a second one worker has a 99th percentile of 76 ms (Fig. 4);
//! [`LUCENE_SIGMA`] is fitted to that. The 99th percentile of the model is then 55 ms at 70 requests a second, and 106
//! ms at 120. The paper has about 60 ms (§5) and 100 ms (§2).

use std::sync::Arc;

use crate::rng::Rng;
use crate::time::Nanos;

/// Mean work of a Lucene query, in nanoseconds: 0.71 ÷ 120 requests a second.
pub const LUCENE_MEAN_NS: f64 = 5_917_000.0;
/// Standard deviation of the logarithm of a Lucene query's work, fitted to the 76 ms of Elfen's Fig. 4.
pub const LUCENE_SIGMA: f64 = 0.95;
/// Work of the longest Lucene query, in multiples of the mean.
pub const LUCENE_CUT: f64 = 10.0;

/// Distribution of the work of requests, in nanoseconds on a lane of speed 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// The same work for each request.
    Constant(f64),
    /// Exponential distribution with this mean.
    Exponential(f64),
    /// Lognormal distribution exp(mu + sigma·N), drawn again if above the cut.
    Lognormal(Lognormal),
    /// One of two values, a frequent and a rare one.
    Bimodal {
        /// Frequent amount of work, in nanoseconds.
        short_ns: f64,
        /// Rare amount of work, in nanoseconds.
        long_ns: f64,
        /// Probability of the rare amount of work, 0 to 1.
        long_share: f64,
    },
    /// One of the recorded values, each with the same probability.
    Empirical(Arc<[Nanos]>),
}

/// A lognormal distribution that is cut off at a largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lognormal {
    mu: f64,
    sigma: f64,
    cut_ns: f64,
    mean_ns: f64,
}

impl Lognormal {
    /// Returns the distribution with this mean after the cut, and this standard deviation of the logarithm.
    pub fn new(mean_ns: f64, sigma: f64, cut_ns: f64) -> Self {
        let mut mu = libm::log(mean_ns) - sigma * sigma / 2.0;
        // The cut lowers the mean, and a change of mu changes the part that is cut, so mu is found
        // by iteration.
        for _ in 0..50 {
            mu += libm::log(mean_ns / truncated_lognormal_mean(mu, sigma, cut_ns));
        }
        Self { mu, sigma, cut_ns, mean_ns }
    }

    fn draw(&self, rng: &mut Rng) -> f64 {
        loop {
            let work_ns = libm::exp(self.mu + self.sigma * rng.normal());
            if work_ns <= self.cut_ns {
                return work_ns;
            }
        }
    }
}

/// Returns the mean of a lognormal distribution without the part above `cut`.
fn truncated_lognormal_mean(mu: f64, sigma: f64, cut: f64) -> f64 {
    let whole = libm::exp(mu + sigma * sigma / 2.0);
    if cut == f64::INFINITY {
        return whole;
    }
    let z = (libm::log(cut) - mu) / sigma;
    whole * normal_cdf(z - sigma) / normal_cdf(z)
}

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / core::f64::consts::SQRT_2)
}

impl Demand {
    /// Returns a distribution like that of Elfen's Lucene, with the mean `mean_ns`.
    pub fn lucene(mean_ns: f64) -> Self {
        Self::Lognormal(Lognormal::new(mean_ns, LUCENE_SIGMA, LUCENE_CUT * mean_ns))
    }

    /// Returns the mean of the distribution, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Constant(mean_ns) | Self::Exponential(mean_ns) => *mean_ns,
            Self::Lognormal(lognormal) => lognormal.mean_ns,
            Self::Bimodal { short_ns, long_ns, long_share } => short_ns + (long_ns - short_ns) * long_share,
            Self::Empirical(recorded) => {
                recorded.iter().map(|ns| *ns as f64).sum::<f64>() / recorded.len().max(1) as f64
            }
        }
    }

    /// Draws the work of one request, in nanoseconds: at least 1.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        let work_ns = match self {
            Self::Constant(work_ns) => *work_ns,
            Self::Exponential(mean_ns) => mean_ns * rng.exponential(),
            Self::Lognormal(lognormal) => lognormal.draw(rng),
            Self::Bimodal { short_ns, long_ns, long_share } => {
                if rng.happens(*long_share) {
                    *long_ns
                } else {
                    *short_ns
                }
            }
            Self::Empirical(recorded) => return recorded[rng.below(recorded.len() as u32) as usize].max(1),
        };
        (work_ns as Nanos).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    #[test]
    fn drawn_demands_have_the_mean_of_their_distribution() {
        let all = [
            Demand::Constant(5e5),
            Demand::Exponential(5e5),
            Demand::Lognormal(Lognormal::new(5e5, 1.0, f64::INFINITY)),
            Demand::lucene(5e5),
            Demand::Bimodal { short_ns: 1e5, long_ns: 2e6, long_share: 0.1 },
            Demand::Empirical([100_000, 400_000, 900_000].into()),
        ];
        for demand in all {
            let mut rng = Rng::new(3, Stream::Demand);
            let count = 500_000;
            let sum: f64 = (0..count).map(|_| demand.draw(&mut rng) as f64).sum();
            let (mean, wanted) = (sum / f64::from(count), demand.mean_ns());
            assert!((mean / wanted - 1.0).abs() < 0.01, "{demand:?}: {mean} {wanted}");
        }
    }

    #[test]
    fn lucene_demand_never_exceeds_its_maximum() {
        let demand = Demand::lucene(1e6);
        let mut rng = Rng::new(3, Stream::Demand);
        let longest = (0..200_000).map(|_| demand.draw(&mut rng)).max().unwrap();
        assert!((8_000_000..=10_000_000).contains(&longest), "{longest}");
    }
}
