//! CPUs of control groups: a tree of groups is read, changed and restored as one.
//!
//! Versions 2 and 1 of cgroups accept different writes ([`plan`] follows the stricter one). They also give an empty
//! list a different meaning: in version 2 the group then has the CPUs of the group above it, in version 1 it can hold
//! no process.

pub mod plan;
mod tree;

pub use tree::{CpuListSnapshot, CpusetError, Tree, cpus_in_effect, restore_cpu_lists};
