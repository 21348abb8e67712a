//! Batch work whose progress can be watched from outside, at any moment, without asking it.
//!
//! Each thread counts its finished units of work in a cache line of its own, in a file
//! that is shared memory to whoever maps it.

mod check;
mod compress;
mod counters;
mod kernels;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};

use crate::cli;
use crate::clock::{Nanos, SECOND_NS, now_ns, seconds_to_ns, timespec};
use check::Check;
use counters::Counters;
use kernels::Kernel;

/// Options of `batch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What each thread does
    #[arg(value_enum)]
    kernel: Kernel,
    /// File of the counters: 64 bytes a thread, the first 8 of them its units, as a number
    /// in the machine's byte order
    #[arg(long, value_name = "FILE")]
    counter: PathBuf,
    /// Seconds to run; until SIGTERM or SIGINT if not given
    #[arg(long, value_parser = cli::positive)]
    seconds: Option<f64>,
    /// Check the lane often, as programs built with `gcc -pg` do (see `sidelane run --gate`); not for zstd
    #[arg(long)]
    checks: bool,
    /// Number of threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

/// Runs the kernel on all threads until the time is over or a signal ends it.
pub fn run(args: &Args) -> Result<()> {
    let counters = Arc::new(Counters::create(&args.counter, usize::from(args.threads))?);
    // Threads inherit the mask, so the signals wait for this thread to ask for them.
    let signals = block_ending_signals()?;
    // Fails here, where it can be said, if the work cannot be done.
    drop(args.kernel.unit(Check::none())?);
    for thread in 0..usize::from(args.threads) {
        let counters = Arc::clone(&counters);
        let (kernel, checks) = (args.kernel, args.checks);
        thread::Builder::new()
            .name(format!("batch-{thread}"))
            .spawn(move || work(kernel, checks, &counters, thread))
            .context("cannot start a batch thread")?;
    }
    wait_for_end(&signals, args.seconds);
    // The workers end with the process; the counters stay in the file.
    Ok(())
}

fn work(kernel: Kernel, checks: bool, counters: &Counters, thread: usize) {
    let check = if checks { Check::join() } else { Check::none() };
    let mut unit = kernel.unit(check).expect("it could be made a moment ago");
    let counter = counters.of_thread(thread);
    loop {
        unit();
        counter.count_one();
    }
}

fn block_ending_signals() -> Result<libc::sigset_t> {
    // SAFETY: an all-zero sigset_t is a valid value, and sigemptyset sets it properly.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `signals` is valid for reads and writes throughout, the signal numbers exist,
    // and a null old mask is allowed.
    let outcome = unsafe {
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        libc::sigaddset(&mut signals, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut())
    };
    anyhow::ensure!(outcome == 0, "cannot block signals: {}", std::io::Error::from_raw_os_error(outcome));
    Ok(signals)
}

/// Sleeps until one of `signals` comes or the time is over.
fn wait_for_end(signals: &libc::sigset_t, seconds: Option<f64>) {
    let end_ns = seconds.map(|seconds| now_ns().saturating_add(seconds_to_ns(seconds).max(SECOND_NS / 1000)));
    // A process that is frozen (cgroup v2) or stopped, and goes on, is told EINTR.
    while wait_once(signals, end_ns) == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {}
}

/// Returns the signal that came, or -1 with errno set.
fn wait_once(signals: &libc::sigset_t, end_ns: Option<Nanos>) -> libc::c_int {
    let Some(end_ns) = end_ns else {
        // SAFETY: `signals` is an initialised set; no information about the signal is wanted.
        return unsafe { libc::sigwaitinfo(signals, std::ptr::null_mut()) };
    };
    let timeout = timespec(end_ns.saturating_sub(now_ns()));
    let timeout = libc::timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_nsec };
    // SAFETY: as above, and `timeout` outlives the call.
    unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &timeout) }
}
