//! What the parts of a whole machine are in at a moment. None of them knows the [`super::Engine`], which moves them.

pub mod bound;
pub mod container;
pub mod control;
pub mod cpu;
pub mod guard;
pub mod serving;
pub mod visits;
