//! SHIM: a microscope for running systems (thesis "SHIM and Its Applications", chapter 3).
//!
//! An observer thread on a lane of its own reads signals of programs on other lanes, as fast as the
//! caches allow. *Signals* are tags, counters and rates. They are read from *channels*: words of
//! shared memory, hardware counters, and files and system calls for slow signals.
//!
//! Start with `observer.rs`, how a signal is read, then `dte.rs`, which samples are valid.
//!
//! # Invariants
//!
//! - Exactly the skewed samples are discarded (`src/dte.rs`: `exactly_the_skewed_samples_are_discarded`).
//! - The finding comes from the analysis alone and is in the first ten lines (`crates/sidelane/tests/observed_logs.rs`:
//!   `report_fits_any_width_and_begins_with_its_finding`).
//! - Few events give no difference (`src/finding/tests.rs`: `few_events_give_no_difference_of_rates`; `src/cost.rs`:
//!   `pairs_with_few_events_give_no_slowdown`).
//! - Samples survive whatever ends the observation (`crates/sidelane/tests/observe.rs`:
//!   `samples_are_kept_when_the_target_ends`).
//! - A listing names what can be asked for (`crates/sidelane/tests/channels/main.rs`:
//!   `every_listed_signal_can_be_read`).
//! - The observer's loop allocates nothing, takes no lock and, for memory, makes no system call: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod analysis;
pub mod channel_list;
pub mod cost;
pub mod dte;
pub mod finding;
pub mod handover;
pub mod lane_choice;
pub mod list;
pub mod log;
pub mod note;
pub mod observed;
pub mod observed_program;
pub mod observer;
pub mod period;
pub mod replay;
pub mod sample;
pub mod session;
pub mod show;
pub mod turns;
