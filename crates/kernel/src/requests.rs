//! The kernel's side of request tracking: which programs and arrays it is made of, and the
//! arrays as memory.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sidelane_signal::{RequestWord, ServiceWord};

use crate::mapped::MappedArray;
use crate::tracker::{LaneMemory, Tracker};

/// 64 ports in a word.
const PORT_WORDS: usize = 1024;

/// The ring of records.
pub const RECORDS: &str = "request_records";

/// `struct sidelane_request_books` of `bpf/request_state.h`.
#[repr(C)]
pub struct RequestBooks {
    finished: AtomicU64,
    dropped: AtomicU64,
    unasked: AtomicU64,
    unanswered: AtomicU64,
    next_number: AtomicU64,
    queued: AtomicI64,
    handed: AtomicI64,
    reserved: AtomicU64,
}

const _: () = assert!(size_of::<RequestBooks>() == 64);

/// What the kernel program counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered.
    pub finished: u64,
    /// Of them, those whose record found the ring full.
    pub dropped: u64,
    /// Sends to a connection that had asked nothing.
    pub unasked: u64,
    /// Requests whose connection ended before an answer.
    pub unanswered: u64,
}

impl Counts {
    /// What was counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            finished: self.finished - earlier.finished,
            dropped: self.dropped - earlier.dropped,
            unasked: self.unasked - earlier.unasked,
            unanswered: self.unanswered - earlier.unanswered,
        }
    }
}

/// The arrays shared with the kernel program.
pub struct RequestMemory {
    lanes: Arc<LaneMemory>,
    books: MappedArray<RequestBooks>,
    ports: MappedArray<AtomicU64>,
}

impl RequestMemory {
    /// Maps the arrays of a tracker that was loaded for requests.
    pub fn map(tracker: &Tracker) -> io::Result<Self> {
        fn map<T>(tracker: &Tracker, name: &str, len: usize) -> io::Result<MappedArray<T>> {
            MappedArray::new(tracker.map(name).as_fd(), len)
        }
        Ok(Self {
            lanes: tracker.memory(),
            books: map(tracker, "request_books", 1)?,
            ports: map(tracker, "service_ports", PORT_WORDS)?,
        })
    }

    /// What the lane `cpu` works on.
    pub fn word(&self, cpu: u32) -> &RequestWord {
        self.lanes.request(cpu)
    }

    /// The service as a whole.
    pub fn service(&self) -> &ServiceWord {
        self.lanes.service()
    }

    /// What was counted since the program was loaded.
    pub fn counts(&self) -> Counts {
        let books = self.books.get(0);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            finished: get(&books.finished),
            dropped: get(&books.dropped),
            unasked: get(&books.unasked),
            unanswered: get(&books.unanswered),
        }
    }

    /// Connections to `port` are the service's from now on.
    pub fn add_port(&self, port: u16) {
        self.ports.get(usize::from(port / 64)).fetch_or(1 << (port % 64), Ordering::Relaxed);
    }
}
