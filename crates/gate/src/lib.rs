//! Instrumented gate: the batch program itself checks its lane every few hundred instructions, and naps in place while
//! the service runs (Elfen, ATC'16 §3.3 and Fig. 9).
//!
//! It is the fastest gate: batch is off within a microsecond, no interrupt is sent, and the service pays nothing. In
//! return the batch program has to contain the checks. There are four ways to insert them:
//!
//! - `gcc -pg`, with or without `-mfentry`: each function calls `mcount` or `__fentry__`;
//! - `gcc -finstrument-functions`: each function calls `__cyg_profile_func_enter` and `_exit`;
//! - `runtime/c/sidelane_gate.h` in the program's own source;
//! - an agent in a virtual machine that compiles checks into its code.
//!
//! This library, preloaded or linked, provides the functions that these call. Without `SIDELANE_GATE` in the
//! environment, or if the variable does not lead to Sidelane's arrays, every check says "not busy".
//!
//! # The check
//!
//! All checks of a process read one word, [`ServiceWord::busy_lanes`], in which the kernel program keeps the number of
//! busy lanes. The word lies in a page at a fixed address of each module that checks ([`page`]). The service's array is
//! mapped over that page, so a check is one load, one compare and one branch that is rarely taken. Only the slow path
//! finds out on which lane the thread is, and whether that lane's service is the busy one.
//!
//! # The promise
//!
//! A thread that checks promises to check often, and the kernel program then summons no holder for it. A thread makes
//! the promise by its first check, so a thread that never checks never promises. The first check must reach the slow
//! path, so the word is set although nothing is mapped over it yet. The slow path then sets the thread's bit and maps
//! the word. Threads and processes that a promising thread starts inherit its bit in the kernel, so no function of the
//! C library has to be interposed for them. A newly executed program has to make its own promise. If a thread does not
//! keep its promise, the lane's holder notices that and takes the promise back.
//!
//! # Rules
//!
//! A check can be anywhere: in a POSIX signal handler, in `malloc`, in a constructor, under a lock. So the slow path
//! allocates nothing, waits for no lock, and never unwinds. It keeps `errno` and all registers of callers that do not
//! expect a call.
//!
//! [`ServiceWord::busy_lanes`]: sidelane_formats::ServiceWord::busy_lanes
//!
//! # Invariants
//!
//! - A check that finds nothing is one load, one compare, one branch: *not guarded*; `sidelane-lab bench gate`
//!   measures it.
//! - The slow path keeps `errno` and every register (`crates/sidelane/tests/instrumented.rs`:
//!   `a_check_that_naps_leaves_its_callers_registers_alone`).
//! - The slow path waits for no lock (`src/decide.rs`: `held_lock_is_not_waited_for`).
//! - The slow path allocates nothing: *not guarded*.
//! - In a wrong environment every check says "not busy" (`src/environment.rs`: `malformed_environment_is_ignored`).
//! - `runtime/c`: without Sidelane a program is what it was (`crates/sidelane/tests/instrumented.rs`:
//!   `instrumented_programs_run_without_sidelane`).
//! - `runtime/java`: if a part is missing, the program runs on
//!   (`runtime/java/src/test/java/dev/sidelane/agent/AgentIT.java`: `aMissingLibraryIsSaidAndTheProgramRunsOn`).

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
