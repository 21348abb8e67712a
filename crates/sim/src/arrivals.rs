//! When requests arrive: open-loop, so a slow service does not slow its clients.

use std::sync::Arc;

use crate::rng::Rng;
use crate::time::Nanos;

/// How requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Poisson arrivals at one rate.
    Poisson {
        /// The mean time between two requests.
        gap_ns: f64,
    },
    /// Poisson arrivals at two rates in turn, each for an exponentially distributed time.
    Bursty {
        /// The mean gap in calm periods.
        calm_gap_ns: f64,
        /// The mean gap in bursts.
        burst_gap_ns: f64,
        /// The mean length of calm periods.
        calm_ns: f64,
        /// The mean length of bursts.
        burst_ns: f64,
    },
    /// Recorded gaps, repeated.
    Trace(Arc<[Nanos]>),
}

impl Arrivals {
    /// The mean time between two requests.
    pub fn mean_gap_ns(&self) -> f64 {
        match self {
            Self::Poisson { gap_ns } => *gap_ns,
            Self::Bursty { calm_gap_ns, burst_gap_ns, calm_ns, burst_ns } => {
                let requests = calm_ns / calm_gap_ns + burst_ns / burst_gap_ns;
                (calm_ns + burst_ns) / requests
            }
            Self::Trace(gaps) => gaps.iter().map(|ns| *ns as f64).sum::<f64>() / gaps.len().max(1) as f64,
        }
    }

    /// The same pattern with another mean gap.
    pub fn with_mean_gap(mut self, mean_gap_ns: f64) -> Self {
        let factor = mean_gap_ns / self.mean_gap_ns();
        match &mut self {
            Self::Poisson { gap_ns } => *gap_ns *= factor,
            Self::Bursty { calm_gap_ns, burst_gap_ns, .. } => {
                *calm_gap_ns *= factor;
                *burst_gap_ns *= factor;
            }
            Self::Trace(gaps) => *gaps = gaps.iter().map(|gap| (*gap as f64 * factor) as Nanos).collect(),
        }
        self
    }
}

/// The client, with its position in the pattern.
#[derive(Clone, Debug)]
pub struct Client {
    arrivals: Arrivals,
    bursting: bool,
    /// Remaining time of the calm period or burst.
    left_ns: f64,
    next: usize,
}

impl Client {
    /// A client at the beginning of `arrivals`.
    pub fn new(arrivals: Arrivals) -> Self {
        Self { arrivals, bursting: true, left_ns: 0.0, next: 0 }
    }

    /// The time to the next request.
    #[inline]
    pub fn gap_ns(&mut self, rng: &mut Rng) -> Nanos {
        match &self.arrivals {
            Arrivals::Poisson { gap_ns } => (gap_ns * rng.exponential()) as Nanos,
            Arrivals::Bursty { .. } => self.bursty_gap_ns(rng),
            Arrivals::Trace(gaps) => {
                let gap = gaps[self.next];
                self.next = (self.next + 1) % gaps.len();
                gap
            }
        }
    }

    /// Crosses as many calm periods and bursts as needed. A gap that does not fit is drawn anew,
    /// which is allowed because exponential gaps have no memory.
    fn bursty_gap_ns(&mut self, rng: &mut Rng) -> Nanos {
        let Arrivals::Bursty { calm_gap_ns, burst_gap_ns, calm_ns, burst_ns } = self.arrivals else { return 0 };
        let mut passed_ns = 0.0;
        loop {
            let mean_ns = if self.bursting { burst_gap_ns } else { calm_gap_ns };
            let gap_ns = mean_ns * rng.exponential();
            if gap_ns <= self.left_ns {
                self.left_ns -= gap_ns;
                return (passed_ns + gap_ns) as Nanos;
            }
            passed_ns += self.left_ns;
            self.bursting = !self.bursting;
            self.left_ns = rng.exponential() * if self.bursting { burst_ns } else { calm_ns };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn mean_gap_ns(arrivals: &Arrivals) -> f64 {
        let (mut client, mut rng) = (Client::new(arrivals.clone()), Rng::new(5, Stream::Arrivals));
        (0..400_000).map(|_| client.gap_ns(&mut rng) as f64).sum::<f64>() / 400_000.0
    }

    #[test]
    fn gaps_have_the_mean_they_should() {
        let bursty = Arrivals::Bursty { calm_gap_ns: 1e6, burst_gap_ns: 1e5, calm_ns: 2e7, burst_ns: 5e6 };
        for arrivals in [Arrivals::Poisson { gap_ns: 1e6 }, bursty, Arrivals::Trace([5_000, 10_000, 90_000].into())] {
            for arrivals in [arrivals.clone(), arrivals.with_mean_gap(3e6)] {
                let (mean, wanted) = (mean_gap_ns(&arrivals), arrivals.mean_gap_ns());
                assert!((mean / wanted - 1.0).abs() < 0.02, "{arrivals:?}: {mean} {wanted}");
            }
        }
    }
}
