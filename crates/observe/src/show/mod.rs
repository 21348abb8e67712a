//! Output of an observation: a line while it runs, the result, its pictures and a trace.

pub mod outcome;
pub mod pictures;
mod terminal;
pub mod trace;
pub mod view;
