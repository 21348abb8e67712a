//! The report of an emulated sibling: the slowdown that was achieved, and its cost.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::core::Core;
use super::slowdown::{LANES, LOADS};
use super::steal_emulator::StealEmulator;
use crate::clock::{Nanos, now_ns};

/// Counts of one lane since its two CPUs were last made one core.
#[derive(Debug, Serialize)]
pub struct LaneReport {
    /// Name of the lane: `service` or `batch`.
    pub lane: &'static str,
    /// Time in which programs ran on the lane, lost cycles included.
    pub worked_ns: Nanos,
    /// Part of `worked_ns` in which the other lane worked too.
    pub both_ns: Nanos,
    /// Time that programs on the lane should have lost, to a sibling lane that works and to a holder that naps there.
    pub asked_ns: Nanos,
    /// Time that programs spun to emulate the slowdown by the sibling lane.
    pub spun_ns: Nanos,
    /// CPU time that the steal emulator took from programs, interruptions by its wakeups included.
    pub taken_ns: Nanos,
    /// Achieved slowdown beside a lane that works; `None` if the lanes did not overlap.
    pub slowdown: Option<f64>,
    /// Number of times that programs checked their overlap.
    pub looks: u64,
    /// Number of wakeups of the steal emulator.
    pub wake_ups: u64,
    /// Number of context switches on the lane.
    pub switches: u32,
    /// Mean time that the kernel program took in a context switch, over the timed switches.
    pub switch_ns: Option<f64>,
}

/// Returns the reports of both lanes: request lane, then batch lane.
pub fn lane_reports(core: &Core, emulators: &[Option<StealEmulator>; LANES]) -> [LaneReport; LANES] {
    [0, 1].map(|lane| lane_report(core, lane, emulators[lane].as_ref()))
}

/// Returns the report of one lane.
pub fn lane_report(core: &Core, lane: usize, emulator: Option<&StealEmulator>) -> LaneReport {
    let words = &core.lanes[lane];
    let both_ns = words.both[0].reading_at(core.other_lane_load_time_ns(lane, 0));
    let spun_ns = words.spun_ns.load(Ordering::Relaxed);
    let late_ns = emulator.map_or(0, |emulator| emulator.counters.late_ns.load(Ordering::Relaxed));
    let taken_ns = words.taken.reading_at(now_ns()) + late_ns;
    let samples = words.cost_samples.load(Ordering::Relaxed);
    LaneReport {
        lane: ["service", "batch"][lane],
        worked_ns: words.spent[0].reading_at(now_ns()),
        both_ns,
        asked_ns: core.lost_time_ns(lane, &words.both),
        spun_ns,
        taken_ns,
        slowdown: slowdown(both_ns, spun_ns + taken_ns, (1..LOADS).all(|load| core.lost_share_ppm(lane, load) == 0)),
        looks: words.looks.load(Ordering::Relaxed),
        wake_ups: emulator.map_or(0, |emulator| emulator.counters.wake_ups.load(Ordering::Relaxed)),
        switches: words.switches.load(Ordering::Relaxed),
        switch_ns: (samples > 0).then(|| f64::from(words.cost_ns.load(Ordering::Relaxed)) / f64::from(samples)),
    }
}

/// Returns the length of the overlap, divided by the time that its work would have taken alone. `None` if naps of a
/// holder slow the lane, too, since `both_ns` does not include naps.
fn slowdown(both_ns: Nanos, lost_ns: Nanos, naps_cause_no_loss: bool) -> Option<f64> {
    let progress_ns = both_ns.checked_sub(lost_ns).filter(|progress_ns| *progress_ns > 0)?;
    (naps_cause_no_loss && both_ns > 0).then(|| both_ns as f64 / progress_ns as f64)
}

impl std::fmt::Display for LaneReport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: Nanos| ns as f64 / 1e6;
        write!(
            out,
            "{:8} worked {:.1} ms, {:.1} ms beside the other lane",
            self.lane,
            ms(self.worked_ns),
            ms(self.both_ns)
        )?;
        write!(out, "; spun {:.1} ms, taken {:.1} ms", ms(self.spun_ns), ms(self.taken_ns))?;
        match self.slowdown {
            Some(times) => write!(out, ": {times:.3} times as long there")?,
            None => write!(out, ": no overlap to judge by")?,
        }
        let switch_ns = self.switch_ns.unwrap_or(0.0);
        write!(
            out,
            "; cost {switch_ns:.0} ns a switch ({}), {} looks, {} wake-ups",
            self.switches, self.looks, self.wake_ups
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_overlap_divided_by_progress() {
        assert_eq!(slowdown(1_000, 400, true), Some(1_000.0 / 600.0));
        assert_eq!(slowdown(1_000, 0, true), Some(1.0));
        assert_eq!(slowdown(0, 0, true), None);
        assert_eq!(slowdown(1_000, 400, false), None, "some of it was lost to naps");
    }
}
