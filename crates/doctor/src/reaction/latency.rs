//! Measured latencies of a gate: how soon batch is off, and how soon it is back.

use std::time::Duration;

use sidelane_report::Row;
use sidelane_stats::ranks::percentile;
use sidelane_tracker::histogram::Histogram;

/// Number and duration of the measurements of reaction times.
#[derive(Clone, Copy, Debug)]
pub struct ReactionPlan {
    /// Number of times that each gate is closed and opened.
    pub rounds: usize,
    /// Longest time for which one gate is measured: a slow one gets fewer rounds.
    pub gate_time: Duration,
    /// Number of pairs of runs when two CPUs are compared: one run alone, and one beside a load on the other CPU.
    pub sibling_pairs: usize,
}

impl ReactionPlan {
    /// Full measurement, which ends within 20 s.
    pub const FULL: Self = Self { rounds: 500, gate_time: Duration::from_millis(2_700), sibling_pairs: 25 };
    /// Quick measurement, which ends within 8 s.
    pub const QUICK: Self = Self { rounds: 200, gate_time: Duration::from_millis(1_000), sibling_pairs: 11 };
}

/// Two percentiles of one latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyPercentiles {
    /// Median of the latency.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
}

impl LatencyPercentiles {
    /// Computes the percentiles of single measurements; `None` without any.
    pub fn from_latencies(mut latencies_ns: Vec<u64>) -> Option<Self> {
        latencies_ns.sort_unstable();
        Some(Self { p50_ns: percentile(&latencies_ns, 50.0)?, p99_ns: percentile(&latencies_ns, 99.0)? })
    }

    /// Computes the percentiles of the kernel program's counts; `None` without any.
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        Some(Self { p50_ns: histogram.percentile_ns(50.0)?, p99_ns: histogram.percentile_ns(99.0)? })
    }
}

/// Measured figures of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Time from the service's start to batch's last instruction.
    pub off: LatencyPercentiles,
    /// Time from the service's stop to batch's next instruction.
    pub on: LatencyPercentiles,
    /// Number of times that batch stopped.
    pub samples: u64,
}

impl Figures {
    /// Returns the figures as a row of results.
    pub fn to_row(self, gate: &str) -> Row {
        let mut row = Row::new(gate);
        row.put("off_p50_ns", self.off.p50_ns as f64).put("off_p99_ns", self.off.p99_ns as f64);
        row.put("on_p50_ns", self.on.p50_ns as f64).put("on_p99_ns", self.on.p99_ns as f64);
        row.put("samples_count", self.samples as f64);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(LatencyPercentiles::from_latencies(Vec::new()), None);
        assert_eq!(LatencyPercentiles::from_latencies(vec![7]), Some(LatencyPercentiles { p50_ns: 7, p99_ns: 7 }));
        let hundred = (1..=100).rev().collect();
        assert_eq!(LatencyPercentiles::from_latencies(hundred), Some(LatencyPercentiles { p50_ns: 50, p99_ns: 99 }));
        assert_eq!(
            LatencyPercentiles::from_latencies(vec![3, 1, 2]),
            Some(LatencyPercentiles { p50_ns: 2, p99_ns: 3 })
        );
    }

    #[test]
    fn row_has_latencies_for_leaving_and_returning() {
        let spread = |p50_ns| LatencyPercentiles { p50_ns, p99_ns: 2 * p50_ns };
        let row = Figures { off: spread(4_000), on: spread(9_000), samples: 300 }.to_row("affinity");
        assert_eq!(row.setting(), "affinity");
        assert_eq!((row.get("off_p99_ns"), row.get("on_p50_ns")), (Some(8_000.0), Some(9_000.0)));
        assert_eq!(row.get("samples_count"), Some(300.0));
    }
}
