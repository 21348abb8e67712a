//! Formats of channels in shared memory, through which programs exchange signals.
//!
//! A *signal* is a value that changes with time; a *channel* is the place where it is read. The channels of this crate
//! are cache lines. One side stores to them and others load from them, without a lock or a system call on either side
//! (thesis "SHIM and Its Applications", section 4.2.1):
//!
//! - [`EventSlot`]: the latest event of a thread or a program; the next event overwrites it.
//! - [`LaneWord`]: the thread that runs on a lane; the kernel program writes it at each context switch.
//! - [`HoldWord`]: the state of a batch lane; the lane's holder and the kernel program change it, in a handshake that
//!   misses no start of the service.
//! - [`RequestWord`]: the request that a lane works on; [`ServiceWord`]: the number of requests that wait.
//! - [`EmitHead`], [`EmitThread`], [`EmitEvent`]: requests that a service emits itself.
//! - [`SignalsHead`], [`EmittedSignal`]: tags and counters that a program emits itself.
//! - [`HazardWord`]: the present reasons why a server is slow, for the proxy in front of it.
//! - [`StatsLine`]: events of requests that a service writes to a pipe, as text.
//! - [`LaneLimits`], [`GateWord`]: the lending limits of a batch lane, and the accounting of
//!   batch that checks its own lane.
//!
//! `abi/*.h` are the wire format. The types here mirror them; their offsets are asserted at compile time and compared
//! with a C compiler's in the tests. [`view()`] turns mapped memory into them. All fields in shared memory are atomics,
//! so a faulty writer cannot cause undefined behaviour in a reader.
//!
//! [`mod@sample`] turns the words of a lane into the input of policies; [`nap`] waits on a lane.
//!
//! This crate is linked into services and batch programs. So it needs no `std`, allocates nothing, and takes the time as
//! an argument. It depends on `sidelane-policy` alone, whose observation it fills.
//!
//! The memory orderings of this crate are checked by exhaustive search: `RUSTFLAGS="--cfg loom" cargo test -p
//! sidelane-formats --release --test loom`.
//!
//! # Invariants
//!
//! - Each public layout is the same in C and in Rust (`tests/layout.rs`: `c_and_rust_agree`).
//! - A reader never takes a torn event for a whole one (`tests/loom.rs`: `two_events_are_never_mixed`).
//! - A holder that goes to sleep misses no start of the service (`tests/loom.rs`:
//!   `a_start_that_races_with_release_and_switch_is_noticed`, `a_visit_that_races_with_a_release_is_noticed`).
//! - A holder whose sleep ends by a timer misses no summons (`tests/loom.rs`:
//!   `a_summons_that_races_with_the_end_of_a_sleep_is_not_lost`).
//! - Batch and service that start together cause one summons (`tests/loom.rs`:
//!   `batch_and_service_that_start_together_ring_once`).
//! - Holder and batch observe the same, by the same code (`src/sample.rs`:
//!   `several_requests_give_last_start_and_oldest_arrival`).
//! - A nap ends at a write or by its time (`src/nap.rs`: `nap_ends_without_a_write`).
//! - Text that a service writes to a pipe is read without a panic (`src/stats.rs`:
//!   `any_bytes_are_read_without_a_panic`).
//! - No dependency but `sidelane-policy`, no allocation, no system call: the crate is no-std; else *not guarded*.

#![warn(missing_docs)]
#![no_std]

#[cfg(test)]
extern crate std;

mod emit;
#[cfg(not(loom))]
mod emit_signal;
mod gate;
#[cfg(not(loom))]
mod hazard;
mod histogram;
mod hold;
#[cfg(any(test, loom))]
pub mod kernel;
mod lane;
#[cfg(not(loom))]
pub mod nap;
mod request;
#[cfg(not(loom))]
pub mod sample;
mod slot;
mod stamp;
#[cfg(not(loom))]
mod stats;
mod sync;
mod token;
#[cfg(not(loom))]
mod view;

pub use emit::{
    EMIT_EVENTS, EMIT_MAGIC, EMIT_NAME, EMIT_THREADS, EMIT_VERSION, EmitEvent, EmitHead, EmitKind, EmitThread,
    EmittedEvent,
};
#[cfg(not(loom))]
pub use emit_signal::{
    EmittedKind, EmittedSignal, SIGNAL_NAME_BYTES, SIGNAL_NAMES, SIGNALS, SIGNALS_MAGIC, SIGNALS_NAME, SIGNALS_VERSION,
    SignalsHead,
};
pub use gate::{GATE_ENV, GATE_HIST_BUCKETS, GATE_PARTNERS, GATE_VERSION, GateWord, LaneLimits};
#[cfg(not(loom))]
pub use hazard::{HAZARD_MAGIC, HAZARD_SERVERS, HAZARD_VERSION, HazardBit, HazardHead, HazardSnapshot, HazardWord};
pub use histogram::{HIST_SUB_BITS, hist_bucket, hist_record};
pub use hold::{HoldState, HoldWord, UnknownHoldState};
pub use lane::{LaneClass, LaneSnapshot, LaneWord, UnknownLaneClass};
pub use request::{RequestWord, RunningRequest, ServiceWord};
pub use slot::{Event, EventSlot, PAYLOAD_WORDS, Payload, Poll, SlotReader, SlotWriter};
#[cfg(not(loom))]
pub use stats::{STATS_LINE_MAX, StatsClock, StatsLine, StatsLines};
pub use token::take_tokens;
#[cfg(not(loom))]
pub use view::{Shared, view};
