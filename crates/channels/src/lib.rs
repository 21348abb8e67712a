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

/// Place from which one signal is read.
pub struct Channel {
    /// Name of the signal in every result.
    pub name: String,
    /// Kind of the signal: tag or counter; rates are computed from counters.
    pub kind: Kind,
    /// Reader of the signal's value.
    pub reader: Reader,
    /// Function that names the values; `None` if they are only numbers.
    pub meaning: Option<Meaning>,
    /// Notes for the reader of the result, such as "reading it interrupts lane 1".
    pub notes: Vec<ChannelNote>,
}

/// Function that names a tag's value, called after the observation; `None` for an unknown value.
pub type Meaning = Arc<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// Way in which a channel is read.
pub enum Reader {
    /// Word of memory that this process shares with the target, read by one load.
    Word(Word),
    /// Hardware counter of the observer's own lane, read with RDPMC.
    Pmc(Box<dyn PmcReader>),
    /// Place that needs a system call to read.
    Call(Box<dyn SyscallReader>),
}

/// Reader that makes a system call.
pub trait SyscallReader: Send {
    /// Returns the value now. Must not allocate.
    ///
    /// # Errors
    /// When the channel can no longer be read.
    fn read(&mut self) -> Result<u64, ChannelEnd>;

    /// Returns whether each read interrupts the observed lane.
    fn interrupts_lane(&self) -> bool {
        false
    }
}

/// Reader that uses the RDPMC instruction.
pub trait PmcReader: Send {
    /// Returns the value of the counter now.
    fn read(&mut self) -> u64;
}

/// Reason why a channel can no longer be read. The observation ends; earlier samples stay valid.
#[derive(Debug)]
pub enum ChannelEnd {
    /// Target, or its memory, that no longer exists.
    Target,
    /// Error of the system.
    Error(io::Error),
}

/// Width of a word of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Width {
    U8,
    U16,
    U32,
    U64,
}

impl Width {
    /// Returns the width of a word of `bytes` bytes; `None` if no word has this length.
    pub fn from_bytes(bytes: Option<u64>) -> Option<Self> {
        match bytes? {
            1 => Some(Width::U8),
            2 => Some(Width::U16),
            4 => Some(Width::U32),
            8 => Some(Width::U64),
            _ => None,
        }
    }

    /// Returns the width in bytes.
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

/// Word of shared memory, with an object that keeps it mapped.
#[derive(Clone)]
pub struct Word {
    place: NonNull<u8>,
    width: Width,
    mapping: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the place is only read, atomically, and stays mapped as long as the mapping is kept.
unsafe impl Send for Word {}

impl Word {
    /// Makes a word at `address`.
    ///
    /// # Safety
    ///
    /// `address` must be aligned to `width`, and readable as long as `mapping` is kept, whatever its owner does. A file
    /// that could shrink is not allowed.
    pub unsafe fn new(address: NonNull<u8>, width: Width, mapping: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(address.as_ptr().addr().is_multiple_of(width.bytes()), "an aligned word");
        Self { place: address, width, mapping }
    }

    /// Returns the value of the word now.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        let place = self.place.as_ptr();
        // SAFETY: the word is aligned and readable, by the contract of `new`.
        unsafe {
            match self.width {
                Width::U64 => AtomicU64::from_ptr(place.cast()).load(Ordering::Relaxed),
                Width::U32 => AtomicU32::from_ptr(place.cast()).load(Ordering::Relaxed).into(),
                Width::U16 => AtomicU16::from_ptr(place.cast()).load(Ordering::Relaxed).into(),
                Width::U8 => AtomicU8::from_ptr(place).load(Ordering::Relaxed).into(),
            }
        }
    }

    /// Returns the value of a 64-bit word now.
    ///
    /// # Panics
    ///
    /// If the word has another width.
    #[inline(always)]
    pub fn read_u64(&self) -> u64 {
        assert!(self.width == Width::U64, "a word of 64 bits");
        // SAFETY: the word is aligned and readable, by the contract of `new`.
        unsafe { AtomicU64::from_ptr(self.place.as_ptr().cast()).load(Ordering::Relaxed) }
    }

    /// Returns the width of the word.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Returns whether the word's file has lost the page of the word; the word then reads as zero.
    pub fn is_page_lost(&self) -> bool {
        (*self.mapping).downcast_ref::<Mapping>().is_some_and(Mapping::has_lost_pages)
    }
}

/// Returns the error to report if none of several processes can be read. Errors for which `is_uninformative` returns
/// true come last, such as that of a shell that started the program.
fn most_informative_error<E>(errors: Vec<E>, is_uninformative: fn(&E) -> bool) -> Option<E> {
    let (little, much): (Vec<E>, Vec<E>) = errors.into_iter().partition(is_uninformative);
    much.into_iter().chain(little).next()
}

/// Adds the process id to the channel's name, to distinguish several processes.
fn add_pid_to_name(channel: &mut Channel, pid: u32) {
    channel.name = format!("{}@{pid}", channel.name);
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.kind)
    }
}
