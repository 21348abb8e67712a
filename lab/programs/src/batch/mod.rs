//! Batch work whose progress other processes can read at any moment.
//!
//! Each thread counts its finished units of work in a cache line of its own. The cache lines are in a file that other
//! processes map as shared memory.

mod compress;
mod counters;
mod kernels;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock::{Nanos, SECOND_NS, now_ns, seconds_to_ns};
use crate::numbers;
use crate::sibling::{PaceArgs, Sibling};
use crate::signals::EndingSignals;
use counters::{Counter, Counters};
use kernels::Kernel;
use sidelane_host::check::GateCheck;

/// Options of `sidelane-lab batch`.
#[derive(Debug, clap::Args)]
pub struct BatchArgs {
    /// What each thread does
    #[arg(value_enum)]
    kernel: Kernel,
    /// File of the counters: 64 bytes for each thread. The first 8 bytes are its units, the next 8
    /// the nanoseconds that it worked on them, the next 8 those in which it made up for a sibling
    /// lane, the next 8 the time of --stamps, as numbers in the machine's byte order
    #[arg(long, value_name = "FILE")]
    counter: PathBuf,
    /// Seconds to run; until SIGTERM or SIGINT if not given
    #[arg(long, value_parser = numbers::positive)]
    seconds: Option<f64>,
    /// Check the lane often, as programs built with `gcc -pg` do (see `sidelane run --gate`); not for zstd
    #[arg(long)]
    checks: bool,
    /// Store the time (CLOCK_MONOTONIC) after each unit
    #[arg(long)]
    stamps: bool,
    /// Number of threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Do this many units of work, then sleep, repeatedly
    #[arg(long, value_name = "UNITS:US", value_parser = rest)]
    rest: Option<Rest>,
    /// Options of the emulated sibling. They do not apply to the kernel zstd, whose processes a steal emulator slows
    /// instead.
    #[command(flatten)]
    pace: PaceArgs,
}

/// Rhythm of a resting batch thread: units of work between two sleeps, and the length of a sleep.
#[derive(Clone, Copy, Debug)]
struct Rest {
    after_units: u64,
    length_ns: Nanos,
}

fn rest(text: &str) -> Result<Rest, String> {
    let parts = text.split_once(':').and_then(|(units, us)| Some((units.parse().ok()?, us.parse::<u64>().ok()?)));
    let rest = parts.map(|(after_units, us)| Rest { after_units, length_ns: us * 1000 });
    rest.filter(|rest| rest.after_units > 0).ok_or_else(|| "write UNITS:MICROSECONDS, as in 200:1000".to_owned())
}

/// Runs the kernel on all threads until the given time is over or a POSIX signal ends it.
pub fn run(args: &BatchArgs) -> Result<()> {
    let counters = Arc::new(Counters::create(&args.counter, usize::from(args.threads))?);
    // Blocks the POSIX signals before the threads start, so that the signals stay pending for this thread.
    let signals = EndingSignals::block()?;
    // Fails here with a message, before the threads start, if the work cannot be done.
    drop(args.kernel.new_work_unit(GateCheck::without_gate())?);
    let sibling = Arc::new(args.pace.open_sibling()?.filter(|_| args.kernel.is_in_process()));
    for thread in 0..usize::from(args.threads) {
        let (counters, sibling) = (Arc::clone(&counters), Arc::clone(&sibling));
        let (kernel, checks, stamps, rest) = (args.kernel, args.checks, args.stamps, args.rest);
        thread::Builder::new()
            .name(format!("batch-{thread}"))
            .spawn(move || {
                let counter = counters.of_thread(thread);
                let count = |counter: &Counter| {
                    counter.count_unit();
                    if stamps {
                        counter.store_timestamp(now_ns());
                    }
                };
                run_batch_thread(kernel, checks, rest, sibling.as_ref().as_ref(), counter, count)
            })
            .context("cannot start a batch thread")?;
    }
    signals.wait(args.seconds.map(|seconds| now_ns().saturating_add(seconds_to_ns(seconds).max(SECOND_NS / 1000))));
    // Leaves the workers running until the process ends; the counters stay in the file.
    Ok(())
}

/// Number of units of work between two checks. A check reads the other lane's state and the clock, and the 16 units
/// between take some tens of microseconds.
const UNITS_A_LOOK: u64 = 16;

fn run_batch_thread(
    kernel: Kernel,
    checks: bool,
    rest: Option<Rest>,
    sibling: Option<&Sibling>,
    counter: &Counter,
    count_unit: impl Fn(&Counter),
) {
    let check = if checks { GateCheck::join_gate() } else { GateCheck::without_gate() };
    let mut unit = kernel.new_work_unit(check).expect("it could be made a moment ago");
    let mut pace = sibling.map(|sibling| sibling.start_pace().unwrap_or_else(|error| exit_with_error(&error)));
    let mut began_ns = now_ns();
    for done in 1_u64.. {
        unit();
        count_unit(counter);
        let rest = rest.filter(|rest| done.is_multiple_of(rest.after_units));
        if !done.is_multiple_of(UNITS_A_LOOK) && rest.is_none() {
            continue;
        }
        if let Some(pace) = &mut pace {
            let look_ns = now_ns();
            pace.spin_for_lost_time();
            counter.add_emulated_slowdown(now_ns() - look_ns);
        }
        let now = now_ns();
        counter.add_busy_time(now - began_ns);
        began_ns = now;
        if let Some(rest) = rest {
            thread::sleep(Duration::from_nanos(rest.length_ns));
            began_ns = now_ns();
        }
    }
}

/// Ends the process with an error. Batch that continued without the emulated slowdown would give wrong measurements.
fn exit_with_error(error: &anyhow::Error) -> ! {
    eprintln!("sidelane-lab: {error:#}");
    std::process::exit(1);
}
