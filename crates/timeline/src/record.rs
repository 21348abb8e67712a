//! Records of a trace, in the format of `abi/trace.h`.

/// Size of a record in bytes.
pub const RECORD_SIZE: usize = 64;

/// Kind of a record. The numbers are those of `enum sidelane_trace_type`.
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
    /// All kinds of records, in the order of their numbers.
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

    /// Kinds by number. `None` for numbers of kinds that are no longer recorded.
    const BY_NUMBER: [Option<Kind>; 37] = {
        let (mut table, mut next) = ([None; 37], 0);
        while next < Self::ALL.len() {
            table[Self::ALL[next] as usize] = Some(Self::ALL[next]);
            next += 1;
        }
        table
    };

    /// Returns the kind with this number; `None` if there is no such kind.
    pub fn from_number(number: u32) -> Option<Kind> {
        Self::BY_NUMBER.get(number as usize).copied().flatten()
    }
}

/// A set of kinds of records, such as those that a kernel can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds(u64);

impl Kinds {
    /// Returns the set of all kinds.
    pub fn all() -> Kinds {
        Kind::ALL.into_iter().fold(Kinds::default(), Kinds::with)
    }

    /// Returns this set with `kind` added.
    pub fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u32)
    }

    /// Returns this set with `kind` removed.
    pub fn without(self, kind: Kind) -> Kinds {
        Kinds(self.0 & !(1 << kind as u32))
    }

    /// Returns whether `kind` is in this set.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }
}

/// Detail of a [`Kind::SleepsIn`] record if the thread is in no system call: `SIDELANE_TRACE_NO_CALL`.
pub const NO_CALL: u32 = u32::MAX;

/// Flag in the value of a [`Kind::Woken`] record: a timer woke the thread (`SIDELANE_TRACE_BY_TIMER`).
pub const BY_TIMER: u64 = 1 << 32;
/// Flag in the value of a [`Kind::Woken`] record: the waker may wake several threads (`SIDELANE_TRACE_WAKES_SEVERAL`).
pub const WAKES_SEVERAL: u64 = 1 << 33;
/// Flag in the value of a [`Kind::Woken`] record: the other thread waits for the waker to end
/// (`SIDELANE_TRACE_WAKES_JOINER`).
pub const WAKES_JOINER: u64 = 1 << 34;
/// Flag beside the expected value of a futex in a [`Kind::SleepsIn`] record: the futex is on the thread's own stack
/// (`SIDELANE_TRACE_OWN_STACK`).
pub const OWN_STACK: u64 = 1 << 32;

/// Phases of a page fault: values of the detail of [`Kind::PageFault`].
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub mod fault {
    pub const BEGINS: u32 = 1;
    pub const ENDS: u32 = 2;
    pub const BEGINS_IN_CALL: u32 = 3;
}

/// Threads on which a process runs tasks of its own, such as goroutines, in the detail of [`Kind::Tasks`]. The numbers
/// are those of `enum sidelane_trace_tasks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Tasks {
    /// A task may run on any thread of the process, one after the other. A thread that wakes another thread hands it no
    /// request, and holds no lock on behalf of a request.
    Move = 1,
    /// A task stays on the thread of an event loop.
    Stay = 2,
}

/// Reasons why a thread left the CPU, in the detail of [`Kind::Switched`]. The numbers are those of `enum
/// sidelane_trace_leave`.
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub mod leave {
    pub const PREEMPTED: u32 = 0;
    pub const SLEEPS: u32 = 1;
    pub const BLOCKED: u32 = 2;
    pub const STOPPED: u32 = 3;
    pub const ENDED: u32 = 4;
}

/// Reasons of a runtime's pause, in the detail of [`Kind::PauseBegan`]. The numbers are those of `enum
/// sidelane_trace_pause`.
#[allow(missing_docs, reason = "abi/trace.h says what each means")]
pub mod pause {
    pub const OTHER: u32 = 0;
    pub const YOUNG_COLLECTION: u32 = 1;
    pub const FULL_COLLECTION: u32 = 2;
    pub const SAFEPOINT: u32 = 3;
    pub const CLASS_LOADING: u32 = 4;
}

/// A thread and its process; both numbers are 0 if no thread acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Task {
    /// Thread id.
    pub tid: u32,
    /// Process id of the thread.
    pub pid: u32,
}

/// A record of a trace: `struct sidelane_event_slot` with the payload of `abi/trace.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Time of the event, in CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Kind of the event.
    pub kind: Kind,
    /// Sequence number of the record among those of its CPU, from 1 on; wraps. 0 for records from user space.
    pub seq: u32,
    /// Thread that the event is about.
    pub task: Task,
    /// CPU on which the event happened.
    pub cpu: u32,
    /// Detail of the event; its meaning depends on the kind.
    pub detail: u32,
    /// Another thread of the event, such as a waker; its role depends on the kind.
    pub other: Task,
    /// Cookie of the socket; 0 for none.
    pub socket: u64,
    /// Number of the request; 0 if unknown.
    pub request: u64,
    /// Value of the event; its meaning depends on the kind.
    pub value: u64,
}

impl Record {
    /// Returns the record in `bytes`; `None` if its kind is unknown or the record was never written.
    pub fn from_bytes(bytes: &[u8; RECORD_SIZE]) -> Option<Record> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let at_ns = word(0);
        let kind = Kind::from_number(half(8)).filter(|_| at_ns != 0)?;
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

    /// Returns the record as bytes, in the format of a ring or a log.
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
        assert!(Kind::ALL.into_iter().all(|kind| Kind::from_number(kind as u32) == Some(kind)));
        assert!([0, 14, 15, 37, u32::MAX].into_iter().all(|number| Kind::from_number(number).is_none()));
    }

    #[test]
    fn kind_is_in_a_set_however_often_it_was_added() {
        let kinds = Kinds::default().with(Kind::Woken).with(Kind::Woken);
        assert!(kinds.has(Kind::Woken) && !kinds.has(Kind::Sent) && !kinds.without(Kind::Woken).has(Kind::Woken));
    }

    #[test]
    fn a_record_that_was_never_written_is_none() {
        let (task, other) = (Task { tid: 1, pid: 2 }, Task { tid: 3, pid: 4 });
        let (kind, seq, cpu, detail, socket, request, value) = (Kind::Woken, 5, 6, 7, 8, 9, 10);
        let record = Record { at_ns: 11, kind, seq, task, cpu, detail, other, socket, request, value };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        assert_eq!(Record::from_bytes(&Record { at_ns: 0, ..record }.to_bytes()), None);
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
