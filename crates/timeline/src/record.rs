//! Records of a trace; `abi/trace.h` is the format.

/// Bytes of a record.
pub const RECORD_SIZE: usize = 64;

/// The kind of a record; the numbers are those of `enum sidelane_trace_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub enum Kind {
    Segment = 1,
    DataReady = 2,
    Received = 3,
    Sent = 4,
    Transmitted = 5,
    Retransmitted = 6,
    Acknowledged = 7,
    SocketState = 8,
    RequestStarted = 9,
    RequestFinished = 10,
    Switched = 11,
    Woken = 12,
    Migrated = 13,
    PageFault = 16,
    LockWaitBegan = 17,
    LockWaitEnded = 18,
    ReclaimBegan = 19,
    ReclaimEnded = 20,
    SignalDelivered = 21,
    Frozen = 22,
    Interrupt = 23,
    Softirq = 24,
    IdleLeft = 25,
    Stolen = 26,
    Throttled = 27,
    Overlap = 28,
    DiskIssued = 29,
    DiskCompleted = 30,
    PauseBegan = 31,
    PauseEnded = 32,
    Program = 33,
    SleepsIn = 34,
    Connects = 35,
    Tasks = 36,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 34] = [
        Kind::Segment,
        Kind::DataReady,
        Kind::Received,
        Kind::Sent,
        Kind::Transmitted,
        Kind::Retransmitted,
        Kind::Acknowledged,
        Kind::SocketState,
        Kind::RequestStarted,
        Kind::RequestFinished,
        Kind::Switched,
        Kind::Woken,
        Kind::Migrated,
        Kind::PageFault,
        Kind::LockWaitBegan,
        Kind::LockWaitEnded,
        Kind::ReclaimBegan,
        Kind::ReclaimEnded,
        Kind::SignalDelivered,
        Kind::Frozen,
        Kind::Interrupt,
        Kind::Softirq,
        Kind::IdleLeft,
        Kind::Stolen,
        Kind::Throttled,
        Kind::Overlap,
        Kind::DiskIssued,
        Kind::DiskCompleted,
        Kind::PauseBegan,
        Kind::PauseEnded,
        Kind::Program,
        Kind::SleepsIn,
        Kind::Connects,
        Kind::Tasks,
    ];

    /// By number. Some are of kinds that are no longer recorded.
    const BY_NUMBER: [Option<Kind>; 37] = {
        let (mut table, mut next) = ([None; 37], 0);
        while next < Self::ALL.len() {
            table[Self::ALL[next] as usize] = Some(Self::ALL[next]);
            next += 1;
        }
        table
    };

    /// Returns the kind with this number.
    pub fn of(number: u32) -> Option<Kind> {
        Self::BY_NUMBER.get(number as usize).copied().flatten()
    }
}

/// A set of kinds: those that a kernel can record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds(u64);

impl Kinds {
    /// Returns every kind.
    pub fn all() -> Kinds {
        Kind::ALL.into_iter().fold(Kinds::default(), Kinds::with)
    }

    /// Returns these and `kind`.
    pub fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u32)
    }

    /// Returns these without `kind`.
    pub fn without(self, kind: Kind) -> Kinds {
        Kinds(self.0 & !(1 << kind as u32))
    }

    /// Returns whether `kind` is one of them.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }
}

/// The detail of [`Kind::SleepsIn`] in place of a system call's number: `SIDELANE_TRACE_NO_CALL`.
pub const NO_CALL: u32 = u32::MAX;

/// The value of [`Kind::Woken`] if a timer did it: `SIDELANE_TRACE_BY_TIMER`.
pub const BY_TIMER: u64 = 1 << 32;
/// The flag in the value of [`Kind::Woken`] if the thread may wake more than one: `SIDELANE_TRACE_WAKES_SEVERAL`.
pub const WAKES_SEVERAL: u64 = 1 << 33;
/// The flag beside the expected value of a futex in [`Kind::SleepsIn`], if the futex lies on the thread's own stack:
/// `SIDELANE_TRACE_OWN_STACK`.
pub const OWN_STACK: u64 = 1 << 32;

/// Phases of a page fault, in the detail of [`Kind::PageFault`].
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub mod fault {
    pub const BEGINS: u32 = 1;
    pub const ENDS: u32 = 2;
    pub const BEGINS_IN_CALL: u32 = 3;
}

/// Threads on which a process runs tasks of its own, in the detail of [`Kind::Tasks`]; the numbers of `enum
/// sidelane_trace_tasks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Tasks {
    /// Any of its threads, one after the other: a thread that wakes another one hands it no request, and holds no lock
    /// for one.
    Move = 1,
    /// The thread of an event loop.
    Stay = 2,
}

/// Reasons why a thread left the CPU, in the detail of [`Kind::Switched`]; the numbers of `enum sidelane_trace_leave`.
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub mod leave {
    pub const PREEMPTED: u32 = 0;
    pub const SLEEPS: u32 = 1;
    pub const BLOCKED: u32 = 2;
    pub const STOPPED: u32 = 3;
    pub const ENDED: u32 = 4;
}

/// Reasons of a runtime's pause, in the detail of [`Kind::PauseBegan`]; the numbers of `enum sidelane_trace_pause`.
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub mod pause {
    pub const OTHER: u32 = 0;
    pub const YOUNG_COLLECTION: u32 = 1;
    pub const FULL_COLLECTION: u32 = 2;
    pub const SAFEPOINT: u32 = 3;
    pub const CLASS_LOADING: u32 = 4;
}

/// A thread and its process; 0 and 0 if no thread acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Task {
    /// Number of the thread.
    pub tid: u32,
    /// Number of its process.
    pub pid: u32,
}

/// One record: `struct sidelane_event_slot` with the payload of `abi/trace.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The event.
    pub kind: Kind,
    /// Number of the record among those of its CPU, from 1 on; wraps. 0 for those of user space.
    pub seq: u32,
    /// The thread of the event.
    pub task: Task,
    /// The CPU of the event.
    pub cpu: u32,
    /// A detail, depending on the kind.
    pub detail: u32,
    /// Another thread, depending on the kind.
    pub other: Task,
    /// Cookie of the socket, 0 for none.
    pub socket: u64,
    /// Number of the request, 0 if unknown.
    pub request: u64,
    /// A value, depending on the kind.
    pub value: u64,
}

impl Record {
    /// Returns the record in `bytes`; `None` if its kind is unknown or it was never written.
    pub fn from_bytes(bytes: &[u8; RECORD_SIZE]) -> Option<Record> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let at_ns = word(0);
        let kind = Kind::of(half(8)).filter(|_| at_ns != 0)?;
        Some(Record {
            at_ns,
            kind,
            seq: half(12),
            task: Task { tid: half(16), pid: half(20) },
            cpu: half(24),
            detail: half(28),
            other: Task { tid: half(32), pid: half(36) },
            socket: word(40),
            request: word(48),
            value: word(56),
        })
    }

    /// Returns the record as it is in a ring or a log.
    pub fn to_bytes(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.at_ns.to_le_bytes());
        let halves = [
            self.kind as u32,
            self.seq,
            self.task.tid,
            self.task.pid,
            self.cpu,
            self.detail,
            self.other.tid,
            self.other.pid,
        ];
        for (index, half) in halves.into_iter().enumerate() {
            put(8 + index * 4, &half.to_le_bytes());
        }
        for (index, word) in [self.socket, self.request, self.value].into_iter().enumerate() {
            put(40 + index * 8, &word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_kind_has_a_number_and_each_number_one_kind_or_none() {
        assert!(Kind::ALL.is_sorted_by_key(|kind| *kind as u32));
        assert!(Kind::ALL.into_iter().all(|kind| Kind::of(kind as u32) == Some(kind)));
        assert!([0, 14, 15, 37, u32::MAX].into_iter().all(|number| Kind::of(number).is_none()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_written_back(bytes: [u8; 32], more: [u8; 32]) {
            let mut record = [0; RECORD_SIZE];
            record[..32].copy_from_slice(&bytes);
            record[32..].copy_from_slice(&more);
            record[8] %= 40;
            record[9..12].fill(0);
            if let Some(read) = Record::from_bytes(&record) {
                prop_assert_eq!(read.to_bytes(), record);
            }
        }
    }
}
