//! Memory that all cores of a chip share.
//!
//! Each class makes an *intensity* of traffic while it runs; the pressure of a chip is the sum over all of its CPUs.
//! A piecewise linear function gives the slowdown of memory under that pressure. Only the part of a class's time in
//! which it stalls on memory ([`MemoryUse::stall_share`]) becomes longer.
//!
//! Without points in the scenario, pressure costs nothing. That agrees with the Holmes paper (§2.2): sixteen threads on
//! sixteen cores have the latency of one, and only the sibling counts.
//!
//! [`MemoryUse::stall_share`]: crate::smt::MemoryUse::stall_share

use crate::smt::Class;

/// Slowdown of a chip's memory under the traffic of its cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChipMemory {
    /// Pairs of a pressure and the slowdown of memory under it (1 means none), by rising pressure.
    pub points: Vec<(f64, f64)>,
    /// Memory traffic that each class of tasks makes while it runs.
    pub intensity: Vec<f64>,
}

impl ChipMemory {
    /// Returns whether memory traffic on the chip slows memory at all.
    pub fn has_effect(&self) -> bool {
        !self.points.is_empty()
    }

    /// Returns the traffic of a class while it runs.
    pub fn intensity(&self, class: Class) -> f64 {
        self.intensity.get(class).copied().unwrap_or(0.0)
    }

    /// Returns the slowdown of memory under this pressure, less 1. Beyond the last point it is constant.
    pub fn extra_slowdown(&self, pressure: f64) -> f64 {
        let above = self.points.iter().position(|(at, _)| *at > pressure);
        let slowdown = match (above, self.points.as_slice()) {
            (_, []) => 1.0,
            (Some(0), [(_, first), ..]) => *first,
            (None, [.., (_, last)]) => *last,
            (Some(above), points) => interpolate(points[above - 1], points[above], pressure),
        };
        slowdown - 1.0
    }
}

fn interpolate((left, from): (f64, f64), (right, to): (f64, f64), x: f64) -> f64 {
    from + (to - from) * (x - left) / (right - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_interpolated_between_points() {
        let memory = ChipMemory { points: vec![(2.0, 1.0), (4.0, 1.5)], intensity: vec![0.0, 0.5] };
        let extra = [0.0, 2.0, 3.0, 4.0, 9.0].map(|pressure| memory.extra_slowdown(pressure));
        assert_eq!(extra, [0.0, 0.0, 0.25, 0.5, 0.5]);
        assert_eq!([0, 1, 2].map(|class| memory.intensity(class)), [0.0, 0.5, 0.0]);
        assert_eq!(ChipMemory::default().extra_slowdown(100.0), 0.0);
    }
}
