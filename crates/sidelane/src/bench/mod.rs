//! Benches: what Sidelane itself costs and leaks, as ratios and differences of interleaved runs.

pub mod hold;
pub mod median;
