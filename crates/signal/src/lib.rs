//! Channels in shared memory: where signals are written and read.
//!
//! A *signal* is a value that changes with time; a *channel* is the place where it can
//! be read. The channels of this crate are plain cache lines that one party stores to
//! and others load from, with no lock and no system call on either side (thesis "SHIM
//! and Its Applications", section 4.2.1):
//!
//! - [`EventSlot`]: the latest event of a thread or a program, overwritten by the next.
//! - [`LaneWord`]: what runs on a lane; the kernel program writes it at each switch.
//! - [`HoldWord`]: how a batch lane is held; the lane's holder and the kernel program
//!   move it in turn, in a handshake that misses no start of the service.
//! - [`RequestWord`]: which request a lane works on; [`ServiceWord`]: how many wait.
//! - [`EmitHead`], [`EmitThread`], [`EmitEvent`]: requests, as a service emits them itself.
//! - [`SignalsHead`], [`EmittedSignal`]: tags and counters, as a program emits them itself.
//! - [`LaneTerms`], [`GateWord`]: on what terms a batch lane is lent, and what batch that checks
//!   for itself made of them.
//!
//! `abi/*.h` are the wire format; the types here mirror them, with
//! their offsets asserted at compile time and compared with a C compiler's in the tests.
//! [`view()`] turns mapped memory into them. Everything in shared memory is an atomic, so
//! no writer, however wrong, can cause undefined behaviour in a reader.
//!
//! This crate is linked into other people's services: it has no dependencies, needs no
//! `std`, allocates nothing, takes time as an argument, and must not know who decides
//! anything from what it carries.
//!
//! Its orderings are checked by exhaustive search:
//! `RUSTFLAGS="--cfg loom" cargo test -p sidelane-signal --release --test loom`.

#![warn(missing_docs)]
#![no_std]

#[cfg(test)]
extern crate std;

mod emit;
#[cfg(not(loom))]
mod emit_signal;
mod gate;
mod histogram;
mod hold;
#[cfg(any(test, loom))]
pub mod kernel;
mod lane;
mod request;
mod slot;
mod stamp;
mod sync;
#[cfg(not(loom))]
mod view;

pub use emit::{
    EMIT_EVENTS, EMIT_MAGIC, EMIT_NAME, EMIT_THREADS, EMIT_VERSION, EmitEvent, EmitHead, EmitKind, EmitThread, Emitted,
};
#[cfg(not(loom))]
pub use emit_signal::{
    EmittedKind, EmittedSignal, SIGNAL_NAME_BYTES, SIGNAL_NAMES, SIGNALS, SIGNALS_MAGIC, SIGNALS_NAME, SIGNALS_VERSION,
    SignalsHead,
};
pub use gate::{GATE_ENV, GATE_HIST_BUCKETS, GATE_PARTNERS, GATE_VERSION, GateWord, LaneTerms};
pub use histogram::{hist_bucket, hist_record};
pub use hold::{HoldState, HoldWord, UnknownHoldState};
pub use lane::{LaneClass, LaneSnapshot, LaneWord, UnknownLaneClass};
pub use request::{RequestWord, RunningRequest, ServiceWord};
pub use slot::{Event, EventSlot, PAYLOAD_WORDS, Payload, Poll, SlotReader, SlotWriter};
#[cfg(not(loom))]
pub use view::{Shared, view};
