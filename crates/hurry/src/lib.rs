//! `sidelane hurry`: moves long-running requests of a service to big cores, thread by thread (Nishtala et al.).
//!
//! [`sidelane_policy::hurryup`] decides. Here is what it is told and how it is carried out:
//!
//! - `work/`: which thread works on a request since when, from sockets, from the service's own word or from the paper's
//!   pipe.
//! - `session.rs`: looks, one after the other, and `pace.rs` when.
//! - `pool.rs`: the threads that work on requests, and the system calls that bind them to cores. The guardian knows what
//!   CPUs each thread had before any of them is bound.
//! - `sidelane_rollback::claim`: that nobody else moves them; `finder.rs`: the service's processes, looked for beside all that.
//! - `mapper.rs`: the policy between the two.
//!
//! The service is neither stopped nor signalled, and has its CPUs back at the end, however that comes.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod figures;
mod finder;
mod log;
mod mapper;
mod pace;
mod pool;
mod running;
mod session;
mod settings;
mod work;

pub use figures::{Figures, Summary, threshold_words};
pub use running::RunningHurry;
pub use session::run;
pub use settings::{HurryError, Settings, Sizes, Told, tuned};
