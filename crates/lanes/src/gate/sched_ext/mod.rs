//! The gate `sched-ext`: the kernel's scheduler itself keeps batch off its lanes (Linux 6.12).
//!
//! Batch, and nothing else, is in the class SCHED_EXT, for which `bpf/scx/ops.h` is the scheduler.
//! It gives batch a lane only when the hold word and the request lanes say so. When the service
//! starts, the lane's CPU is kicked: it looks again, and batch is gone. Nobody has to be woken and
//! nobody has to occupy the lane, so a hold costs the core nothing, and for borrowing idle moments
//! user space does nothing at all.
//!
//! What can end it is the kernel: a scheduler that lets a thread wait for 30 s, fails, or is asked to
//! go (SysRq-S) is put out, and batch is an ordinary program again. Then holders take over.

mod available;
mod keeper;

pub use available::{Unavailable, available};
pub use keeper::{ExtKeeper, Successor};
