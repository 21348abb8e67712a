//! Cause of a thread's sleep, from the system call in which it slept, the event that woke it, and the kernel's activity
//! in between.

use crate::builder::futexes::{is_contended, is_wait_without_bitset};
use crate::cause::Cause;
use crate::record::{OWN_STACK, Record, Task, leave};
use crate::wait::{Object, Peer, Purpose, Wait, WaitEnd, call};

/// Kinds of files in a `SLEEPS_IN` record, as in `enum sidelane_trace_file`.
mod file {
    pub const PIPE: u32 = 1;
    pub const FOLDER: u32 = 4;
    pub const DISK: u32 = 6;
    pub const REGULAR: u32 = 8;
    pub const SOCKET: u32 = 12;
    pub const EVENT: u32 = 13;
    pub const TIMER: u32 = 14;
}

const AF_UNIX: u32 = 1;

/// A system call in which a thread sleeps, with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepCall {
    pub number: u32,
    pub argument: u64,
    /// Argument whose meaning depends on the call: a futex operation, a file's inode, or a socket's family and
    /// protocol.
    named: u32,
    file: u32,
    pub timeout_ms: u32,
    /// Cookie of the socket at which the thread sleeps; 0 for none.
    pub socket: u64,
    /// The value that the thread expects in the futex.
    expected: u32,
    /// Whether the futex is on the thread's own stack.
    on_own_stack: bool,
}

impl SleepCall {
    /// Returns the system call that a `SLEEPS_IN` record describes.
    pub fn from_record(record: &Record) -> SleepCall {
        let is_futex = Purpose::from_syscall(record.detail) == Purpose::Futex;
        SleepCall {
            number: record.detail,
            argument: record.value,
            named: record.other.tid,
            file: record.other.pid & 0xf,
            timeout_ms: record.other.pid >> 4,
            socket: if is_futex { 0 } else { record.socket },
            expected: if is_futex { record.socket as u32 } else { 0 },
            on_own_stack: is_futex && record.socket & OWN_STACK != 0,
        }
    }

    /// Returns the futex operation; `None` if the system call waits on no futex.
    pub fn futex_operation(&self) -> Option<u32> {
        (Purpose::from_syscall(self.number) == Purpose::Futex).then_some(self.named)
    }

    /// Returns the purpose of the system call, from its number and the kind of its first file.
    fn purpose(&self) -> Purpose {
        match (self.number, self.file) {
            (call::SPLICE, file::SOCKET) => Purpose::Receive,
            _ => Purpose::from_syscall(self.number),
        }
    }

    /// Returns whether the system call moves data from a pipe to another file.
    fn is_splice_from_pipe(&self) -> bool {
        self.number == call::SPLICE && self.file == file::PIPE
    }

    /// Returns whether a file system executes the system call.
    fn is_file_system_call(&self) -> bool {
        let is_file = matches!(self.file, file::FOLDER | file::DISK | file::REGULAR);
        match Purpose::from_syscall(self.number) {
            Purpose::Sync | Purpose::Files => true,
            Purpose::Receive | Purpose::Send => is_file,
            _ => false,
        }
    }

    /// Returns the object of the wait, without the address of a socket's peer.
    pub fn object(&self) -> Object {
        match self.file {
            _ if let Some(operation) = self.futex_operation() => {
                Object::Futex(operation, is_contended(operation, self.expected, self.on_own_stack))
            }
            0 => Object::Unknown,
            file::PIPE => Object::Pipe(self.named),
            file::SOCKET if self.named & 0xffff == AF_UNIX => Object::UnixSocket,
            file::SOCKET => Object::Socket,
            file::EVENT => Object::Event,
            file::TIMER => Object::Timer,
            _ => Object::File(self.argument as u32, self.named),
        }
    }
}

/// The thread or interrupt that woke a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waker {
    /// The waking thread; default for an interrupt.
    pub by: Task,
    pub is_timer: bool,
    /// The system call in which the waker woke the thread; `None` if it was in none.
    pub call: Option<u32>,
    /// Whether the waker may have woken several threads in that system call. Then it gave none of these threads
    /// something exclusive, such as a lock.
    pub wakes_several: bool,
    /// Whether the woken thread waited for the waker to end. A thread of musl tells that as if it released a mutex.
    pub wakes_joiner: bool,
    /// Whether the waker belongs to another process of the service, and works on a request of its own.
    pub is_session: bool,
    /// Whether the waker is in the same process as the thread that it wakes, and both work on requests of their own.
    pub is_peer: bool,
    /// Whether a disk has answered the waker since the sleep began.
    pub has_read: bool,
}

/// What is known about the socket at which a thread sleeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketWait {
    pub is_client: bool,
    pub peer: Option<Peer>,
}

/// A thread's question to another service that has no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnansweredCall {
    pub socket: u64,
    pub peer: Option<Peer>,
    /// Whether the connection was not yet established when the question was sent.
    pub connects: bool,
}

/// What is known about a thread's sleep when it ends.
#[derive(Debug, Clone, Copy)]
pub struct Sleep {
    /// The reason why the thread left the CPU, a constant of `record::leave`.
    pub leave: u32,
    /// The system call in which the thread slept.
    pub call: Option<SleepCall>,
    pub waker: Waker,
    pub at: SocketWait,
    pub question: Option<UnansweredCall>,
    /// The disk that answered the thread since the sleep began.
    pub disk: Option<u64>,
    /// Whether the thread slept in a page fault.
    pub in_fault: bool,
    /// The kernel lock for which the thread waited: its address, and the thread that held it.
    pub lock: Option<(u64, Task)>,
}

impl Sleep {
    /// Returns the cause of the sleep, the detail of its span, and the other thread that the span names.
    pub fn cause_with_details(&self) -> (Cause, u64, Task) {
        match self.leave {
            leave::STOPPED => (Cause::Frozen, 0, self.waker.by),
            leave::BLOCKED => self.kernel_sleep_cause(),
            _ => self.wait_cause(),
        }
    }

    fn kernel_sleep_cause(&self) -> (Cause, u64, Task) {
        let by = self.waker.by;
        if let Some(disk) = self.disk {
            return (Cause::Disk, disk, Task::default());
        }
        if let Some((address, holder)) = self.lock {
            return (Cause::Lock, address, if holder.tid != 0 { holder } else { by });
        }
        match self.call {
            _ if self.in_fault => (Cause::PageFault, 0, by),
            Some(SleepCall { number: call::SCHED_SETAFFINITY, .. }) => (Cause::Migration, 0, by),
            // The waker is, for example, a kernel thread that writes the file system's journal.
            Some(call) if call.is_file_system_call() => (Cause::Disk, 0, by),
            _ => (Cause::NotExplained, 0, by),
        }
    }

    fn is_woken_by_thread(&self) -> bool {
        self.waker.by.tid != 0
    }

    fn wait_cause(&self) -> (Cause, u64, Task) {
        let by = self.waker.by;
        let purpose = self.call.map_or(Purpose::Other, |call| call.purpose());
        let cause = match purpose {
            Purpose::Futex => return (self.cause_at_futex(), self.call.map_or(0, |call| call.argument), by),
            Purpose::Completion if self.disk.is_some() => Cause::Disk,
            _ if self.waker.has_read && self.disk.is_some() && !self.waker.is_session => Cause::Disk,
            Purpose::Sleep => Cause::Timer,
            Purpose::Connect => self.no_answer_if_woken_by_timer(Cause::Connect),
            Purpose::Send => self.cause_of_sending(),
            Purpose::FileLock if self.is_woken_by_thread() => Cause::Lock,
            _ if self.is_woken_by_thread() && self.waker.is_session => Cause::Lock,
            _ if self.in_fault => Cause::PageFault,
            Purpose::Receive if self.at.is_client && self.is_woken_by_thread() => Cause::NetworkReceive,
            _ if self.is_woken_by_thread() => Cause::HandOver,
            Purpose::Receive | Purpose::Poll => self.cause_of_receiving(purpose),
            _ if self.waker.is_timer => Cause::Timer,
            _ if self.call.is_some_and(|call| call.is_splice_from_pipe()) => Cause::SendBuffer,
            _ => Cause::NotExplained,
        };
        (cause, self.disk.filter(|_| cause == Cause::Disk).unwrap_or(0), by)
    }

    fn cause_at_futex(&self) -> Cause {
        // Logs of older versions have neither the futex operation nor whether a timer ended the wait.
        let may_be_timer = self.waker.is_timer
            || self.call.is_none_or(|call| call.timeout_ms != 0 || is_wait_without_bitset(call.named));
        match self.is_woken_by_thread() {
            true => Cause::Lock,
            false if may_be_timer => Cause::Timer,
            false => Cause::NotExplained,
        }
    }

    /// Returns the cause of a wait to send. At the other end of a pipe or Unix socket is a thread. A TCP
    /// acknowledgement comes with an interrupt, or from a thread that passes packets to the kernel, such as a VPN's.
    fn cause_of_sending(&self) -> Cause {
        match self.at {
            SocketWait { is_client: true, .. } => Cause::SendBuffer,
            _ if self.is_woken_by_thread() => Cause::Full,
            SocketWait { is_client: false, peer: Some(_) } => Cause::Full,
            _ => Cause::SendBuffer,
        }
    }

    fn no_answer_if_woken_by_timer(&self, cause: Cause) -> Cause {
        if self.waker.is_timer { Cause::NoAnswer } else { cause }
    }

    /// Returns the question to another service whose answer ended this sleep; `None` if the sleep was for no answer.
    fn awaited_call(&self) -> Option<UnansweredCall> {
        let at = self.call.map_or(0, |call| call.socket);
        self.question.filter(|question| at == 0 || at == question.socket)
    }

    fn cause_of_receiving(&self, purpose: Purpose) -> Cause {
        match (self.awaited_call(), purpose) {
            (Some(question), _) if !question.connects => self.no_answer_if_woken_by_timer(Cause::Downstream),
            (Some(_), _) => self.no_answer_if_woken_by_timer(Cause::Connect),
            (None, _) if self.waker.is_timer => Cause::Timer,
            (None, Purpose::Receive) if self.at.is_client => Cause::NetworkReceive,
            (None, Purpose::Receive) if self.at.peer.is_some() => Cause::Downstream,
            _ => Cause::NotExplained,
        }
    }

    /// Returns whether the sleep may be for an event that several threads await, such as the result of a future. A lock
    /// for reading is given to several threads, too; such locks of glibc wait with a bit set.
    fn may_wait_for_event(&self) -> bool {
        let operation = self.call.and_then(|call| call.futex_operation());
        self.waker.wakes_several && operation.is_some_and(is_wait_without_bitset)
    }

    /// Returns the wait of this sleep: the call, its object, and the event that ended it.
    pub fn wait(&self) -> Wait {
        let object = match self.call.map_or(Object::Unknown, |call| call.object()) {
            Object::Futex(operation, is_contended) => {
                Object::Futex(operation, is_contended && !self.waker.wakes_several && !self.waker.wakes_joiner)
            }
            object => object,
        };
        let question = self.awaited_call().and_then(|question| question.peer);
        let object = match (self.at, question) {
            (SocketWait { is_client: true, .. }, _) => Object::Client,
            (SocketWait { peer: Some(peer), .. }, _) | (_, Some(peer)) if object_may_be_peer(object) => {
                Object::Service(peer)
            }
            _ => object,
        };
        let ended = match self.waker {
            Waker { is_timer: true, .. } => WaitEnd::Timer,
            Waker { by: Task { tid: 0, .. }, .. } => WaitEnd::Interrupt,
            Waker { call, .. } => WaitEnd::Thread(call),
        };
        let of_session = self.waker.is_session;
        let operation = self.call.and_then(|call| call.futex_operation());
        let of_peer = self.waker.is_peer && operation.is_some() && !self.may_wait_for_event();
        let purpose = self.call.map_or(Purpose::Other, |call| Purpose::from_syscall(call.number));
        let connects = purpose == Purpose::Connect || self.awaited_call().is_some_and(|question| question.connects);
        let timeout_ms = self.call.map_or(0, |call| call.timeout_ms);
        Wait {
            call: self.call.map(|call| call.number),
            object,
            timeout_ms,
            ended,
            of_session,
            of_peer,
            connects,
            ..Wait::default()
        }
    }
}

fn object_may_be_peer(object: Object) -> bool {
    matches!(object, Object::Unknown | Object::Socket | Object::UnixSocket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Sleep = Sleep {
        leave: leave::SLEEPS,
        call: None,
        waker: Waker {
            by: Task { tid: 0, pid: 0 },
            is_timer: false,
            call: None,
            wakes_several: false,
            wakes_joiner: false,
            is_session: false,
            is_peer: false,
            has_read: false,
        },
        at: SocketWait { is_client: false, peer: None },
        question: None,
        disk: None,
        in_fault: false,
        lock: None,
    };
    const OTHER: Task = Task { tid: 9, pid: 1 };

    fn cause_of(sleep: Sleep) -> Cause {
        sleep.cause_with_details().0
    }

    fn woken_by_other(sleep: Sleep) -> Sleep {
        Sleep { waker: Waker { by: OTHER, ..sleep.waker }, ..sleep }
    }

    fn sleep_in_call(number: u32, argument: u64) -> Sleep {
        let call = SleepCall {
            number,
            argument,
            named: 0,
            file: 0,
            timeout_ms: 0,
            socket: 0,
            expected: 0,
            on_own_stack: false,
        };
        Sleep { call: Some(call), ..WAITS }
    }

    #[test]
    fn futex_wait_is_a_lock_if_a_thread_ends_it_else_a_timer() {
        let futex = sleep_in_call(call::FUTEX, 0x10);
        assert_eq!(woken_by_other(futex).cause_with_details(), (Cause::Lock, 0x10, OTHER));
        assert_eq!(cause_of(futex), Cause::Timer);
    }

    #[test]
    fn sleep_without_a_system_call_has_only_a_waker() {
        assert_eq!(woken_by_other(WAITS).cause_with_details(), (Cause::HandOver, 0, OTHER));
        assert_eq!(cause_of(WAITS), Cause::NotExplained);
    }

    #[test]
    fn disk_has_precedence_over_lock_and_lock_over_fault() {
        let blocked = Sleep { leave: leave::BLOCKED, in_fault: true, ..WAITS };
        let locked = Sleep { lock: Some((0x20, OTHER)), ..blocked };
        assert_eq!(cause_of(Sleep { disk: Some(8 << 20), ..locked }), Cause::Disk);
        assert_eq!(locked.cause_with_details(), (Cause::Lock, 0x20, OTHER));
        assert_eq!(cause_of(blocked), Cause::PageFault);
        assert_eq!(cause_of(Sleep { in_fault: false, ..blocked }), Cause::NotExplained);
    }

    #[test]
    fn a_send_waits_for_the_network_or_for_the_thread_that_reads() {
        let sends = sleep_in_call(call::SENDMSG, 5);
        assert_eq!(cause_of(sends), Cause::SendBuffer);
        assert_eq!(woken_by_other(sends).cause_with_details(), (Cause::Full, 0, OTHER));
        let to_client = Sleep { at: SocketWait { is_client: true, peer: None }, ..sends };
        assert_eq!(cause_of(woken_by_other(to_client)), Cause::SendBuffer);
        assert_eq!(cause_of(Sleep { leave: leave::STOPPED, ..sends }), Cause::Frozen);
        assert_eq!(cause_of(sleep_in_call(call::NANOSLEEP, 5)), Cause::Timer);
    }

    #[test]
    fn wait_at_a_client_socket_is_for_more_of_the_request() {
        let at = SocketWait { is_client: true, peer: None };
        assert_eq!(cause_of(Sleep { at, ..sleep_in_call(call::RECVFROM, 5) }), Cause::NetworkReceive);
        assert_eq!(
            cause_of(woken_by_other(Sleep { at, ..sleep_in_call(call::RECVFROM, 5) })),
            Cause::NetworkReceive,
            "by a VPN's"
        );
        assert_eq!(cause_of(sleep_in_call(call::RECVFROM, 5)), Cause::NotExplained);
    }
}
