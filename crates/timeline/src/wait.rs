//! Waits of threads: the system call, its object, the event that ended the wait, and the activity of the thread that
//! ended it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::record::{Record, Task};

/// Numbers of system calls on x86-64.
#[allow(missing_docs, reason = "each is the name of a system call")]
pub mod call {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const POLL: u32 = 7;
    pub const PREAD: u32 = 17;
    pub const PWRITE: u32 = 18;
    pub const READV: u32 = 19;
    pub const WRITEV: u32 = 20;
    pub const SELECT: u32 = 23;
    pub const MSYNC: u32 = 26;
    pub const PAUSE: u32 = 34;
    pub const NANOSLEEP: u32 = 35;
    pub const SENDFILE: u32 = 40;
    pub const CONNECT: u32 = 42;
    pub const ACCEPT: u32 = 43;
    pub const SENDTO: u32 = 44;
    pub const RECVFROM: u32 = 45;
    pub const SENDMSG: u32 = 46;
    pub const RECVMSG: u32 = 47;
    pub const CLONE: u32 = 56;
    pub const FORK: u32 = 57;
    pub const VFORK: u32 = 58;
    pub const EXIT: u32 = 60;
    pub const WAIT4: u32 = 61;
    pub const KILL: u32 = 62;
    pub const SEMOP: u32 = 65;
    pub const MSGSND: u32 = 69;
    pub const MSGRCV: u32 = 70;
    pub const FCNTL: u32 = 72;
    pub const FLOCK: u32 = 73;
    pub const TKILL: u32 = 200;
    pub const FUTEX: u32 = 202;
    pub const SCHED_SETAFFINITY: u32 = 203;
    pub const IO_GETEVENTS: u32 = 208;
    pub const FSYNC: u32 = 74;
    pub const FDATASYNC: u32 = 75;
    pub const SYNC: u32 = 162;
    pub const RT_SIGTIMEDWAIT: u32 = 128;
    pub const RT_SIGSUSPEND: u32 = 130;
    pub const SEMTIMEDOP: u32 = 220;
    pub const CLOCK_NANOSLEEP: u32 = 230;
    pub const EXIT_GROUP: u32 = 231;
    pub const EPOLL_WAIT: u32 = 232;
    pub const TGKILL: u32 = 234;
    pub const MQ_TIMEDSEND: u32 = 242;
    pub const MQ_TIMEDRECEIVE: u32 = 243;
    pub const WAITID: u32 = 247;
    pub const PSELECT: u32 = 270;
    pub const PPOLL: u32 = 271;
    pub const SPLICE: u32 = 275;
    pub const SYNC_FILE_RANGE: u32 = 277;
    pub const EPOLL_PWAIT: u32 = 281;
    pub const ACCEPT4: u32 = 288;
    pub const RECVMMSG: u32 = 299;
    pub const SENDMMSG: u32 = 307;
    pub const SYNCFS: u32 = 306;
    pub const PREADV: u32 = 295;
    pub const PWRITEV: u32 = 296;
    pub const IO_PGETEVENTS: u32 = 333;
    pub const IO_URING_ENTER: u32 = 426;
    pub const CLONE3: u32 = 435;
    pub const EPOLL_PWAIT2: u32 = 441;
    pub const FUTEX_WAITV: u32 = 449;
    pub const FUTEX_WAIT: u32 = 455;

    /// System calls that look up, make or remove names of files, or change a file's length.
    pub const OF_FILE_SYSTEMS: [(u32, &str); 24] = [
        (2, "open"),
        (3, "close"),
        (4, "stat"),
        (6, "lstat"),
        (76, "truncate"),
        (77, "ftruncate"),
        (82, "rename"),
        (83, "mkdir"),
        (84, "rmdir"),
        (85, "creat"),
        (86, "link"),
        (87, "unlink"),
        (88, "symlink"),
        (217, "getdents"),
        (257, "openat"),
        (258, "mkdirat"),
        (262, "fstatat"),
        (263, "unlinkat"),
        (264, "renameat"),
        (265, "linkat"),
        (285, "fallocate"),
        (316, "renameat2"),
        (332, "statx"),
        (437, "openat2"),
    ];

    /// Returns whether only event loops wait in the system call with this number.
    pub fn is_epoll(number: u32) -> bool {
        matches!(number, EPOLL_WAIT | EPOLL_PWAIT | EPOLL_PWAIT2)
    }
}

/// Purpose of a system call, if it explains a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The system call waits for any of several files.
    Poll,
    /// The system call waits for data of one file.
    Receive,
    /// The system call writes data to one file.
    Send,
    /// The system call opens a connection.
    Connect,
    /// The system call waits on a futex.
    Futex,
    /// The system call waits for a lock on a file.
    FileLock,
    /// The system call sleeps for a time.
    Sleep,
    /// The system call waits for the completion of operations on files that were started before.
    Completion,
    /// The system call waits until a file's data is on its disk.
    Sync,
    /// The system call changes or looks up files.
    Files,
    /// The system call has another purpose.
    Other,
}

impl Purpose {
    /// Returns the purpose of the system call with this number.
    pub fn from_syscall(number: u32) -> Purpose {
        match number {
            call::POLL | call::SELECT | call::PSELECT | call::PPOLL => Purpose::Poll,
            _ if call::is_epoll(number) => Purpose::Poll,
            call::READ | call::READV | call::PREAD | call::PREADV => Purpose::Receive,
            call::RECVFROM | call::RECVMSG | call::RECVMMSG => Purpose::Receive,
            call::WRITE | call::WRITEV | call::PWRITE | call::PWRITEV => Purpose::Send,
            call::SENDFILE | call::SENDTO | call::SENDMSG | call::SENDMMSG => Purpose::Send,
            call::CONNECT => Purpose::Connect,
            call::FUTEX | call::FUTEX_WAIT | call::FUTEX_WAITV => Purpose::Futex,
            call::FCNTL | call::FLOCK => Purpose::FileLock,
            call::FSYNC | call::FDATASYNC | call::MSYNC | call::SYNC | call::SYNCFS | call::SYNC_FILE_RANGE => {
                Purpose::Sync
            }
            call::NANOSLEEP | call::CLOCK_NANOSLEEP => Purpose::Sleep,
            call::IO_URING_ENTER | call::IO_GETEVENTS | call::IO_PGETEVENTS => Purpose::Completion,
            _ if call::OF_FILE_SYSTEMS.iter().any(|(known, _)| *known == number) => Purpose::Files,
            _ => Purpose::Other,
        }
    }

    /// Returns whether an event loop waits in system calls with this purpose for the next event of any kind.
    pub fn is_event_loop_wait(self) -> bool {
        matches!(self, Purpose::Poll | Purpose::Completion)
    }
}

/// Returns the name of the system call with this number; "a system call" if no wait in it has a known purpose.
pub fn syscall_name(number: u32) -> &'static str {
    const NAMES: [(u32, &str); 53] = [
        (call::READ, "read"),
        (call::WRITE, "write"),
        (call::POLL, "poll"),
        (call::PREAD, "pread"),
        (call::READV, "readv"),
        (call::WRITEV, "writev"),
        (call::SELECT, "select"),
        (call::NANOSLEEP, "nanosleep"),
        (call::SENDFILE, "sendfile"),
        (call::CONNECT, "connect"),
        (call::ACCEPT, "accept"),
        (call::SENDTO, "sendto"),
        (call::RECVFROM, "recvfrom"),
        (call::SENDMSG, "sendmsg"),
        (call::RECVMSG, "recvmsg"),
        (call::WAIT4, "wait4"),
        (call::FCNTL, "fcntl"),
        (call::FLOCK, "flock"),
        (call::FUTEX, "futex"),
        (call::FSYNC, "fsync"),
        (call::FDATASYNC, "fdatasync"),
        (call::SYNC, "sync"),
        (call::SYNCFS, "syncfs"),
        (call::SYNC_FILE_RANGE, "sync_file_range"),
        (call::IO_GETEVENTS, "io_getevents"),
        (call::SEMTIMEDOP, "semtimedop"),
        (call::CLOCK_NANOSLEEP, "clock_nanosleep"),
        (call::EPOLL_WAIT, "epoll_wait"),
        (call::WAITID, "waitid"),
        (call::PSELECT, "pselect"),
        (call::PPOLL, "ppoll"),
        (call::EPOLL_PWAIT, "epoll_wait"),
        (call::ACCEPT4, "accept"),
        (call::RECVMMSG, "recvmmsg"),
        (call::SENDMMSG, "sendmmsg"),
        (call::IO_PGETEVENTS, "io_pgetevents"),
        (call::IO_URING_ENTER, "io_uring_enter"),
        (call::EPOLL_PWAIT2, "epoll_wait"),
        (call::FUTEX_WAITV, "futex_waitv"),
        (call::PWRITE, "pwrite"),
        (call::PREADV, "preadv"),
        (call::PWRITEV, "pwritev"),
        (call::MSYNC, "msync"),
        (call::PAUSE, "pause"),
        (call::SEMOP, "semop"),
        (call::MSGSND, "msgsnd"),
        (call::MSGRCV, "msgrcv"),
        (call::RT_SIGTIMEDWAIT, "sigtimedwait"),
        (call::RT_SIGSUSPEND, "sigsuspend"),
        (call::MQ_TIMEDSEND, "mq_timedsend"),
        (call::MQ_TIMEDRECEIVE, "mq_timedreceive"),
        (call::SPLICE, "splice"),
        (call::FUTEX_WAIT, "futex_wait"),
    ];
    let mut known = NAMES.iter().chain(&call::OF_FILE_SYSTEMS);
    known.find(|(known, _)| *known == number).map_or("a system call", |(_, name)| name)
}

/// The other side of a socket: an address, or a process on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// IP address, port, and number of the IP protocol.
    Address(IpAddr, u16, u8),
    /// Process id of the other side of a Unix socket: the process that listened at it, or connected to it.
    Unix(u32),
}

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
/// Numbers of TCP and UDP in IP headers.
pub const TCP: u8 = 6;
#[allow(missing_docs, reason = "as above")]
pub const UDP: u8 = 17;

impl Peer {
    /// Returns the peer in a record about a socket to another service; `None` if the record has none.
    pub fn from_record(record: &Record) -> Option<Peer> {
        let (family, protocol, port) = (record.detail >> 24, (record.detail >> 16) as u8, record.detail as u16);
        let address: IpAddr = match family {
            AF_UNIX => return (record.other.pid != 0).then_some(Peer::Unix(record.other.pid)),
            AF_INET => Ipv4Addr::from(record.other.tid.to_le_bytes()).into(),
            AF_INET6 => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&record.other.tid.to_le_bytes());
                bytes[4..8].copy_from_slice(&record.other.pid.to_le_bytes());
                bytes[8..].copy_from_slice(&record.value.to_le_bytes());
                Ipv6Addr::from(bytes).to_canonical()
            }
            _ => return None,
        };
        Some(Peer::Address(address, port, protocol))
    }

    /// Returns the port of the peer; 0 for none.
    pub fn port(self) -> u16 {
        match self {
            Peer::Address(_, port, _) => port,
            Peer::Unix(_) => 0,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Peer::Address(IpAddr::V4(ip), port, protocol) => write!(f, "{ip}:{port}{}", suffix(protocol)),
            Peer::Address(IpAddr::V6(ip), port, protocol) => write!(f, "[{ip}]:{port}{}", suffix(protocol)),
            Peer::Unix(_) => f.write_str("a Unix socket"),
        }
    }
}

fn suffix(protocol: u8) -> &'static str {
    if protocol == UDP { "/udp" } else { "" }
}

/// Object of a thread's wait, such as a futex or a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Object {
    /// Unknown object.
    #[default]
    Unknown,
    /// Futex: its operation, and whether it had the value of a contended mutex.
    Futex(u32, bool),
    /// Pipe, by its inode.
    Pipe(u32),
    /// Unix socket whose other side is unknown.
    UnixSocket,
    /// Socket of another family than IP and Unix.
    Socket,
    /// Connection of a client.
    Client,
    /// Another service.
    Service(Peer),
    /// An eventfd, on which another thread signals events.
    Event,
    /// A timerfd, which becomes readable when its timer expires.
    Timer,
    /// Other file: its descriptor number in the process, and its inode.
    File(u32, u32),
}

/// Event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WaitEnd {
    /// The event is unknown.
    #[default]
    Unknown,
    /// An interrupt ended the wait: data, a disk, an acknowledgement.
    Interrupt,
    /// A timer ended the wait.
    Timer,
    /// A thread ended the wait, in the system call with this number, or in none.
    Thread(Option<u32>),
}

/// Activity of a thread for which another thread waited: the activity that took most of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activity {
    /// The activity is unknown.
    #[default]
    Unknown,
    /// The thread ran on a CPU.
    Ran,
    /// The thread could run, but had no CPU.
    WaitedForCpu,
    /// The thread slept until a set time.
    Slept,
    /// The thread waited for a disk.
    WaitedForDisk,
    /// The thread waited for another service.
    Asked,
    /// The thread worked on no request, and waited for the next one.
    WaitedForRequest,
    /// The thread waited for something unknown.
    Waited,
}

/// Timeout of a wait that is unknown, or too long for the record.
pub const TIMEOUT_UNKNOWN: u32 = 0xfff_ffff;

/// Wait of a thread: the call, its object, and the event that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Wait {
    /// Number of the system call; `None` if unknown.
    pub call: Option<u32>,
    /// Object of the wait.
    pub object: Object,
    /// Timeout of the wait in milliseconds; 0: none; [`TIMEOUT_UNKNOWN`]: it has one of unknown length.
    pub timeout_ms: u32,
    /// Event that ended the wait.
    pub ended: WaitEnd,
    /// Activity of the thread that ended the wait, or of the last thread in a chain of waits.
    pub doing: Activity,
    /// Last thread in a chain of waits, if it is another than the thread that ended this wait.
    pub root: Task,
    /// Whether the wait was for a lock that another session of the service held: a process that worked on a request of
    /// its own.
    pub of_session: bool,
    /// Whether the wait was for a thread of the same process that worked on its own request, and ended the wait by a
    /// futex.
    pub of_peer: bool,
    /// Whether the wait was for the connection itself, not for an answer.
    pub connects: bool,
    /// Whether several questions were under way on the connection at once, so that it is unknown which question an
    /// answer was for.
    pub is_shared: bool,
}

impl Wait {
    /// Returns the purpose of the wait's system call.
    pub fn purpose(&self) -> Purpose {
        self.call.map_or(Purpose::Other, Purpose::from_syscall)
    }

    /// Returns a wait for an answer of `peer`.
    pub fn for_answer(peer: Option<Peer>, is_shared: bool) -> Wait {
        let object = peer.map_or(Object::Unknown, Object::Service);
        Wait { object, is_shared, ended: WaitEnd::Interrupt, ..Wait::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    fn sent_record(detail: u32, other: Task, value: u64) -> Record {
        Record {
            at_ns: 1,
            kind: Kind::Sent,
            seq: 1,
            task: Task::default(),
            cpu: 0,
            detail,
            other,
            socket: 9,
            request: 0,
            value,
        }
    }

    #[test]
    fn system_calls_have_names_and_purposes() {
        let of = |number| (syscall_name(number), Purpose::from_syscall(number));
        for (number, expected) in [
            (call::READ, ("read", Purpose::Receive)),
            (call::PREADV, ("preadv", Purpose::Receive)),
            (call::RECVMSG, ("recvmsg", Purpose::Receive)),
            (call::PWRITEV, ("pwritev", Purpose::Send)),
            (call::SENDFILE, ("sendfile", Purpose::Send)),
            (call::EPOLL_PWAIT2, ("epoll_wait", Purpose::Poll)),
            (call::FUTEX_WAITV, ("futex_waitv", Purpose::Futex)),
            (call::MSYNC, ("msync", Purpose::Sync)),
            (82, ("rename", Purpose::Files)),
            (call::PAUSE, ("pause", Purpose::Other)),
            (9_999, ("a system call", Purpose::Other)),
        ] {
            assert_eq!(of(number), expected, "{number}");
        }
    }

    #[test]
    fn a_peer_is_read_from_a_record_of_its_socket() {
        let v4 = sent_record(2 << 24 | 17 << 16 | 5_399, Task { tid: u32::from_le_bytes([127, 0, 0, 1]), pid: 0 }, 10);
        assert_eq!(Peer::from_record(&v4).map(|peer| peer.to_string()).as_deref(), Some("127.0.0.1:5399/udp"));
        let v6 = sent_record(10 << 24 | 6 << 16 | 80, Task::default(), u64::from_le_bytes([0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(Peer::from_record(&v6).map(|peer| peer.to_string()).as_deref(), Some("[::1]:80"));
        let mapped = Task { tid: 0, pid: 0 };
        let mapped = sent_record(10 << 24 | 6 << 16 | 80, mapped, u64::from_le_bytes([0, 0, 0xff, 0xff, 10, 0, 0, 9]));
        assert_eq!(Peer::from_record(&mapped).map(|peer| peer.to_string()).as_deref(), Some("10.0.0.9:80"));
        assert_eq!(Peer::from_record(&sent_record(1 << 24, Task { tid: 0, pid: 77 }, 10)), Some(Peer::Unix(77)));
        assert_eq!(Peer::from_record(&sent_record(0, Task::default(), 10)), None);
    }
}
