//! What the parts of a machine are in at a moment. None of them knows the [`super::Engine`], which moves them.

pub mod core;
pub mod faults;
pub mod lane;
pub mod lending_limits;
