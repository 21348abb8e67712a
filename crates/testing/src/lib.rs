//! What tests of several crates share: mutated inputs for parsers, and how a test says that it cannot run here.

mod fuzz;
mod skip;

pub use fuzz::{INPUTS, MEMORY_MAX_BYTES, PARSER, SECONDS, SEED, fuzz};
pub use skip::{FILE, skip};
