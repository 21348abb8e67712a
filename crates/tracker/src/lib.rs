//! The kernel's side of Sidelane: the kernel program of `bpf/`, how it is loaded, and the memory that it shares
//! with user space.
//!
//! Nothing here decides. Other rooms read lane words, hold words, request words and books through
//! [`tracker::LaneMemory`], and change what the kernel program goes by through [`tracker::Tracker`].

pub mod books;
pub mod counters;
pub mod floor;
pub mod gate_books;
pub mod histogram;
pub mod history;
pub mod identities;
pub mod interference;
pub mod kernel_work;
#[cfg(test)]
mod layout;
pub mod mapped;
pub mod promises;
pub mod requests;
pub mod scheduler;
pub mod shares;
pub mod stolen;
pub mod summons;
pub mod tale;
pub mod threads;
pub mod tracepoints;
pub mod tracker;
pub mod tracking;
pub mod turns;
