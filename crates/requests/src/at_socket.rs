//! Latencies of requests as a distribution, with the percentiles that people ask for.

use sidelane_report::Percentile;

/// What requests took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtSocket {
    /// Requests that arrived after the warm-up.
    pub requests: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// The same, of all but 5 %.
    pub p95_us: f64,
    /// The same, of all but 1 %.
    pub p99_us: f64,
    /// The whole distribution.
    pub curve: Vec<Percentile>,
}

impl AtSocket {
    /// Of requests that arrived at this time or later, each with its arrival and its latency; nothing without any.
    pub fn of(seen: &[(u64, u64)], from_ns: u64) -> Option<Self> {
        let measured = seen.iter().filter(|(arrived_ns, _)| *arrived_ns >= from_ns);
        let mut latencies_ns: Vec<u64> = measured.map(|(_, latency_ns)| *latency_ns).collect();
        latencies_ns.sort_unstable();
        let at = |percentile| percentile_us(&latencies_ns, percentile);
        Some(Self {
            requests: latencies_ns.len() as u64,
            mean_us: latencies_ns.iter().sum::<u64>() as f64 / 1e3 / latencies_ns.len().max(1) as f64,
            p50_us: at(50.0)?,
            p95_us: at(95.0)?,
            p99_us: at(99.0)?,
            curve: curve(&latencies_ns),
        })
    }
}

/// The latency that `percentile` per cent of the requests did not exceed, between the points of a curve.
pub fn at_us(curve: &[Percentile], percentile: f64) -> Option<f64> {
    let after = curve.iter().position(|point| point.percentile >= percentile)?;
    let (next, before) = (&curve[after], &curve[after.checked_sub(1)?]);
    let part = (percentile - before.percentile) / (next.percentile - before.percentile);
    Some(before.us + part * (next.us - before.us))
}

/// The nearest rank.
fn percentile_us(sorted_ns: &[u64], percentile: f64) -> Option<f64> {
    let rank = (sorted_ns.len() as f64 * percentile / 100.0).ceil().max(1.0) as usize;
    sorted_ns.get(rank - 1).map(|ns| *ns as f64 / 1e3)
}

/// As far into the tail as there are requests, evenly on an axis of nines.
fn curve(sorted_ns: &[u64]) -> Vec<Percentile> {
    const POINTS_A_NINE: f64 = 25.0;
    let nines = (sorted_ns.len().max(1) as f64).log10();
    let percentiles = (0..=(nines * POINTS_A_NINE) as u32)
        .map(|step| 100.0 * (1.0 - 10f64.powf(-f64::from(step) / POINTS_A_NINE)))
        .map(|percentile| (percentile * 1e4).round() / 1e4);
    percentiles
        .filter_map(|percentile| Some(Percentile { percentile, us: percentile_us(sorted_ns, percentile)? }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_read_between_its_points() {
        let curve = [(0.0, 10.0), (50.0, 20.0), (100.0, 40.0)].map(|(percentile, us)| Percentile { percentile, us });
        assert_eq!((at_us(&curve, 25.0), at_us(&curve, 75.0)), (Some(15.0), Some(30.0)));
    }
}
