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
use crate::clock::{SECOND_NS, now_ns, seconds_to_ns};
use crate::signals::EndingSignals;
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
    let signals = EndingSignals::block()?;
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
    signals.wait(args.seconds.map(|seconds| now_ns().saturating_add(seconds_to_ns(seconds).max(SECOND_NS / 1000))));
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
