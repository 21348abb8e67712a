//! CPU affinity and scheduling class of threads.

use std::io;

/// Lane holders: above every ordinary task, below threaded interrupt handlers (50) and below the
/// real-time priorities that administrators usually choose.
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

/// The scheduling class; -1 if the thread has ended.
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
