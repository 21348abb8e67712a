//! Undoing: what was changed on the machine is put right, whatever ends the agent.
//!
//! Each kind of change has its [`Undo`]. An [`UndoList`] keeps them in the order of the changes. The
//! [`guardian::Guardian`] is told of each before the change is made, and has a second process that undoes them all
//! should this one die. Nothing here knows of lanes.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod change;
pub mod claim;
pub mod cpu_mask;
pub mod groups;
pub mod guardian;
pub mod list;
pub mod newcomers;
pub mod own_threads;
pub mod threads;

pub use change::Undo;
pub use list::{Ticket, UndoList};
