//! Sidelane's laboratory: the demo, benches, the papers' figures and what they run on. It measures the product as users
//! get it, and the product knows nothing of it.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bench;
pub mod cli;
pub mod demo;
pub mod experiment;
pub mod programs;
pub mod verbs;
