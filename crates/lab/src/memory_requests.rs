//! Requests to memory at a steady rate: what `sidelane calibrate` measures (Holmes, HPDC'22, §3.1).
//!
//! A request reads every cache line of one block, which is chosen at random in an area that no cache holds. Lines are
//! read in leaps, so that no prefetcher helps. It reads commands, `run RATE SECONDS`, with `max` for a rate as high as
//! possible, and answers each with what its requests took: `requests=N mean_ns=N p50_ns=N per_s=N`. The mean leaves out
//! the slowest hundredth, in which a virtual machine's host has its part.

use std::hint::black_box;
use std::io::{BufRead, stdin};
use std::ptr;

use anyhow::{Context, Result, bail, ensure};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::clock::{Nanos, SECOND_NS, now_ns, seconds_to_ns};
use crate::place;
use crate::rng::Rng;

const LINE_BYTES: usize = 64;
/// Odd, so that leaps of so many lines come by every line of a block; longer than a page.
const LEAP_LINES: usize = 769;
const MB: usize = 1 << 20;

/// Options of `memory-requests`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CPU to run on
    #[arg(long)]
    cpu: usize,
    /// Megabytes of memory that are asked for
    #[arg(long, value_name = "MB", default_value_t = 600)]
    area_mb: usize,
    /// Kilobytes of one request
    #[arg(long, value_name = "KB", default_value_t = 1024)]
    block_kb: usize,
}

/// Prints `ready pid=N` and obeys until its input ends.
pub fn run(args: &Args) -> Result<()> {
    place::pin_to(args.cpu)?;
    place::wake_on_time()?;
    let area = Area::map(args.area_mb * MB, args.block_kb * 1024)?;
    let mut rng = Rng::new(1, args.cpu as u64);
    println!("ready pid={}", std::process::id());
    for line in stdin().lock().lines() {
        let line = line.context("the input cannot be read")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["run", rate, seconds] => println!("{}", area.serve(gap_ns(rate)?, duration_ns(seconds)?, &mut rng)),
            _ => bail!("`{line}` is not `run RATE SECONDS`"),
        }
    }
    Ok(())
}

/// From one request to the next; 0 for as many as possible.
fn gap_ns(rate: &str) -> Result<Nanos> {
    if rate == "max" {
        return Ok(0);
    }
    let rate: f64 = rate.parse().with_context(|| format!("`{rate}` is neither a rate nor `max`"))?;
    ensure!(rate >= 1.0, "a rate of {rate} cannot be; ask for one request a second at least");
    Ok((SECOND_NS as f64 / rate) as Nanos)
}

fn duration_ns(seconds: &str) -> Result<Nanos> {
    Ok(seconds_to_ns(seconds.parse().with_context(|| format!("`{seconds}` is no time in seconds"))?))
}

/// Memory of blocks.
struct Area {
    start: *const u8,
    block_lines: usize,
    blocks: usize,
}

impl Area {
    fn map(bytes: usize, block_bytes: usize) -> Result<Self> {
        let (block_lines, blocks) = (block_bytes / LINE_BYTES, bytes / block_bytes.max(1));
        ensure!(
            block_lines.is_power_of_two() && blocks > 0,
            "blocks have a power of two as their size, and fit the area"
        );
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
        let start: *mut u8 = start.with_context(|| format!("there are no {} MB of memory", bytes / MB))?.cast();
        // Large pages, where there are any, leave page tables out of what is measured.
        // SAFETY: the mapping of a moment ago.
        let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
        for page in (0..bytes).step_by(rustix::param::page_size()) {
            // SAFETY: inside the mapping.
            unsafe { start.add(page).write(1) };
        }
        Ok(Self { start, block_lines, blocks })
    }

    /// Sends requests for so long. Returns what is said of them.
    fn serve(&self, gap_ns: Nanos, duration_ns: Nanos, rng: &mut Rng) -> String {
        let began_ns = now_ns();
        let (mut next_ns, mut took_ns) = (began_ns, Vec::new());
        while next_ns < began_ns + duration_ns {
            while now_ns() < next_ns {
                std::hint::spin_loop();
            }
            let start_ns = now_ns();
            self.read_block(rng.below(self.blocks));
            let end_ns = now_ns();
            took_ns.push(end_ns - start_ns);
            // A request that was late is not made up for: the rate is at most what was asked for.
            next_ns = (next_ns + gap_ns).max(end_ns);
        }
        summary(took_ns, now_ns() - began_ns)
    }

    fn read_block(&self, block: usize) {
        let mut sum = 0_u64;
        for at in 0..self.block_lines {
            let line = at * LEAP_LINES % self.block_lines;
            // SAFETY: inside the mapping, which lives as long as the process.
            sum += u64::from(unsafe { self.start.add((block * self.block_lines + line) * LINE_BYTES).read_volatile() });
        }
        black_box(sum);
    }
}

fn summary(mut took_ns: Vec<Nanos>, elapsed_ns: Nanos) -> String {
    took_ns.sort_unstable();
    let kept = &took_ns[..took_ns.len() - took_ns.len() / 100];
    let mean_ns = kept.iter().sum::<Nanos>() / kept.len().max(1) as u64;
    let per_s = took_ns.len() as f64 * SECOND_NS as f64 / elapsed_ns as f64;
    let p50_ns = took_ns.get(took_ns.len() / 2).copied().unwrap_or_default();
    format!("requests={} mean_ns={mean_ns} p50_ns={p50_ns} per_s={per_s:.0}", took_ns.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaps_come_by_every_line() {
        for lines in [1, 64, 16_384] {
            let mut seen: Vec<usize> = (0..lines).map(|at| at * LEAP_LINES % lines).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..lines));
        }
    }

    #[test]
    fn the_slowest_hundredth_is_not_in_the_mean() {
        let mut took_ns = vec![10; 99];
        took_ns.push(1_000_000);
        assert_eq!(summary(took_ns, SECOND_NS), "requests=100 mean_ns=10 p50_ns=10 per_s=100");
        assert_eq!(summary(Vec::new(), SECOND_NS), "requests=0 mean_ns=0 p50_ns=0 per_s=0");
    }

    #[test]
    fn rates_are_read() {
        assert_eq!(gap_ns("max").unwrap(), 0);
        assert_eq!(gap_ns("5000").unwrap(), 200_000);
        assert!(gap_ns("0").is_err() && gap_ns("many").is_err());
    }
}
