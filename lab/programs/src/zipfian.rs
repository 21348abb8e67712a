//! Popularity of keys as in YCSB: few keys get many requests, most keys get almost none.
//!
//! A rank is drawn by the method of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD'94),
//! from ten thousand million ranks with the exponent 0.99. A hash of the rank then chooses the key, so that popular
//! keys are spread over the key range. The most popular key gets 3.8 % of all requests, however many keys there are.

/// Exponent of the Zipf distribution.
const THETA: f64 = 0.99;
/// Number of ranks to draw from.
const RANKS: f64 = 1e10;
/// Sum of `rank^-THETA` over all ranks.
const ZETA: f64 = 26.469_028_201_783_02;

/// Generator of keys below a given number, by a Zipf distribution.
#[derive(Debug, Clone, Copy)]
pub struct Zipfian {
    keys: u64,
    /// Constant `η` in the method of Gray et al.
    eta: f64,
}

impl Zipfian {
    /// Creates a generator for `keys` keys, at least one.
    pub fn new(keys: u64) -> Self {
        let zeta_2 = 1.0 + weight_of_second_rank();
        Self { keys, eta: (1.0 - (2.0 / RANKS).powf(1.0 - THETA)) / (1.0 - zeta_2 / ZETA) }
    }

    /// Returns the key for a random number `fraction` in [0, 1).
    pub fn key_at(&self, fraction: f64) -> u64 {
        hash(self.rank(fraction)) % self.keys
    }

    /// Returns the rank for a random number `fraction` in [0, 1); 0 is the most popular rank.
    fn rank(&self, fraction: f64) -> u64 {
        let weight = fraction * ZETA;
        if weight < 1.0 {
            0
        } else if weight < 1.0 + weight_of_second_rank() {
            1
        } else {
            (RANKS * (self.eta * fraction - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
        }
    }
}

/// Returns the probability of rank 1, divided by the probability of rank 0.
fn weight_of_second_rank() -> f64 {
    0.5_f64.powf(THETA)
}

/// Returns the FNV-1a hash of the eight bytes of a number, least significant first, reduced to 63 bits.
pub fn hash(number: u64) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let hash = number.to_le_bytes().into_iter().fold(BASIS, step);
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::rng::Rng;

    const DRAWS: usize = 400_000;

    fn draw_ranks() -> Vec<u64> {
        let (zipfian, mut rng) = (Zipfian::new(1000), Rng::new(3, 0));
        (0..DRAWS).map(|_| zipfian.rank(rng.next_f64())).collect()
    }

    /// Compares [`ZETA`] with the sum over all ranks: the first thousand ranks one by one, the others by an integral.
    #[test]
    fn zeta_is_the_sum_of_the_rank_weights() {
        let first: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-THETA)).sum();
        let power = 1.0 - THETA;
        let rest = (RANKS.powf(power) - 1000.5_f64.powf(power)) / power;
        assert!((first + rest - ZETA).abs() < 1e-3, "{first} + {rest}");
    }

    #[test]
    fn rank_frequency_matches_its_weight() {
        let ranks = draw_ranks();
        let share = |below: u64| ranks.iter().filter(|rank| **rank < below).count() as f64 / DRAWS as f64;
        for (below, tolerance) in [(1, 0.03), (2, 0.03), (10, 0.12), (1000, 0.05), (1_000_000, 0.02)] {
            let weights: f64 = match below {
                ..=1000 => (1..=below).map(|rank| (rank as f64).powf(-THETA)).sum(),
                _ => 100.0 * (below as f64).powf(0.01) - 99.42,
            };
            let wanted = weights / ZETA;
            assert!((share(below) / wanted - 1.0).abs() < tolerance, "{} of {wanted} below {below}", share(below));
        }
        assert!(ranks.iter().all(|rank| *rank < RANKS as u64));
    }

    #[test]
    fn popular_keys_are_spread_over_the_key_range() {
        let (zipfian, mut rng) = (Zipfian::new(1000), Rng::new(3, 0));
        let mut counts = HashMap::<u64, usize>::new();
        (0..DRAWS).for_each(|_| *counts.entry(zipfian.key_at(rng.next_f64())).or_default() += 1);
        assert!(counts.keys().all(|key| *key < 1000));
        let mut popular: Vec<(usize, u64)> = counts.iter().map(|(key, count)| (*count, *key)).collect();
        popular.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(popular[0].1, hash(0) % 1000);
        let share = popular[0].0 as f64 / DRAWS as f64;
        assert!((0.035..0.042).contains(&share), "the most popular key gets {share}");
        let lower_half = popular[..100].iter().filter(|(_, key)| *key < 500).count();
        assert!((25..75).contains(&lower_half), "{lower_half} of the 100 most popular keys are below 500");
    }

    /// Compares the hash of eight zero bytes with a value computed by hand from FNV's published basis, which is the
    /// hash of the empty string.
    #[test]
    fn hash_matches_published_fnv_1a() {
        let zeroes = (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, _| hash.wrapping_mul(0x0100_0000_01b3));
        assert_eq!(hash(0), (zeroes as i64).unsigned_abs());
        assert_ne!(hash(1), hash(256));
    }
}
