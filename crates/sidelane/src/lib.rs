//! The command line of Sidelane: options, and which feature carries each verb out.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;
pub mod verbs;
