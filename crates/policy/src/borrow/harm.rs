//! How much a request loses to batch beside it, from server times (for Fig. 9(d)).
//!
//! Problem. The figure compares a request's IPC beside batch with its IPC alone. Many virtual
//! machines have no counters. What they have is how long requests took, and that varies a
//! hundredfold from request to request whoever runs beside them.
//!
//! Approach. Of the requests that did not wait, some ran alone (the reference periods of
//! [`super::DynamicRefresh`]) and some beside batch for a part of their time. Which is which does
//! not depend on the request, so on the mean the two kinds have the same work to do, and
//!
//! ```text
//! harm = (mean server time beside − mean server time alone) ÷ mean time beside batch
//! ```
//!
//! is what one moment beside batch costs, however long the budget let them run together. A mean
//! of few is worth little: the estimate is raised by twice its standard error, and it is the worst,
//! [`Harm::FULL`], until there are [`SAMPLES_MIN`] of each kind. Old samples fade, so that it
//! follows the load and the batch program.

use crate::{Harm, Nanos};

/// Fewer of a kind say nothing.
const SAMPLES_MIN: f64 = 32.0;
/// The weight that a kind keeps at each new sample of it: some 1000 samples count.
const FADE: f64 = 0.999;

/// A request that has finished.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// From its start to its end.
    pub server_ns: Nanos,
    /// Of it, batch ran beside it.
    pub co_run_ns: Nanos,
    /// It had to wait for another.
    pub waited: bool,
}

/// Sums over samples that fade.
#[derive(Clone, Copy, Debug, Default)]
struct Faded {
    weight: f64,
    sum: f64,
    squares: f64,
    co_run: f64,
}

impl Faded {
    fn add(&mut self, server_ns: f64, co_run_ns: f64) {
        self.weight = self.weight * FADE + 1.0;
        self.sum = self.sum * FADE + server_ns;
        self.squares = self.squares * FADE + server_ns * server_ns;
        self.co_run = self.co_run * FADE + co_run_ns;
    }

    fn mean(&self) -> f64 {
        self.sum / self.weight
    }

    /// Of the mean, squared.
    fn error_squared(&self) -> f64 {
        let variance = (self.squares / self.weight - self.mean() * self.mean()).max(0.0);
        variance / self.weight
    }
}

/// Estimates the harm from requests that have finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct HarmMeter {
    alone: Faded,
    beside: Faded,
}

impl HarmMeter {
    /// Takes in one request, in any order.
    pub fn add(&mut self, request: &Finished) {
        let kind = match (request.waited, request.co_run_ns) {
            (true, _) => return,
            (false, 0) => &mut self.alone,
            (false, _) => &mut self.beside,
        };
        kind.add(request.server_ns as f64, request.co_run_ns as f64);
    }

    /// What is known so far, on the safe side.
    pub fn harm(&self) -> Harm {
        if self.alone.weight < SAMPLES_MIN || self.beside.weight < SAMPLES_MIN {
            return Harm::FULL;
        }
        let lost = self.beside.mean() - self.alone.mean();
        let error_squared = self.alone.error_squared() + self.beside.error_squared();
        let harm = (lost.max(0.0) + 2.0 * square_root(error_squared)) / (self.beside.co_run / self.beside.weight);
        Harm::from_ppm((harm * 1e6) as u32)
    }
}

/// Newton's method: `core` has no square root, and a few steps are plenty here.
fn square_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1 << 61) - (1 << 51));
    for _ in 0..4 {
        root = 0.5 * (root + x / root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of numbers below 1 that looks random.
    fn noise(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Works of 100 to 1900 µs beside batch that takes `harm` of the time, one in eight alone;
    /// batch leaves after `budget_ns`.
    fn measure(harm: f64, budget_ns: f64, count: usize) -> Harm {
        let (mut meter, mut seed) = (HarmMeter::default(), 7);
        for index in 0..count {
            let work_ns = 100_000.0 + 1_800_000.0 * noise(&mut seed);
            let co_run_ns = if index % 8 == 0 { 0.0 } else { budget_ns.min(work_ns / (1.0 - harm)) };
            let server_ns = (work_ns + harm * co_run_ns) as Nanos;
            meter.add(&Finished { server_ns, co_run_ns: co_run_ns as Nanos, waited: false });
        }
        meter.harm()
    }

    #[test]
    fn the_worst_is_assumed_until_enough_is_known() {
        assert_eq!(measure(0.2, 1e9, 100), Harm::FULL);
    }

    #[test]
    fn harm_is_found_whether_batch_stays_or_leaves_early() {
        for budget_ns in [1e9, 300_000.0] {
            for harm in [0.0, 0.2, 0.5] {
                let found = f64::from(measure(harm, budget_ns, 20_000).ppm()) / 1e6;
                assert!(found >= harm && found <= harm + 0.6, "{harm} {budget_ns}: {found}");
            }
        }
        let (little, much) = (measure(0.1, 1e9, 20_000), measure(0.5, 1e9, 20_000));
        assert!(little < much, "{little:?} {much:?}");
    }

    #[test]
    fn requests_that_waited_say_nothing() {
        let mut meter = HarmMeter::default();
        for index in 0..1000_u64 {
            meter.add(&Finished { server_ns: 1_000 + index, co_run_ns: index % 2, waited: true });
        }
        assert_eq!(meter.harm(), Harm::FULL);
    }

    #[test]
    fn roots() {
        for x in [1e-3_f64, 1.0, 2.0, 12_345.678, 9e18] {
            assert!((square_root(x) * square_root(x) / x - 1.0).abs() < 1e-9);
        }
        assert_eq!(square_root(0.0), 0.0);
    }
}
