//! CPU affinity and scheduling class of threads.

use std::io;

use serde::{Deserialize, Serialize};

use crate::cpulist::CpuSet;

/// Real-time priority of lane holders: above every ordinary task, below threaded interrupt handlers (50) and below
/// what an administrator is likely to have made real-time on purpose.
pub const HOLDER_PRIORITY: i32 = 10;

/// Real-time priority of the thread that decides for the agent, whose turns are short and limited. Batch that has raised
/// itself above the holders must not keep the thread from running that puts this right.
pub const DECIDER_PRIORITY: i32 = 90;

/// Restricts the calling thread to `cpus`.
pub fn pin_this_thread(cpus: &[u32]) -> io::Result<()> {
    pin_thread(0, cpus)
}

/// Restricts the thread `tid` (0: the calling one) to `cpus`.
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

/// Whether the thread `tid` may run on a CPU that is not one of `cpus`. False for a thread that has ended.
pub fn may_run_outside(tid: u32, cpus: &CpuSet) -> bool {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a cpu_set_t of the given size, to be filled in.
    let known = unsafe { libc::sched_getaffinity(tid as libc::pid_t, size_of_val(&set), &mut set) };
    // SAFETY: the index is in range, as CPU_ISSET requires.
    let is_set = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
    known == 0 && (0..libc::CPU_SETSIZE as u32).filter(is_set).any(|cpu| !cpus.contains(cpu))
}

/// Runs `work` with the calling thread restricted to `cpus`, then restores the thread's affinity. Threads and
/// processes that `work` starts stay restricted.
pub fn run_with_this_thread_on<T>(cpus: &[u32], work: impl FnOnce() -> T) -> io::Result<T> {
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

/// Puts the calling thread into SCHED_FIFO; its children begin in the ordinary class.
pub fn make_only_this_thread_fifo(priority: i32) -> io::Result<()> {
    schedule_this_thread(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Puts the calling thread, and its future children, into SCHED_IDLE.
pub fn make_this_thread_idle() -> io::Result<()> {
    schedule_this_thread(libc::SCHED_IDLE, 0)
}

/// Kernel's number of SCHED_EXT; the C library does not define it yet.
const SCHED_EXT: i32 = 7;

/// Puts the calling thread, and its future children, into SCHED_EXT.
pub fn make_this_thread_ext() -> io::Result<()> {
    schedule_this_thread(SCHED_EXT, 0)
}

/// Puts the thread `tid` into SCHED_IDLE if it is in SCHED_EXT. Returns whether the class changed.
pub fn move_from_ext_to_idle(tid: u32) -> bool {
    policy_number_of(tid) == SCHED_EXT && schedule(tid, libc::SCHED_IDLE, 0).is_ok()
}

/// Puts the thread `tid` into SCHED_EXT if it is in a class of the fair scheduler. Returns whether the class changed.
pub fn move_to_ext(tid: u32) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy_number_of(tid))
        && schedule(tid, SCHED_EXT, 0).is_ok()
}

/// Argument of sched_setattr(2): `struct sched_attr` of the kernel, in its first size.
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
/// Shortest time slice that the kernel accepts (since Linux 6.12; older kernels ignore the slice). A woken thread with
/// a shorter slice than the running thread preempts that thread at once.
const TURN_NS: u64 = 100_000;

/// Gives the thread `tid` precedence over all others of the ordinary class.
pub fn set_highest_ordinary_priority(tid: u32) -> io::Result<()> {
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
    // SAFETY: the kernel reads `size` bytes from the struct, which has that size.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid as libc::pid_t, &attributes, 0) };
    check(done as libc::c_int)
}

/// Scheduling class of a thread. The nice value is not part of it: a thread keeps its nice value in every class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadClass {
    /// Kernel's number of the class, with the bit that makes children begin in the ordinary class.
    pub policy: i32,
    /// Priority among real-time threads; 0 for other threads.
    pub priority: i32,
    /// Reserved CPU time of a thread in SCHED_DEADLINE; `None` in other classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<Reservation>,
}

/// CPU time that a thread in SCHED_DEADLINE has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation {
    flags: u64,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Reservation {
    fn of_thread(tid: u32) -> Option<Self> {
        let mut found = Attributes::default();
        let size = size_of::<Attributes>();
        // SAFETY: the kernel writes at most `size` bytes to the struct, which has that size.
        let known = unsafe { libc::syscall(libc::SYS_sched_getattr, tid as libc::pid_t, &mut found, size, 0) };
        let Attributes { flags, runtime_ns, deadline_ns, period_ns, .. } = found;
        (known == 0).then_some(Self { flags, runtime_ns, deadline_ns, period_ns })
    }

    fn apply_to_thread(&self, tid: u32) -> io::Result<()> {
        let Self { flags, runtime_ns, deadline_ns, period_ns } = *self;
        let policy = libc::SCHED_DEADLINE as u32;
        set_attributes(tid, Attributes { policy, flags, runtime_ns, deadline_ns, period_ns, ..Attributes::default() })
    }
}

impl ThreadClass {
    /// SCHED_IDLE: any other task that needs the CPU gets it at once.
    pub const IDLE: Self = Self::new(libc::SCHED_IDLE, 0);
    /// SCHED_EXT: a loaded scheduler decides; without a loaded scheduler it is the ordinary class.
    pub const EXT: Self = Self::new(SCHED_EXT, 0);
    /// SCHED_OTHER: the class of most threads.
    pub const ORDINARY: Self = Self::new(libc::SCHED_OTHER, 0);
    /// SCHED_FIFO with the priority of lane holders.
    pub const HOLDER: Self = Self::new(libc::SCHED_FIFO, HOLDER_PRIORITY);

    /// Returns the class with the kernel's number `policy`, which must not be SCHED_DEADLINE.
    pub const fn new(policy: i32, priority: i32) -> Self {
        Self { policy, priority, reservation: None }
    }

    /// Returns the class of the thread `tid`; `None` if it has ended.
    pub fn of_thread(tid: u32) -> Option<Self> {
        let policy = policy_number_of(tid);
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: `param` is a sched_param to be filled in.
        let known = unsafe { libc::sched_getparam(tid as libc::pid_t, &mut param) };
        let class = (policy >= 0 && known == 0).then_some(Self::new(policy, param.sched_priority))?;
        Some(Self { reservation: if class.is_deadline() { Reservation::of_thread(tid) } else { None }, ..class })
    }

    /// Returns the class in which children of a thread of this class begin.
    #[must_use]
    pub fn inherited_class(self) -> Self {
        let is_reset = self.policy & libc::SCHED_RESET_ON_FORK != 0 && self.is_realtime();
        if is_reset { Self::ORDINARY } else { self }
    }

    /// Whether the class is SCHED_IDLE, with or without the bit for children.
    pub fn is_idle(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_IDLE
    }

    /// Whether the class is SCHED_DEADLINE.
    pub fn is_deadline(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE
    }

    /// Whether threads of the class run before all of the ordinary class.
    pub fn is_realtime(&self) -> bool {
        let policy = self.policy & !libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy)
    }

    /// Whether a thread of this class keeps its CPU when a real-time thread of `priority` wants it. A thread of equal
    /// priority does not yield.
    pub fn outranks(&self, priority: i32) -> bool {
        self.is_deadline() || self.is_realtime() && self.priority >= priority
    }

    /// Returns the name of the class, with the priority of a real-time thread, as in `SCHED_FIFO 10`.
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

    /// Puts the thread `tid` into this class.
    pub fn apply_to_thread(&self, tid: u32) -> io::Result<()> {
        match self.reservation {
            Some(reservation) => reservation.apply_to_thread(tid),
            None => schedule(tid, self.policy, self.priority),
        }
    }
}

/// Returns the kernel's number of a thread's class; -1 for a thread that has ended.
fn policy_number_of(tid: u32) -> i32 {
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
