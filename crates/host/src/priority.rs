//! CPU affinity and scheduling class of threads.

use std::io;

use serde::{Deserialize, Serialize};

use crate::cpulist::CpuSet;

/// Holders: above every ordinary task, below threaded interrupt handlers (50) and below what
/// an administrator is likely to have made real-time on purpose.
pub const HOLDER_PRIORITY: i32 = 10;

/// Confines the calling thread to `cpus`.
pub fn pin_this_thread(cpus: &[u32]) -> io::Result<()> {
    pin_thread(0, cpus)
}

/// Confines the thread `tid` (0: the calling one) to `cpus`.
pub fn pin_thread(tid: u32, cpus: &[u32]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as u32) {
        // SAFETY: the index is in range, as CPU_SET requires.
        unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
    }
    // SAFETY: `set` is a valid cpu_set_t of the given size.
    let result = unsafe { libc::sched_setaffinity(tid as libc::pid_t, size_of_val(&set), &set) };
    check(result)
}

/// Whether the thread `tid` may run on a CPU that is not one of these. Not of a thread that has ended.
pub fn may_leave(tid: u32, cpus: &CpuSet) -> bool {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a cpu_set_t of the given size, to be filled in.
    let known = unsafe { libc::sched_getaffinity(tid as libc::pid_t, size_of_val(&set), &mut set) };
    // SAFETY: the index is in range, as CPU_ISSET requires.
    let is_set = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
    known == 0 && (0..libc::CPU_SETSIZE as u32).filter(is_set).any(|cpu| !cpus.contains(cpu))
}

/// Runs `work` with the calling thread confined to `cpus`, then restores the thread's affinity.
/// Threads and processes that `work` starts stay confined.
pub fn with_this_thread_on<T>(cpus: &[u32], work: impl FnOnce() -> T) -> io::Result<T> {
    let before = rustix::thread::sched_getaffinity(None)?;
    pin_this_thread(cpus)?;
    let done = work();
    rustix::thread::sched_setaffinity(None, &before)?;
    Ok(done)
}

/// Puts the calling thread into SCHED_FIFO.
pub fn make_this_thread_fifo(priority: i32) -> io::Result<()> {
    schedule_this_thread(libc::SCHED_FIFO, priority)
}

/// The same for a thread whose children are to begin in the ordinary class.
pub fn make_only_this_thread_fifo(priority: i32) -> io::Result<()> {
    schedule_this_thread(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Puts the calling thread, and its children to come, into SCHED_IDLE.
pub fn make_this_thread_idle() -> io::Result<()> {
    schedule_this_thread(libc::SCHED_IDLE, 0)
}

/// SCHED_EXT; the C library does not define it yet.
const SCHED_EXT: i32 = 7;

/// Puts the calling thread, and its children to come, into SCHED_EXT.
pub fn make_this_thread_ext() -> io::Result<()> {
    schedule_this_thread(SCHED_EXT, 0)
}

/// Puts the thread `tid` into SCHED_IDLE if it is in SCHED_EXT. Returns whether it did.
pub fn move_from_ext_to_idle(tid: u32) -> bool {
    class_of(tid) == SCHED_EXT && schedule(tid, libc::SCHED_IDLE, 0).is_ok()
}

/// Puts the thread `tid` into SCHED_EXT if it is in a class of the fair scheduler. Returns whether
/// it did.
pub fn move_to_ext(tid: u32) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&class_of(tid))
        && schedule(tid, SCHED_EXT, 0).is_ok()
}

/// `struct sched_attr` of the kernel, in its first size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Nice value with the highest weight.
const MOST_URGENT: i32 = -20;
/// The shortest time slice that the kernel accepts. A thread with a shorter slice than the running one preempts it at once.
/// Since Linux 6.12; older kernels ignore it.
const TURN_NS: u64 = 100_000;

/// Puts the thread `tid` before all others of the ordinary class.
pub fn put_first(tid: u32) -> io::Result<()> {
    let attributes = Attributes {
        policy: libc::SCHED_OTHER as u32,
        nice: MOST_URGENT,
        runtime_ns: TURN_NS,
        ..Attributes::default()
    };
    set_attributes(tid, attributes)
}

fn set_attributes(tid: u32, attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    // SAFETY: the kernel reads `size` bytes at the address, which are all there.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid as libc::pid_t, &attributes, 0) };
    check(done as libc::c_int)
}

/// A thread's scheduling class. Its nice value is not part of it: that stays a thread's own in every class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadClass {
    /// The kernel's number for it, and whether children begin in the ordinary class.
    pub policy: i32,
    /// Among real-time threads; 0 for others.
    pub priority: i32,
    /// Of SCHED_DEADLINE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<Reservation>,
}

/// The CPU time that a thread in SCHED_DEADLINE has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation {
    flags: u64,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Reservation {
    fn of(tid: u32) -> Option<Self> {
        let mut found = Attributes::default();
        let size = size_of::<Attributes>();
        // SAFETY: the kernel writes at most `size` bytes to the address, which are all there.
        let known = unsafe { libc::syscall(libc::SYS_sched_getattr, tid as libc::pid_t, &mut found, size, 0) };
        let Attributes { flags, runtime_ns, deadline_ns, period_ns, .. } = found;
        (known == 0).then_some(Self { flags, runtime_ns, deadline_ns, period_ns })
    }

    fn give(&self, tid: u32) -> io::Result<()> {
        let Self { flags, runtime_ns, deadline_ns, period_ns } = *self;
        let policy = libc::SCHED_DEADLINE as u32;
        set_attributes(tid, Attributes { policy, flags, runtime_ns, deadline_ns, period_ns, ..Attributes::default() })
    }
}

impl ThreadClass {
    /// Any other task that needs the CPU gets it at once.
    pub const IDLE: Self = Self::new(libc::SCHED_IDLE, 0);
    /// A scheduler that was loaded decides; the ordinary class if there is none.
    pub const EXT: Self = Self::new(SCHED_EXT, 0);
    /// The class of most threads.
    pub const ORDINARY: Self = Self::new(libc::SCHED_OTHER, 0);
    /// The class of a thread that keeps a lane.
    pub const HOLDER: Self = Self::new(libc::SCHED_FIFO, HOLDER_PRIORITY);

    /// Any class but SCHED_DEADLINE, by the kernel's number for it.
    pub const fn new(policy: i32, priority: i32) -> Self {
        Self { policy, priority, reservation: None }
    }

    /// The class of the thread `tid`, unless it has ended.
    pub fn of(tid: u32) -> Option<Self> {
        let policy = class_of(tid);
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: `param` is a sched_param to be filled in.
        let known = unsafe { libc::sched_getparam(tid as libc::pid_t, &mut param) };
        let class = (policy >= 0 && known == 0).then_some(Self::new(policy, param.sched_priority))?;
        Some(Self { reservation: if class.is_deadline() { Reservation::of(tid) } else { None }, ..class })
    }

    /// The class in which children of a thread of this class begin.
    #[must_use]
    pub fn of_children(self) -> Self {
        let is_reset = self.policy & libc::SCHED_RESET_ON_FORK != 0 && self.is_realtime();
        if is_reset { Self::ORDINARY } else { self }
    }

    /// Whether it is SCHED_IDLE, whatever children begin in.
    pub fn is_idle(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_IDLE
    }

    /// Whether it is SCHED_DEADLINE.
    pub fn is_deadline(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE
    }

    /// Whether its threads run before all of the ordinary class.
    pub fn is_realtime(&self) -> bool {
        let policy = self.policy & !libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy)
    }

    /// Whether a thread of it runs on beside a real-time thread of this priority that wants its CPU: one of equal
    /// priority does not yield.
    pub fn outranks(&self, priority: i32) -> bool {
        self.is_deadline() || self.is_realtime() && self.priority >= priority
    }

    /// Its name, with the priority of a real-time thread.
    pub fn name(&self) -> String {
        match self.policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER => "SCHED_OTHER".to_owned(),
            libc::SCHED_BATCH => "SCHED_BATCH".to_owned(),
            libc::SCHED_IDLE => "SCHED_IDLE".to_owned(),
            libc::SCHED_DEADLINE => "SCHED_DEADLINE".to_owned(),
            libc::SCHED_FIFO => format!("SCHED_FIFO {}", self.priority),
            libc::SCHED_RR => format!("SCHED_RR {}", self.priority),
            other => format!("scheduling class {other}"),
        }
    }

    /// Puts the thread `tid` into it.
    pub fn give(&self, tid: u32) -> io::Result<()> {
        match self.reservation {
            Some(reservation) => reservation.give(tid),
            None => schedule(tid, self.policy, self.priority),
        }
    }
}

/// -1 for a thread that has ended.
fn class_of(tid: u32) -> i32 {
    // SAFETY: plain system call.
    unsafe { libc::sched_getscheduler(tid as libc::pid_t) }
}

fn schedule_this_thread(policy: i32, priority: i32) -> io::Result<()> {
    schedule(0, policy, priority)
}

fn schedule(tid: u32, policy: i32, priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is a valid sched_param; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(tid as libc::pid_t, policy, &param) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_outranks_a_real_time_priority_from_that_priority_on() {
        let outranks = |policy, priority| ThreadClass::new(policy, priority).outranks(10);
        for policy in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK] {
            assert_eq!([9, 10, 99].map(|priority| outranks(policy, priority)), [false, true, true]);
        }
        assert!(outranks(libc::SCHED_DEADLINE, 0));
        for class in [ThreadClass::IDLE, ThreadClass::ORDINARY, ThreadClass::EXT] {
            assert!(!class.outranks(0) && !class.is_realtime());
        }
    }
}
