//! The instrumented gate: batch looks at its lane itself, every few hundred instructions, and naps
//! in place while the service runs (Elfen, ATC'16 §3.3 and Fig. 9).
//!
//! It is the best of all gates: batch is off within a microsecond, no interrupt is sent, and the
//! service pays nothing. The price is that the batch program has to contain the checks. They get
//! there in one of four ways:
//!
//! - `gcc -pg`, with or without `-mfentry`: each function calls `mcount` or `__fentry__`;
//! - `gcc -finstrument-functions`: each calls `__cyg_profile_func_enter` and `_exit`;
//! - `runtime/c/sidelane_gate.h` in the program's own source;
//! - an agent in a virtual machine that compiles checks into its code.
//!
//! This library, preloaded or linked, brings what they call. It stays out of the way wherever it is
//! not wanted: without `SIDELANE_GATE` in the environment, or with one that does not lead to
//! Sidelane's arrays, every check says "not busy".
//!
//! # The check
//!
//! All checks of a process look at one word, [`ServiceWord::busy_lanes`], which the kernel program
//! counts up and down. It lies in a page at a fixed address of each module that checks ([`page`]),
//! over which the service's array is mapped, so a check is one load, one compare and one branch that
//! is hardly ever taken. On which lane the thread is, and whether that lane's service is the busy
//! one, is found out only on the slow path.
//!
//! # The promise
//!
//! A thread that checks promises to check often, and the kernel program then summons no holder for
//! it. The promise is made by evidence, at a thread's first check, never on suspicion: at first the
//! word is set though nothing is mapped over it, so that the first check of a process takes the slow
//! path, which sets the thread's bit and maps the word. Threads and processes that a promising
//! thread starts inherit its bit in the kernel, so that no function of the C library has to be
//! interposed for them; a new program has to make its own. A promise that is not kept is noticed by
//! the lane's holder, which then takes it back.
//!
//! # Rules
//!
//! A check happens anywhere: in a signal handler, in `malloc`, in a constructor, with a lock held.
//! So the slow path allocates nothing, takes no lock, keeps `errno` and all registers of callers
//! that do not expect a call, and never unwinds.
//!
//! [`ServiceWord::busy_lanes`]: sidelane_signal::ServiceWord::busy_lanes

#![warn(missing_docs)]

mod arrays;
mod chunk;
mod clock;
mod decide;
mod entry;
mod environment;
mod join;
mod lane;
mod page;
mod profile;
mod rest;
mod save;
mod slow;
mod thread;

pub use entry::{__cyg_profile_func_enter, __cyg_profile_func_exit, __fentry__, _mcount, mcount};
pub use join::{sidelane_check_address, sidelane_gate_join};
pub use slow::sidelane_gate_slow_path;
