//! The report of a slow CPU: its measured speed, and the cost of the emulation.

use std::fmt;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::LANE;
use super::speed::Speed;
use crate::clock::Nanos;
use crate::sibling::core::Core;
use crate::sibling::report::{LaneReport, lane_report};
use crate::sibling::steal_emulator::StealEmulator;

/// Counts of a slow CPU since the emulation began.
#[derive(Debug, Serialize)]
pub struct SpeedReport {
    /// Number of the slow CPU.
    cpu: u32,
    /// Requested speed, as a fraction of the full speed.
    asked: f64,
    /// Measured speed: the share of `worked_ns` in which programs made progress. `None` if no program worked.
    speed: Option<f64>,
    /// Time in which slowed programs had the CPU, or waited for the steal emulator. Without a steal emulator, only
    /// programs with `--sibling` are slowed.
    worked_ns: Nanos,
    /// Time that programs with `--sibling` spun to emulate the slow CPU, on any CPU.
    spun_ns: Nanos,
    /// Time that the steal emulator took, interruptions by its wakeups included.
    taken_ns: Nanos,
    /// Number of times that programs with `--sibling` checked how much time they should have lost.
    looks: u64,
    /// Number of wakeups of the steal emulator, and number of slices of CPU time that it took.
    wake_ups: u64,
    slices: u64,
    /// Total lateness of the steal emulator's wakeups.
    late_ns: Nanos,
    /// Number of context switches, and the mean time that the kernel program took in a timed one, in nanoseconds.
    switches: u32,
    switch_ns: Option<f64>,
}

impl SpeedReport {
    /// Returns the counts since the emulation began.
    pub fn from_core(cpu: u32, wanted: Speed, core: &Core, emulator: Option<&StealEmulator>) -> Self {
        let lane = lane_report(core, LANE, emulator);
        let LaneReport { both_ns, spun_ns, taken_ns, looks, wake_ups, switches, switch_ns, .. } = lane;
        let strangers_ns = core.lanes[LANE].overlap[0].reading_at(core.other_lane_load_time_ns(LANE, 0));
        let worked_ns = if emulator.is_some() { both_ns } else { both_ns.saturating_sub(strangers_ns) };
        let (slices, late_ns) = emulator.map_or((0, 0), |emulator| {
            (emulator.counters.slices.load(Ordering::Relaxed), emulator.counters.late_ns.load(Ordering::Relaxed))
        });
        let speed = (worked_ns > 0).then(|| 1.0 - (spun_ns + taken_ns) as f64 / worked_ns as f64);
        let asked = wanted.as_fraction();
        Self { cpu, asked, speed, worked_ns, spun_ns, taken_ns, looks, wake_ups, slices, late_ns, switches, switch_ns }
    }
}

impl fmt::Display for SpeedReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: Nanos| ns as f64 / 1e6;
        match self.speed {
            Some(speed) => write!(out, "CPU {}: speed {speed:.3}, asked {}", self.cpu, self.asked)?,
            None => write!(out, "CPU {}: no thread worked there; speed asked {}", self.cpu, self.asked)?,
        }
        write!(out, "; programs had it for {:.1} ms", ms(self.worked_ns))?;
        write!(out, ", spun {:.1} ms, a steal emulator took {:.1} ms", ms(self.spun_ns), ms(self.taken_ns))?;
        write!(out, " in {} slices; cost: {} wake-ups of it", self.slices, self.wake_ups)?;
        write!(out, " ({:.1} ms), {} looks, {} switches", ms(self.late_ns), self.looks, self.switches)?;
        self.switch_ns.map_or(Ok(()), |switch_ns| write!(out, " of {switch_ns:.0} ns"))
    }
}
