//! A noisy machine on demand: noise that tests must tolerate.
//!
//! There are two kinds of noise on each CPU. A *host* takes the CPU away at random, mostly for microseconds and
//! sometimes for 5 to 20 ms, as a hypervisor with other guests does. It is a SCHED_FIFO thread above every lane holder.
//! If SCHED_FIFO is refused, it is an ordinary thread, and a message says so. *Neighbours* are ordinary programs: one
//! wakes 500 times a second, another computes 40 % of the time.

mod host;
mod neighbours;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::sched_getaffinity;

use crate::clock::{Nanos, SECOND_NS, now_ns, seconds_to_ns};
use crate::signals::{EndingSignals, end_with_parent};
use crate::{numbers, scheduling};
use host::Gaps;

/// Options of `sidelane-lab noise`.
#[derive(Debug, clap::Args)]
pub struct NoiseArgs {
    /// Begin the random gaps with this seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Part of each CPU that the host takes, in percent
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT", value_parser = numbers::positive)]
    taken: f64,
    /// Gaps of 5 to 20 ms a second on each CPU
    #[arg(long, default_value_t = 2.0, value_name = "N", value_parser = numbers::non_negative)]
    long_gaps: f64,
    /// Only the host: no neighbours
    #[arg(long)]
    no_neighbours: bool,
    /// Seconds to run; until SIGTERM or SIGINT if not given
    #[arg(long, value_parser = numbers::positive)]
    seconds: Option<f64>,
}

/// Counts of the noise that was made on one CPU.
#[derive(Debug, Default)]
struct NoiseCounters {
    /// CPU time that the host used.
    host_ns: AtomicU64,
    gaps: AtomicU64,
    long_gaps: AtomicU64,
    longest_ns: AtomicU64,
    /// CPU time that the neighbours used.
    neighbours_ns: AtomicU64,
}

/// State that all noise threads share.
struct Noise {
    cpu: usize,
    stop: Arc<AtomicBool>,
    taken: Arc<NoiseCounters>,
}

impl Noise {
    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Makes noise until a POSIX signal, the time limit or its parent's death ends it. Prints the amount of noise at the
/// end.
pub fn run(args: &NoiseArgs) -> Result<()> {
    let gaps = Gaps::new(args.taken / 100.0, args.long_gaps)?;
    let signals = EndingSignals::block()?;
    end_with_parent()?;
    let stop = Arc::new(AtomicBool::new(false));
    let cpus = own_cpus()?;
    let began_ns = now_ns();
    let mut threads = Vec::new();
    let mut taken = Vec::new();
    for &cpu in &cpus {
        let count = Arc::new(NoiseCounters::default());
        let noise = || Noise { cpu, stop: Arc::clone(&stop), taken: Arc::clone(&count) };
        threads.push(start_host(noise(), gaps, args.seed)?);
        if !args.no_neighbours {
            threads.push(start_pinned_thread(format!("waker-{cpu}"), noise(), neighbours::run_waking_neighbour)?);
            threads.push(start_pinned_thread(format!("worker-{cpu}"), noise(), neighbours::run_computing_neighbour)?);
        }
        taken.push(count);
    }
    println!("ready pid={}", std::process::id());
    signals.wait(args.seconds.map(|seconds| now_ns().saturating_add(seconds_to_ns(seconds))));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("noise threads do not panic")?;
    }
    let report = Report { taken: &taken, wall_ns: now_ns() - began_ns };
    println!("{report}");
    Ok(())
}

type NoiseThread = thread::JoinHandle<Result<()>>;

/// Starts the host thread of one CPU. Prints a message if the thread may not have the host's priority.
fn start_host(noise: Noise, gaps: Gaps, seed: u64) -> Result<NoiseThread> {
    let (said, refused) = mpsc::channel();
    let cpu = noise.cpu;
    let host = start_pinned_thread(format!("host-{cpu}"), noise, move |noise| {
        let _ = said.send(scheduling::run_as_fifo(host::PRIORITY));
        host::steal_cpu(noise, gaps, seed)
    })?;
    if let Ok(Err(error)) = refused.recv() {
        eprintln!(
            "noise: {error:#}; on CPU {cpu} the gaps come from an ordinary thread, which shares them with others"
        );
    }
    Ok(host)
}

/// Starts a noise thread that is pinned to the CPU of `noise`.
fn start_pinned_thread(
    name: String,
    noise: Noise,
    body: impl FnOnce(&Noise) -> Result<()> + Send + 'static,
) -> Result<NoiseThread> {
    let body = move || {
        scheduling::pin_to(noise.cpu)?;
        scheduling::minimize_timer_slack()?;
        body(&noise)
    };
    thread::Builder::new().name(name).spawn(body).context("cannot start a thread")
}

/// Returns the CPUs that this process may use.
fn own_cpus() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("cannot learn which CPUs this process may use")?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Counts of all CPUs, printed in one line.
struct Report<'a> {
    taken: &'a [Arc<NoiseCounters>],
    wall_ns: Nanos,
}

impl Report<'_> {
    fn sum(&self, counter: fn(&NoiseCounters) -> &AtomicU64) -> f64 {
        self.taken.iter().map(|taken| counter(taken).load(Ordering::Relaxed)).sum::<u64>() as f64
    }

    /// Returns the mean of a time over the CPUs, in percent of the wall time.
    fn mean_percent(&self, counter: fn(&NoiseCounters) -> &AtomicU64) -> f64 {
        self.sum(counter) * 100.0 / (self.wall_ns as f64 * self.taken.len() as f64)
    }

    /// Returns the mean of a count over the CPUs, per second.
    fn mean_per_s(&self, counter: fn(&NoiseCounters) -> &AtomicU64) -> f64 {
        self.sum(counter) * SECOND_NS as f64 / (self.wall_ns as f64 * self.taken.len() as f64)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest_ns = self.taken.iter().map(|taken| taken.longest_ns.load(Ordering::Relaxed)).max();
        write!(
            f,
            "of each CPU the host took {:.1} % in {:.0} gaps a second, {:.1} of them over 5 ms, the longest {:.1} ms; \
             neighbours used {:.0} %",
            self.mean_percent(|taken| &taken.host_ns),
            self.mean_per_s(|taken| &taken.gaps),
            self.mean_per_s(|taken| &taken.long_gaps),
            longest_ns.unwrap_or(0) as f64 / 1e6,
            self.mean_percent(|taken| &taken.neighbours_ns),
        )
    }
}
