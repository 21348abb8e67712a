//! Code that tests of several crates share: mutated inputs for parsers, and reports of tests that cannot run here.
//!
//! # Invariants
//!
//! - Kept inputs come first, unchanged (`src/fuzz/mod.rs`: `corpus_comes_first_and_unchanged`).
//! - The same seed gives the same inputs (`src/fuzz/mutation.rs`:
//!   `the_same_seed_gives_the_same_inputs_and_another_others`).

mod fuzz;
mod skip;

pub use fuzz::{INPUTS, MEMORY_MAX_BYTES, PARSER, SECONDS, SEED, fuzz};
pub use skip::{FILE, skip};
