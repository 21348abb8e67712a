//! A synthetic latency-critical service: spin, sleep, repeat. It answers nobody; it only
//! makes a CPU busy and idle in a known rhythm, for measurements of microseconds.

use anyhow::{Context, Result};
use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::clock::{Nanos, now_ns, timespec};
use crate::place;

/// Options of `pulse`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CPU to run on
    #[arg(long)]
    cpu: usize,
    /// Microseconds of spinning in each pulse
    #[arg(long, value_name = "US")]
    busy_us: u64,
    /// Microseconds of sleep after each pulse
    #[arg(long, value_name = "US")]
    idle_us: u64,
    /// Number of pulses
    #[arg(long, value_name = "N")]
    count: u64,
}

/// Prints `ready pid=N` and runs the pulses.
pub fn run(args: &Args) -> Result<()> {
    place::pin_to(args.cpu)?;
    place::wake_on_time()?;
    println!("ready pid={}", std::process::id());
    for _ in 0..args.count {
        let spun_until_ns = spin_until(now_ns().saturating_add(args.busy_us.saturating_mul(1000)));
        sleep_until(spun_until_ns.saturating_add(args.idle_us.saturating_mul(1000)))?;
    }
    Ok(())
}

/// Spins on the clock, which keeps the CPU in user mode; returns the time it stopped.
fn spin_until(end_ns: Nanos) -> Nanos {
    loop {
        let now = now_ns();
        if now >= end_ns {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Sleeps to an absolute time, so that a signal in between does not stretch the rhythm.
fn sleep_until(wake_ns: Nanos) -> Result<()> {
    let wake = timespec(wake_ns);
    rustix::io::retry_on_intr(|| clock_nanosleep_absolute(ClockId::Monotonic, &wake)).context("clock_nanosleep failed")
}
