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
    /// Poisson arrivals for a time, then none for a time, in turn. Each time is as likely as any other between two.
    OnOff {
        /// The mean gap while there are any.
        gap_ns: f64,
        /// The shortest and the longest time with arrivals.
        on_ns: (f64, f64),
        /// The shortest and the longest time without.
        off_ns: (f64, f64),
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
            Self::OnOff { gap_ns, on_ns, off_ns } => gap_ns * (middle(*on_ns) + middle(*off_ns)) / middle(*on_ns),
            Self::Trace(gaps) => gaps.iter().map(|ns| *ns as f64).sum::<f64>() / gaps.len().max(1) as f64,
        }
    }

    /// The same pattern with another mean gap.
    pub fn with_mean_gap(mut self, mean_gap_ns: f64) -> Self {
        let factor = mean_gap_ns / self.mean_gap_ns();
        match &mut self {
            Self::Poisson { gap_ns } | Self::OnOff { gap_ns, .. } => *gap_ns *= factor,
            Self::Bursty { calm_gap_ns, burst_gap_ns, .. } => {
                *calm_gap_ns *= factor;
                *burst_gap_ns *= factor;
            }
            Self::Trace(gaps) => *gaps = gaps.iter().map(|gap| (*gap as f64 * factor) as Nanos).collect(),
        }
        self
    }
}

fn middle((shortest, longest): (f64, f64)) -> f64 {
    0.5 * (shortest + longest)
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
            Arrivals::Bursty { .. } | Arrivals::OnOff { .. } => self.gap_in_turns_ns(rng),
            Arrivals::Trace(gaps) => {
                let gap = gaps[self.next];
                self.next = (self.next + 1) % gaps.len();
                gap
            }
        }
    }

    /// Crosses as many calm periods and bursts as needed. A gap that does not fit is drawn anew,
    /// which is allowed because exponential gaps have no memory.
    fn gap_in_turns_ns(&mut self, rng: &mut Rng) -> Nanos {
        let mut passed_ns = 0.0;
        loop {
            let gap_ns = self.mean_now_ns().map(|mean_ns| mean_ns * rng.exponential());
            if let Some(gap_ns) = gap_ns.filter(|gap_ns| *gap_ns <= self.left_ns) {
                self.left_ns -= gap_ns;
                return (passed_ns + gap_ns) as Nanos;
            }
            passed_ns += self.left_ns;
            self.bursting = !self.bursting;
            self.left_ns = self.turn_ns(rng);
        }
    }

    /// The mean gap in this turn; `None` if nothing arrives.
    fn mean_now_ns(&self) -> Option<f64> {
        match (&self.arrivals, self.bursting) {
            (Arrivals::Bursty { burst_gap_ns, .. }, true) => Some(*burst_gap_ns),
            (Arrivals::Bursty { calm_gap_ns, .. }, false) => Some(*calm_gap_ns),
            (Arrivals::OnOff { gap_ns, .. }, true) => Some(*gap_ns),
            _ => None,
        }
    }

    /// The length of a turn that begins.
    fn turn_ns(&self, rng: &mut Rng) -> f64 {
        match (&self.arrivals, self.bursting) {
            (Arrivals::Bursty { burst_ns, .. }, true) => rng.exponential() * burst_ns,
            (Arrivals::Bursty { calm_ns, .. }, false) => rng.exponential() * calm_ns,
            (Arrivals::OnOff { on_ns, .. }, true) => on_ns.0 + rng.unit() * (on_ns.1 - on_ns.0),
            (Arrivals::OnOff { off_ns, .. }, false) => off_ns.0 + rng.unit() * (off_ns.1 - off_ns.0),
            _ => 0.0,
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
        let on_off = Arrivals::OnOff { gap_ns: 1e5, on_ns: (1e7, 3e7), off_ns: (2e6, 4e6) };
        let trace = Arrivals::Trace([5_000, 10_000, 90_000].into());
        for arrivals in [Arrivals::Poisson { gap_ns: 1e6 }, bursty, on_off, trace] {
            for arrivals in [arrivals.clone(), arrivals.with_mean_gap(3e6)] {
                let (mean, wanted) = (mean_gap_ns(&arrivals), arrivals.mean_gap_ns());
                assert!((mean / wanted - 1.0).abs() < 0.02, "{arrivals:?}: {mean} {wanted}");
            }
        }
    }

    /// Between two times without arrivals there is one with them, as long as it should be.
    #[test]
    fn arrivals_are_on_and_off_for_as_long_as_they_should() {
        let arrivals = Arrivals::OnOff { gap_ns: 1e3, on_ns: (1e6, 2e6), off_ns: (3e5, 4e5) };
        let (mut client, mut rng) = (Client::new(arrivals), Rng::new(5, Stream::Arrivals));
        let (mut on_ns, mut offs) = (0, 0);
        client.gap_ns(&mut rng);
        for _ in 0..100_000 {
            let gap_ns = client.gap_ns(&mut rng);
            if gap_ns < 100_000 {
                on_ns += gap_ns;
                continue;
            }
            assert!((300_000..430_000).contains(&gap_ns), "{gap_ns}");
            assert!(offs == 0 || (950_000..2_000_000).contains(&on_ns), "{on_ns}");
            (on_ns, offs) = (0, offs + 1);
        }
        assert!(offs > 50, "{offs}");
    }
}
