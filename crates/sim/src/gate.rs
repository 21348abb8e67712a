//! Latencies of gates: how fast batch gets off a lane, and back on.
//!
//! Latencies are lognormal, fitted to the two percentiles that `sidelane doctor` measures, and represented by [`STEPS`]
//! quantiles. So a reaction has an upper bound that tests can check. They are drawn from a table, since a reaction
//! happens several times in each request.

use std::sync::{Arc, OnceLock};

use crate::rng::Rng;
use crate::time::{Nanos, US};

/// Number of entries in the table of a latency.
const STEPS: usize = 1024;
/// 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874_040_841;

/// Distribution of a random latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// Quantiles of the distribution; a single one if the latency is constant.
    table: Arc<[Nanos]>,
}

impl Latency {
    /// Returns a latency that is always the same.
    pub fn constant(ns: Nanos) -> Self {
        Self { table: [ns].into() }
    }

    /// Returns a lognormal latency with these percentiles.
    pub fn from_percentiles(p50_ns: Nanos, p99_ns: Nanos) -> Self {
        if p50_ns == 0 || p99_ns <= p50_ns {
            return Self::constant(p50_ns.max(p99_ns));
        }
        let sigma = libm::log(p99_ns as f64 / p50_ns as f64) / Z99;
        let quantile = |z: &f64| (p50_ns as f64 * libm::exp(sigma * z)) as Nanos;
        Self { table: normal_quantiles().iter().map(quantile).collect() }
    }

    /// Draws a random latency, in nanoseconds.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        match &*self.table {
            [ns] => *ns,
            table => table[rng.below(STEPS as u32) as usize],
        }
    }

    /// Returns the longest possible latency, in nanoseconds.
    pub fn longest_ns(&self) -> Nanos {
        self.table.last().copied().unwrap_or(0)
    }
}

/// Returns the quantiles of the normal distribution at the middle of each of [`STEPS`] equal parts.
fn normal_quantiles() -> &'static [f64] {
    static QUANTILES: OnceLock<Vec<f64>> = OnceLock::new();
    QUANTILES.get_or_init(|| (0..STEPS).map(|step| quantile((step as f64 + 0.5) / STEPS as f64)).collect())
}

/// Computes a quantile of the normal distribution by bisection, since it runs only once.
fn quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        let below = 0.5 * libm::erfc(-middle / core::f64::consts::SQRT_2);
        if below < probability { low = middle } else { high = middle }
    }
    low
}

/// Mechanism that gets batch off a lane and back on, described by its latencies and costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Time from the service's start to batch's last instruction.
    pub off: Latency,
    /// Time from the policy's decision to batch's next instruction.
    pub on: Latency,
    /// Cost of a summons for the request whose start sends it, in nanoseconds.
    pub lc_cost_ns: Nanos,
    /// Whether batch itself asks the policy while its lane is lent. Then batch sees each change of the requests at
    /// once, and a check that changes nothing costs no time.
    pub batch_looks: bool,
}

impl Gate {
    /// Returns a gate without latency.
    pub fn ideal() -> Self {
        Self { off: Latency::constant(0), on: Latency::constant(0), lc_cost_ns: 0, batch_looks: false }
    }

    /// Returns the lane holder as a gate, measured on a virtual machine: 4.4 µs (p99 11 µs) off, 1.5 µs on; a wakeup
    /// costs the service 2 µs.
    pub fn holder() -> Self {
        let (off, on) = (Latency::from_percentiles(4_400, 11_000), Latency::from_percentiles(1_500, 4_000));
        Self { off, on, lc_cost_ns: 2 * US, batch_looks: false }
    }

    /// Returns Elfen's nanonap as a gate (§3.2, Fig. 8): 3 285 cycles to sleep and 1 438 to wake at 2 GHz. Batch
    /// checks its own lane, so the service pays nothing.
    pub fn nanonap() -> Self {
        Self { off: Latency::constant(1_643), on: Latency::constant(719), lc_cost_ns: 0, batch_looks: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    #[test]
    fn drawn_latencies_have_the_given_percentiles() {
        let latency = Latency::from_percentiles(4_400, 11_000);
        let mut rng = Rng::new(1, Stream::Gate);
        let mut drawn: Vec<Nanos> = (0..100_000).map(|_| latency.draw(&mut rng)).collect();
        drawn.sort_unstable();
        let near = |ns: Nanos, wanted: f64| assert!((ns as f64 / wanted - 1.0).abs() < 0.03, "{ns} {wanted}");
        near(drawn[50_000], 4_400.0);
        near(drawn[99_000], 11_000.0);
        assert_eq!(*drawn.last().unwrap(), latency.longest_ns());
        assert!(latency.longest_ns() < 20_000);
    }

    #[test]
    fn latency_with_equal_percentiles_is_constant() {
        assert_eq!(Latency::from_percentiles(0, 0).longest_ns(), 0);
        assert_eq!(Latency::from_percentiles(7, 7), Latency::constant(7));
    }
}
