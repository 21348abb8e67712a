//! Pseudorandom numbers, the same for the same seed.

/// Generator of pseudorandom numbers.
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, below `bound`.
    pub fn next_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
