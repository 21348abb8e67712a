//! Requests to memory at a steady rate (Holmes, HPDC'22, §3.1).
//!
//! A request reads every cache line of one block, which is chosen at random in an area that is too large for any cache.
//! The lines are read in large steps, so that no prefetcher helps. The mean leaves out the slowest hundredth, which a
//! virtual machine's host may have delayed.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use memmap2::{Advice, MmapMut};
use rustix::thread::set_current_timer_slack;
use sidelane_host::clock::now_ns;
use sidelane_host::priority::pin_this_thread;

const LINE_BYTES: usize = 64;
/// Distance of two consecutive reads, in lines. It is odd, so that the reads reach every line of a block, and longer
/// than a page.
const LEAP_LINES: usize = 769;
const MB: usize = 1 << 20;
/// Size of the memory that one request reads.
const BLOCK_BYTES: usize = MB;
const BLOCK_LINES: usize = BLOCK_BYTES / LINE_BYTES;
const SECOND_NS: f64 = 1e9;

/// Result of the requests of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestStats {
    /// Mean latency of the requests, without the slowest hundredth.
    pub mean_ns: f64,
    /// Number of requests per second.
    pub per_s: f64,
}

/// Thread that sends requests to memory, in steps that the owner of this value begins. It ends when this value is
/// dropped.
pub struct MemoryThread {
    steps: Sender<(Option<f64>, Duration)>,
    answers: Receiver<RequestStats>,
}

impl MemoryThread {
    /// Starts the thread on `cpu`, with `area_mb` megabytes of memory.
    ///
    /// # Errors
    /// Fails if there is not enough memory, or the CPU cannot be used.
    pub fn start(cpu: u32, area_mb: usize) -> Result<Self> {
        let (steps, asked) = channel::<(Option<f64>, Duration)>();
        let ((answer, answers), (ready, is_ready)) = (channel(), channel());
        let work = move || {
            let area = match Area::map_on_cpu(cpu, area_mb) {
                Ok(area) => area,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let _ = ready.send(Ok(()));
            let mut rng = Rng::with_seed(u64::from(cpu));
            for (rate, length) in asked {
                let gap_ns = rate.map_or(0, |rate| (SECOND_NS / rate) as u64);
                if answer.send(area.run_requests(gap_ns, length.as_nanos() as u64, &mut rng)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("memory".to_owned())
            .spawn(work)
            .context("cannot start the measuring thread; check the limit of processes (ulimit -u)")?;
        is_ready.recv().context("the measuring thread ended early")??;
        Ok(Self { steps, answers })
    }

    /// Begins a step of this length, with `rate` requests per second, or as many as possible.
    ///
    /// # Errors
    /// Fails if the thread has ended.
    pub fn begin_step(&self, rate: Option<f64>, length: Duration) -> Result<()> {
        self.steps.send((rate, length)).context("the measuring thread has ended")
    }

    /// Waits for the end of the step.
    ///
    /// # Errors
    /// Fails if the thread has ended.
    pub fn finish_step(&self) -> Result<RequestStats> {
        self.answers.recv().context("the measuring thread has ended")
    }
}

/// Memory area that requests read, in blocks.
struct Area {
    memory: MmapMut,
}

impl Area {
    /// Maps the area on `cpu`, and pins the calling thread there.
    fn map_on_cpu(cpu: u32, area_mb: usize) -> Result<Self> {
        pin_this_thread(&[cpu]).with_context(|| {
            format!("cannot run on CPU {cpu}; check that it is online and in this process's cpuset")
        })?;
        // The default timer slack of 50 µs is as long as a request.
        set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack of a thread")?;
        let no_memory = || format!("cannot allocate {area_mb} MB of memory; free some");
        let mut memory = MmapMut::map_anon(area_mb * MB).with_context(no_memory)?;
        // Huge pages, if there are any, keep page tables out of the measurement.
        let _ = memory.advise(Advice::HugePage);
        memory.iter_mut().step_by(rustix::param::page_size()).for_each(|byte| *byte = 1);
        Ok(Self { memory })
    }

    /// Sends requests for `duration_ns`. One begins every `gap_ns`; if `gap_ns` is 0, each begins at the end of the one
    /// before.
    fn run_requests(&self, gap_ns: u64, duration_ns: u64, rng: &mut Rng) -> RequestStats {
        let began_ns = now_ns();
        let (mut next_ns, mut took_ns) = (began_ns, Vec::new());
        while next_ns < began_ns + duration_ns {
            while now_ns() < next_ns {
                std::hint::spin_loop();
            }
            let start_ns = now_ns();
            self.read_block(rng.usize(..self.memory.len() / BLOCK_BYTES));
            let end_ns = now_ns();
            took_ns.push(end_ns - start_ns);
            // A late request delays all later ones, so the rate never exceeds the wanted rate.
            next_ns = (next_ns + gap_ns).max(end_ns);
        }
        RequestStats::from_latencies(took_ns, now_ns() - began_ns)
    }

    fn read_block(&self, block: usize) {
        let block = &self.memory[block * BLOCK_BYTES..][..BLOCK_BYTES];
        let line = |at: usize| at * LEAP_LINES % BLOCK_LINES * LINE_BYTES;
        black_box((0..BLOCK_LINES).map(|at| u64::from(block[line(at)])).sum::<u64>());
    }
}

impl RequestStats {
    fn from_latencies(mut latencies_ns: Vec<u64>, elapsed_ns: u64) -> Self {
        latencies_ns.sort_unstable();
        let kept = &latencies_ns[..latencies_ns.len() - latencies_ns.len() / 100];
        let mean_ns = kept.iter().sum::<u64>() as f64 / kept.len().max(1) as f64;
        Self { mean_ns, per_s: latencies_ns.len() as f64 * SECOND_NS / elapsed_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaps_reach_every_cache_line() {
        for lines in [1, 64, 16_384] {
            let mut seen: Vec<usize> = (0..lines).map(|at| at * LEAP_LINES % lines).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..lines));
        }
    }

    #[test]
    fn mean_excludes_the_slowest_hundredth() {
        let mut took_ns = vec![10; 99];
        took_ns.push(1_000_000);
        assert_eq!(RequestStats::from_latencies(took_ns, 1_000_000_000), RequestStats { mean_ns: 10.0, per_s: 100.0 });
        assert_eq!(RequestStats::from_latencies(Vec::new(), 1_000_000_000), RequestStats { mean_ns: 0.0, per_s: 0.0 });
    }
}
