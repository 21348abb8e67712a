//! The CPUs of control groups: a tree of them is read, changed and given back as one.
//!
//! Versions 2 and 1 of cgroups differ in what they let one write ([`plan`] goes by the stricter one) and in what an
//! empty list means: in version 2 a group then has the CPUs of the group above it, in version 1 it can hold no
//! process.

pub mod plan;
mod tree;

pub use tree::{CpusetError, Found, Tree, cpus_in_effect, give_back};
