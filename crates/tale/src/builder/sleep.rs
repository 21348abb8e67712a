//! Why a thread slept: from the system call in which it did, who woke it, and what the kernel did meanwhile.

use crate::cause::Cause;
use crate::record::{Task, leave};

/// Numbers of system calls, x86-64.
mod call {
    pub const WRITE: u32 = 1;
    pub const WRITEV: u32 = 20;
    pub const NANOSLEEP: u32 = 35;
    pub const SENDFILE: u32 = 40;
    pub const SENDTO: u32 = 44;
    pub const SENDMSG: u32 = 46;
    pub const FUTEX: u32 = 202;
    pub const SCHED_SETAFFINITY: u32 = 203;
    pub const CLOCK_NANOSLEEP: u32 = 230;
    pub const SENDMMSG: u32 = 307;
    pub const FUTEX_WAITV: u32 = 449;
    pub const FUTEX_WAIT: u32 = 455;
}

/// What is known of a thread's sleep when it ends.
#[derive(Debug, Clone, Copy)]
pub struct Sleep {
    /// Why it left the CPU: `record::leave`.
    pub leave: u32,
    /// The system call that it was in, with its first argument.
    pub call: Option<(u32, u64)>,
    /// Who woke it; nobody for an interrupt.
    pub by: Task,
    /// The disk that answered it meanwhile.
    pub disk: Option<u64>,
    /// It had touched a page that was not there.
    pub in_fault: bool,
    /// It waited for a lock of the kernel: its address and who held it.
    pub lock: Option<(u64, Task)>,
}

impl Sleep {
    /// What the time went to, with the detail of the span and who is to be named.
    pub fn cause(&self) -> (Cause, u64, Task) {
        match self.leave {
            leave::STOPPED => (Cause::Frozen, 0, self.by),
            leave::BLOCKED => self.cause_in_the_kernel(),
            _ => self.cause_of_waiting(),
        }
    }

    fn cause_in_the_kernel(&self) -> (Cause, u64, Task) {
        if let Some(disk) = self.disk {
            return (Cause::Disk, disk, Task::default());
        }
        if let Some((address, holder)) = self.lock {
            return (Cause::Lock, address, if holder.tid != 0 { holder } else { self.by });
        }
        match self.call {
            _ if self.in_fault => (Cause::PageFault, 0, self.by),
            Some((call::SCHED_SETAFFINITY, _)) => (Cause::Migration, 0, self.by),
            _ => (Cause::NotExplained, 0, self.by),
        }
    }

    fn cause_of_waiting(&self) -> (Cause, u64, Task) {
        let woken_by_a_thread = self.by.tid != 0;
        match self.call {
            Some((call::FUTEX | call::FUTEX_WAIT | call::FUTEX_WAITV, address)) if woken_by_a_thread => {
                (Cause::Lock, address, self.by)
            }
            Some((call::FUTEX | call::FUTEX_WAIT | call::FUTEX_WAITV, address)) => (Cause::Timer, address, self.by),
            Some((call::NANOSLEEP | call::CLOCK_NANOSLEEP, _)) => (Cause::Timer, 0, self.by),
            // Whoever reads at the other end of a pipe is a thread; an acknowledgement comes with an interrupt.
            Some((call, _)) if sends(call) && !woken_by_a_thread => (Cause::SendBuffer, 0, self.by),
            _ if self.in_fault => (Cause::PageFault, 0, self.by),
            _ if woken_by_a_thread => (Cause::HandOver, 0, self.by),
            _ => (Cause::NotExplained, 0, self.by),
        }
    }
}

fn sends(number: u32) -> bool {
    matches!(number, call::WRITE | call::WRITEV | call::SENDFILE | call::SENDTO | call::SENDMSG | call::SENDMMSG)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Sleep = Sleep {
        leave: leave::SLEEPS,
        call: None,
        by: Task { tid: 0, pid: 0 },
        disk: None,
        in_fault: false,
        lock: None,
    };
    const OTHER: Task = Task { tid: 9, pid: 1 };

    fn cause(sleep: Sleep) -> Cause {
        sleep.cause().0
    }

    #[test]
    fn a_futex_that_a_thread_woke_is_a_lock_and_one_that_ended_by_itself_a_timer() {
        let futex = Sleep { call: Some((call::FUTEX, 0x10)), ..WAITS };
        assert_eq!(Sleep { by: OTHER, ..futex }.cause(), (Cause::Lock, 0x10, OTHER));
        assert_eq!(cause(futex), Cause::Timer);
    }

    #[test]
    fn without_system_calls_it_is_only_known_that_a_thread_woke_it() {
        assert_eq!(Sleep { by: OTHER, ..WAITS }.cause(), (Cause::HandOver, 0, OTHER));
        assert_eq!(cause(WAITS), Cause::NotExplained);
    }

    #[test]
    fn a_disk_goes_before_a_lock_and_a_lock_before_a_fault() {
        let blocked = Sleep { leave: leave::BLOCKED, in_fault: true, ..WAITS };
        let locked = Sleep { lock: Some((0x20, OTHER)), ..blocked };
        assert_eq!(cause(Sleep { disk: Some(8 << 20), ..locked }), Cause::Disk);
        assert_eq!(locked.cause(), (Cause::Lock, 0x20, OTHER));
        assert_eq!(cause(blocked), Cause::PageFault);
        assert_eq!(cause(Sleep { in_fault: false, ..blocked }), Cause::NotExplained);
    }

    #[test]
    fn whoever_is_stopped_is_frozen_and_whoever_cannot_send_has_a_full_buffer() {
        assert_eq!(cause(Sleep { leave: leave::STOPPED, ..WAITS }), Cause::Frozen);
        let sends = Sleep { call: Some((call::SENDMSG, 5)), ..WAITS };
        assert_eq!(cause(sends), Cause::SendBuffer);
        assert_eq!(Sleep { by: OTHER, ..sends }.cause(), (Cause::HandOver, 0, OTHER));
        assert_eq!(cause(Sleep { call: Some((call::NANOSLEEP, 5)), ..WAITS }), Cause::Timer);
    }
}
