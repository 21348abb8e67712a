//! A small seeded random generator: SplitMix64 (Steele, Lea, Flood, OOPSLA'14).
//!
//! Experiments compare runs with the same seed, so the numbers must never change with the version of a library.

/// Stream of pseudo-random numbers, fixed by its seed.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Returns the stream number `stream` of `seed`. Streams of one seed are independent: drawing more from one never
    /// changes another.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut namer = Rng { state: stream };
        let state = seed ^ namer.next_u64();
        Rng { state }
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a random number in [0, 1) with 53 random bits.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random number below `bound`, all equally likely. `bound` must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Returns a random number of the exponential distribution with the mean `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next_f64()).ln()
    }

    /// Returns a random rank below `count` by Zipf's law with exponent 1. The logarithm of the rank is uniform, so rank
    /// 0 is drawn about as often as ranks 1 and 2 together.
    pub fn zipf(&mut self, count: usize) -> usize {
        let rank = ((count + 1) as f64).powf(self.next_f64()) as usize - 1;
        rank.min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rng_matches_the_published_sequence() {
        let mut rng = Rng { state: 1234567 };
        assert_eq!(rng.next_u64(), 6457827717110365317);
        assert_eq!(rng.next_u64(), 3203168211198807973);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        assert_ne!(Rng::new(1, 0).next_u64(), Rng::new(1, 1).next_u64());
        assert_eq!(Rng::new(1, 1).next_u64(), Rng::new(1, 1).next_u64());
    }

    #[test]
    fn zipf_prefers_low_ranks_and_stays_in_range() {
        let mut rng = Rng::new(7, 0);
        let ranks: Vec<usize> = (0..10_000).map(|_| rng.zipf(1000)).collect();
        let first = ranks.iter().filter(|&&rank| rank == 0).count();
        assert!((800..1200).contains(&first), "rank 0 drawn {first} times");
        assert!(ranks.iter().all(|&rank| rank < 1000));
    }
}
