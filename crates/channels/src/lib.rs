//! Channels: the places where signals are read, found before the observer starts.
//!
//! # Invariants
//!
//! - A target's memory is read without a panic, whatever its bytes (`src/hsperf/format.rs`:
//!   `any_bytes_are_read_without_a_panic`).
//! - A file that shrinks reads as zero (`src/mapping.rs`: `shrunken_file_reads_as_zeros_and_is_reported_as_lost`).
//! - Nothing is written to a target: *not guarded*.
//! - A channel that would interrupt the lane is refused at high rates (in `src/perf.rs`): *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod app;
pub mod file;
pub mod hsperf;
pub mod lane;
mod mapping;
mod maps;
pub mod memory;
mod note;
pub mod perf;
pub mod signal;
pub mod symbols;

use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::mapping::Mapping;
use crate::note::ChannelNote;
use crate::signal::Kind;

/// The place of one signal.
pub struct Channel {
    /// The signal's name in every result.
    pub name: String,
    /// Tag or counter; rates are computed from counters.
    pub kind: Kind,
    /// How it is read.
    pub reader: Reader,
    /// The names of its values, if they are more than numbers.
    pub meaning: Option<Meaning>,
    /// What a reader of the result has to know, as in "reading it interrupts lane 1".
    pub notes: Vec<ChannelNote>,
}

/// Gives the name of a tag's value, after the observation; `None` for an unknown value.
pub type Meaning = Arc<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// How a channel is read.
pub enum Reader {
    /// A word of memory that this process shares with the target: one load.
    Word(Word),
    /// A hardware counter of the observer's own lane, read with RDPMC.
    Pmc(Box<dyn Pmc>),
    /// A place that needs a system call.
    Call(Box<dyn Call>),
}

/// Reads with a system call.
pub trait Call: Send {
    /// The value now. Must not allocate.
    fn read(&mut self) -> Result<u64, ChannelEnd>;

    /// Whether each read interrupts the observed lane.
    fn interrupts(&self) -> bool {
        false
    }
}

/// Reads with RDPMC.
pub trait Pmc: Send {
    /// The value now.
    fn read(&mut self) -> u64;
}

/// Why a channel can no longer be read. The observation ends; earlier samples stay valid.
#[derive(Debug)]
pub enum ChannelEnd {
    /// The target, or its memory, no longer exists.
    Target,
    /// The system's error.
    Error(io::Error),
}

/// The width of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Width {
    U8,
    U16,
    U32,
    U64,
}

impl Width {
    /// The width of `bytes`, if a word can have that many.
    pub fn of(bytes: Option<u64>) -> Option<Self> {
        match bytes? {
            1 => Some(Width::U8),
            2 => Some(Width::U16),
            4 => Some(Width::U32),
            8 => Some(Width::U64),
            _ => None,
        }
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        match self {
            Width::U8 => 1,
            Width::U16 => 2,
            Width::U32 => 4,
            Width::U64 => 8,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{}", 8 * self.bytes())
    }
}

/// A word of shared memory, and an object that keeps it mapped.
#[derive(Clone)]
pub struct Word {
    place: NonNull<u8>,
    width: Width,
    mapping: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the place is only read, atomically, and stays mapped as long as the mapping is kept.
unsafe impl Send for Word {}

impl Word {
    /// A word at `place`.
    ///
    /// # Safety
    ///
    /// `place` must be aligned to `width`, and readable as long as `mapping` is kept, whatever its
    /// owner does. A file that could shrink is not allowed.
    pub unsafe fn new(place: NonNull<u8>, width: Width, mapping: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(place.as_ptr().addr().is_multiple_of(width.bytes()), "an aligned word");
        Self { place, width, mapping }
    }

    /// The value now.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        let place = self.place.as_ptr();
        // SAFETY: aligned and readable, by the contract of `new`.
        unsafe {
            match self.width {
                Width::U64 => AtomicU64::from_ptr(place.cast()).load(Ordering::Relaxed),
                Width::U32 => AtomicU32::from_ptr(place.cast()).load(Ordering::Relaxed).into(),
                Width::U16 => AtomicU16::from_ptr(place.cast()).load(Ordering::Relaxed).into(),
                Width::U8 => AtomicU8::from_ptr(place).load(Ordering::Relaxed).into(),
            }
        }
    }

    /// The value now, of a 64-bit word.
    ///
    /// # Panics
    ///
    /// If the word has another width.
    #[inline(always)]
    pub fn read_u64(&self) -> u64 {
        assert!(self.width == Width::U64, "a word of 64 bits");
        // SAFETY: aligned and readable, by the contract of `new`.
        unsafe { AtomicU64::from_ptr(self.place.as_ptr().cast()).load(Ordering::Relaxed) }
    }

    /// How many bytes it has.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Whether its file lost the page of the word; the word then reads as zero.
    pub fn is_lost(&self) -> bool {
        (*self.mapping).downcast_ref::<Mapping>().is_some_and(Mapping::is_lost)
    }
}

/// The error to report if none of several processes can be read. Errors for which `says_little`
/// holds, such as that of a shell in front of the program, come last.
fn most_telling<E>(errors: Vec<E>, says_little: fn(&E) -> bool) -> Option<E> {
    let (little, much): (Vec<E>, Vec<E>) = errors.into_iter().partition(says_little);
    much.into_iter().chain(little).next()
}

/// Adds the process to the channel's name, if there are several processes.
fn several(channel: &mut Channel, pid: u32) {
    channel.name = format!("{}@{pid}", channel.name);
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.kind)
    }
}
