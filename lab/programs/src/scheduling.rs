//! CPU, scheduling class and timer slack of the calling thread.

use std::io;
use std::num::NonZeroU64;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, Timespec, nanosleep, sched_setaffinity, set_current_timer_slack};

/// Pins the calling thread, and every thread it starts later, to one CPU.
pub fn pin_to(cpu: usize) -> Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "CPU {cpu} does not exist; CPUs are numbered below {}", CpuSet::MAX_CPU);
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)
        .with_context(|| format!("cannot run on CPU {cpu}; is it online and in this process's cpuset? (see `lscpu`)"))
}

/// Puts the calling thread into SCHED_FIFO, so that fair-class work on the same CPU cannot delay it.
pub fn run_as_fifo(priority: i32) -> Result<()> {
    let entered = set_scheduling_class(libc::SCHED_FIFO, priority);
    entered.with_context(|| format!("cannot enter SCHED_FIFO at priority {priority}; run as root or with CAP_SYS_NICE"))
}

/// Puts the calling thread into SCHED_BATCH: on wakeup it does not preempt the running thread.
pub fn use_batch_class() -> Result<()> {
    set_scheduling_class(libc::SCHED_BATCH, 0).context("cannot enter SCHED_BATCH")
}

fn set_scheduling_class(class: i32, priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is a valid sched_param that outlives the call; pid 0 is the caller.
    match unsafe { libc::sched_setscheduler(0, class, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the timer slack to 1 ns: the default of 50 µs is as long as the measured times.
pub fn minimize_timer_slack() -> Result<()> {
    set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack of a thread to 1 ns")
}

/// Sleeps for 50 µs, so that the calling thread is usually switched out and in again. A sleep of a few nanoseconds may
/// end before the thread has left its CPU, even several times in a row.
pub fn sleep_for_context_switch() -> Result<()> {
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000 };
    rustix::io::retry_on_intr(|| match nanosleep(&moment) {
        rustix::thread::NanosleepRelativeResult::Ok => Ok(()),
        rustix::thread::NanosleepRelativeResult::Interrupted(_) => Err(rustix::io::Errno::INTR),
        rustix::thread::NanosleepRelativeResult::Err(error) => Err(error),
    })
    .context("nanosleep failed")
}

/// Starts a short-lived real-time thread on a CPU, so that a context switch happens there.
pub fn force_context_switch_on(cpu: usize) -> Result<()> {
    let visit = move || -> Result<()> {
        run_as_fifo(1)?;
        pin_to(cpu)
    };
    std::thread::spawn(visit).join().expect("the visiting thread does not panic")
}
