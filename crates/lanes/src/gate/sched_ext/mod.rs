//! The gate `sched-ext`: the kernel's scheduler itself keeps batch off its lanes (Linux 6.12).
//!
//! Batch, and no other program, is in the class SCHED_EXT; `bpf/scx/ops.h` is the scheduler of this class. It gives
//! batch a lane only if the hold word and the request lanes allow it. When the service starts, the lane's CPU is
//! kicked: the scheduler checks again, and batch stops. No keeper has to be woken or occupy the lane, so a hold costs
//! the core nothing. For the use of idle moments, user space does nothing at all.
//!
//! The kernel can end the scheduler: if a thread waits for 30 s, if the scheduler fails, or at SysRq-S. Batch is an
//! ordinary program then, and holders take over.

mod available;
mod keeper;

pub use available::{Unavailable, check_sched_ext_available};
pub use keeper::{ExtKeeper, HolderStarter};
