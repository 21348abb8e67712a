//! Channels: where a signal can be read, found before the observer starts.

pub mod app;
pub mod file;
pub mod hsperf;
pub mod lane;
mod mapping;
mod maps;
pub mod memory;
pub mod perf;
pub mod signal;
pub mod symbols;

use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::channel::mapping::Mapping;
use crate::channel::signal::Kind;
use crate::note::Note;

/// One signal's place, ready to be read.
pub struct Channel {
    /// The signal's name in every result.
    pub name: String,
    /// Tag or counter; a rate is worked out from counters.
    pub kind: Kind,
    /// How it is read.
    pub reader: Reader,
    /// What its values mean, where they are not just numbers.
    pub meaning: Option<Meaning>,
    /// What whoever reads the result has to know, as in "reading it interrupts lane 1".
    pub notes: Vec<Note>,
}

/// Turns a tag's value into a name, after the observation; `None` for a value it does not know.
pub type Meaning = Arc<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// How a channel is read.
pub enum Reader {
    /// A word of memory that this process shares with the target: one load.
    Word(Word),
    /// A hardware counter of the observer's own lane, read with RDPMC.
    Pmc(Box<dyn Pmc>),
    /// Anything that takes a system call.
    Call(Box<dyn Call>),
}

/// Reads with a system call.
pub trait Call: Send {
    /// The value now. Allocates nothing.
    fn read(&mut self) -> Result<u64, Gone>;

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

/// Why a channel can no longer be read; ends the observation, not what was sampled before.
#[derive(Debug)]
pub enum Gone {
    /// The target, or its memory, is not there any more.
    Target,
    /// The system's own words.
    Error(io::Error),
}

/// How many bytes a word has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Width {
    U8,
    U16,
    U32,
    U64,
}

impl Width {
    /// The width of what has this many bytes, if it has as many as a word can have.
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

/// A word of shared memory, with what keeps it mapped.
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
    /// `place` must be aligned to `width` and readable as long as `mapping` is kept, whatever its owner
    /// does: a file that could shrink is none.
    pub unsafe fn new(place: NonNull<u8>, width: Width, mapping: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(place.as_ptr().addr().is_multiple_of(width.bytes()), "an aligned word");
        Self { place, width, mapping }
    }

    /// The value now.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        let place = self.place.as_ptr();
        // SAFETY: aligned and readable, says the contract of `new`.
        unsafe {
            match self.width {
                Width::U64 => AtomicU64::from_ptr(place.cast()).load(Ordering::Relaxed),
                Width::U32 => AtomicU32::from_ptr(place.cast()).load(Ordering::Relaxed).into(),
                Width::U16 => AtomicU16::from_ptr(place.cast()).load(Ordering::Relaxed).into(),
                Width::U8 => AtomicU8::from_ptr(place).load(Ordering::Relaxed).into(),
            }
        }
    }

    /// The value now, of a word that is 64 bits wide.
    ///
    /// # Panics
    /// If it is not.
    #[inline(always)]
    pub fn read_u64(&self) -> u64 {
        assert!(self.width == Width::U64, "a word of 64 bits");
        // SAFETY: aligned and readable, says the contract of `new`.
        unsafe { AtomicU64::from_ptr(self.place.as_ptr().cast()).load(Ordering::Relaxed) }
    }

    /// How many bytes it has.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Whether its file lost the page it is in; it reads as zero then.
    pub fn is_lost(&self) -> bool {
        (*self.mapping).downcast_ref::<Mapping>().is_some_and(Mapping::is_lost)
    }
}

/// What to say of several processes none of which can be read: that a shell before the program lacks what was
/// asked for (`says_little`) comes last.
fn most_telling<E>(errors: Vec<E>, says_little: fn(&E) -> bool) -> Option<E> {
    let (little, much): (Vec<E>, Vec<E>) = errors.into_iter().partition(says_little);
    much.into_iter().chain(little).next()
}

/// Tells the channels of several processes apart.
fn several(channel: &mut Channel, pid: u32) {
    channel.name = format!("{}@{pid}", channel.name);
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.kind)
    }
}
