//! A synthetic latency-critical service: spin, sleep, repeat. It has no clients; it makes a CPU busy and idle at known
//! times, for measurements of microseconds.

use anyhow::Result;

use crate::clock::{Nanos, now_ns, sleep_until};
use crate::rng::Rng;
use crate::scheduling;
use crate::sibling::{Pace, PaceArgs};

/// Options of `sidelane-lab pulse`.
#[derive(Debug, clap::Args)]
pub struct PulseArgs {
    /// CPU to run on
    #[arg(long)]
    cpu: usize,
    /// Microseconds of spinning in each pulse
    #[arg(long, value_name = "US")]
    busy_us: u64,
    /// Microseconds of sleep after each pulse
    #[arg(long, value_name = "US")]
    idle_us: u64,
    /// Draw each length at random, from nothing to twice as long, beginning with this seed
    #[arg(long, value_name = "SEED")]
    vary: Option<u64>,
    /// Print the longest time for which a spin stood still, whenever there is a longer one
    #[arg(long)]
    stalls: bool,
    /// Number of pulses
    #[arg(long, value_name = "N")]
    count: u64,
    /// Options of the emulated sibling, which makes each pulse as long as beside a real sibling lane.
    #[command(flatten)]
    pace: PaceArgs,
}

/// Prints `ready pid=N` and runs the pulses.
pub fn run(args: &PulseArgs) -> Result<()> {
    scheduling::pin_to(args.cpu)?;
    scheduling::minimize_timer_slack()?;
    let sibling = args.pace.open_sibling()?;
    let mut pace = sibling.as_ref().map(|sibling| sibling.start_pace()).transpose()?;
    println!("ready pid={}", std::process::id());
    let mut stalls = Stalls { print: args.stalls, longest_ns: 0 };
    let mut rng = args.vary.map(|seed| Rng::new(seed, 0));
    for _ in 0..args.count {
        spin_until(now_ns().saturating_add(draw_length_ns(args.busy_us, &mut rng)), &mut stalls);
        pace.iter_mut().for_each(Pace::spin_for_lost_time);
        sleep_until(now_ns().saturating_add(draw_length_ns(args.idle_us, &mut rng)))?;
    }
    Ok(())
}

/// Returns the length of one spin or sleep: the mean, or a random length from 0 to twice the mean.
fn draw_length_ns(mean_us: u64, rng: &mut Option<Rng>) -> Nanos {
    let mean_ns = mean_us.saturating_mul(1000);
    rng.as_mut().map_or(mean_ns, |rng| (mean_ns as f64 * 2.0 * rng.next_f64()) as Nanos)
}

/// Spins on the clock, so that the CPU stays in user mode.
fn spin_until(end_ns: Nanos, stalls: &mut Stalls) {
    let mut last = now_ns();
    loop {
        let now = now_ns();
        stalls.record_gap(now - last);
        last = now;
        if now >= end_ns {
            return;
        }
        std::hint::spin_loop();
    }
}

/// Recorder of stalls: times in which the program lost its CPU to another program or a hypervisor.
struct Stalls {
    print: bool,
    longest_ns: Nanos,
}

impl Stalls {
    fn record_gap(&mut self, gap_ns: Nanos) {
        if self.print && gap_ns > self.longest_ns {
            self.longest_ns = gap_ns;
            println!("stalled_ns={gap_ns}");
        }
    }
}
