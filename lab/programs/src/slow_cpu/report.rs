//! The report of a slow CPU: how fast it really was, and what that cost.

use std::fmt;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::LANE;
use super::speed::Speed;
use crate::clock::Nanos;
use crate::sibling::core::Core;
use crate::sibling::report::{LaneReport, of_lane};
use crate::sibling::thief::StealEmulator;

/// A slow CPU, since it became one.
#[derive(Debug, Serialize)]
pub struct SpeedReport {
    /// The CPU.
    cpu: u32,
    /// The speed that was asked for.
    asked: f64,
    /// The speed that programs had: the share of `worked_ns` in which they made progress. `None` if no program worked.
    speed: Option<f64>,
    /// Time in which programs that are slow there had the CPU, or waited for the thief. Without one, these are the
    /// programs with `--sibling`.
    worked_ns: Nanos,
    /// Time that programs with `--sibling` spun for it, on any CPU.
    spun_ns: Nanos,
    /// Time that the thief took, interruptions by its wake-ups included.
    taken_ns: Nanos,
    /// How often such programs looked.
    looks: u64,
    /// How often the thief woke up, and how often it took a slice.
    wake_ups: u64,
    slices: u64,
    /// Time that its wake-ups took.
    late_ns: Nanos,
    /// Context switches, and the kernel program's mean time for one, over those that were timed.
    switches: u32,
    switch_ns: Option<f64>,
}

impl SpeedReport {
    /// So far.
    pub fn of(cpu: u32, asked: Speed, core: &Core, thief: Option<&StealEmulator>) -> Self {
        let lane = of_lane(core, LANE, thief);
        let LaneReport { both_ns, spun_ns, taken_ns, looks, wake_ups, switches, switch_ns, .. } = lane;
        let strangers_ns = core.lanes[LANE].overlap[0].shows(core.other_spent_ns(LANE, 0));
        let worked_ns = if thief.is_some() { both_ns } else { both_ns.saturating_sub(strangers_ns) };
        let (slices, late_ns) = thief.map_or((0, 0), |thief| {
            (thief.deeds.slices.load(Ordering::Relaxed), thief.deeds.late_ns.load(Ordering::Relaxed))
        });
        let speed = (worked_ns > 0).then(|| 1.0 - (spun_ns + taken_ns) as f64 / worked_ns as f64);
        let asked = asked.share();
        Self { cpu, asked, speed, worked_ns, spun_ns, taken_ns, looks, wake_ups, slices, late_ns, switches, switch_ns }
    }
}

impl fmt::Display for SpeedReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: Nanos| ns as f64 / 1e6;
        match self.speed {
            Some(speed) => write!(out, "CPU {}: speed {speed:.3}, asked {}", self.cpu, self.asked)?,
            None => write!(out, "CPU {}: nobody worked there; speed asked {}", self.cpu, self.asked)?,
        }
        write!(out, "; programs had it for {:.1} ms", ms(self.worked_ns))?;
        write!(out, ", spun {:.1} ms, a thief took {:.1} ms", ms(self.spun_ns), ms(self.taken_ns))?;
        write!(out, " in {} slices; cost: {} wake-ups of it", self.slices, self.wake_ups)?;
        write!(out, " ({:.1} ms), {} looks, {} switches", ms(self.late_ns), self.looks, self.switches)?;
        self.switch_ns.map_or(Ok(()), |switch_ns| write!(out, " of {switch_ns:.0} ns"))
    }
}
