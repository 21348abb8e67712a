//! State of the parts of a machine. No part knows the [`super::Engine`], which changes them.

pub mod core;
pub mod faults;
pub mod lane;
pub mod lending_limits;
