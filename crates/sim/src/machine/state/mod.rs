//! State of the parts of a whole machine. No part knows the [`super::MachineEngine`], which changes them.

pub mod container;
pub mod control;
pub mod cpu;
pub mod guard;
pub mod serving;
pub mod thread_binder;
pub mod visits;
