//! Random numbers: a stream of its own for each random quantity. So two settings of one experiment get the same
//! requests at the same times, whatever other numbers they draw.
//!
//! Logarithms and exponentials come from `libm`, whose code is the same on every machine. The functions of different
//! platforms differ in the last bit, and a simulation amplifies such a difference without limit.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// Purpose of a stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// Times between arrivals of requests.
    Arrivals = 1,
    /// Work of requests.
    Demand = 2,
    /// Choice of the queue of each request.
    Dispatch = 3,
    /// Reaction latencies of gates.
    Gate = 4,
    /// Occurrence of faults.
    Faults = 5,
    /// Times between submitted containers.
    Submissions = 6,
    /// Work of containers.
    ContainerWork = 7,
    /// Latencies of the controller of a whole machine.
    Control = 8,
}

/// Returns a seed for part `index` of an experiment, independent of the seeds of all other parts.
pub fn seed_of(seed: u64, index: u64) -> u64 {
    // SplitMix64's finaliser (Steele, Lea & Flood 2014) over a Weyl step.
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// Creates the stream `stream` of `seed`.
    pub fn new(seed: u64, stream: Stream) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed_of(seed, stream as u64)))
    }

    /// Draws a number above 0 and at most 1.
    #[inline]
    pub fn draw_unit_interval(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        ((self.0.next_u64() >> 11) + 1) as f64 * STEP
    }

    /// Draws a number below `count`, by Lemire's multiplication; its bias is below 2⁻³² for the counts used here.
    #[inline]
    pub fn below(&mut self, count: u32) -> u32 {
        ((u128::from(self.0.next_u64()) * u128::from(count)) >> 64) as u32
    }

    /// Returns true with this probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.draw_unit_interval() <= probability
    }

    /// Draws from the exponential distribution with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.draw_unit_interval())
    }

    /// Draws from the normal distribution with mean 0 and deviation 1, by Marsaglia's polar method.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.draw_unit_interval() - 1.0, 2.0 * self.draw_unit_interval() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_variance(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let count = 400_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            let value = draw();
            sum += value;
            squares += value * value;
        }
        let mean = sum / f64::from(count);
        (mean, squares / f64::from(count) - mean * mean)
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let mut rng = Rng::new(1, Stream::Demand);
        let near = |(mean, variance): (f64, f64), wanted: (f64, f64)| {
            assert!((mean - wanted.0).abs() < 0.01 && (variance - wanted.1).abs() < 0.02, "{mean} {variance}");
        };
        near(mean_and_variance(|| rng.draw_unit_interval()), (0.5, 1.0 / 12.0));
        near(mean_and_variance(|| rng.exponential()), (1.0, 1.0));
        near(mean_and_variance(|| rng.normal()), (0.0, 1.0));
        near(mean_and_variance(|| f64::from(rng.below(4))), (1.5, 1.25));
    }

    /// Checks that a stream repeats, and that streams and seeds differ.
    #[test]
    fn streams_repeat_and_differ_by_seed_and_purpose() {
        let first = |stream| Rng::new(7, stream).0.next_u64();
        assert_ne!(first(Stream::Arrivals), first(Stream::Demand));
        assert_eq!(first(Stream::Arrivals), Rng::new(7, Stream::Arrivals).0.next_u64());
        assert_ne!(seed_of(7, 0), seed_of(7, 1));
    }
}
