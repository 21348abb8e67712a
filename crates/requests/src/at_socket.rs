//! Latency distribution of requests that were observed at sockets: mean, p50, p95, p99 and a percentile curve.

use sidelane_report::Percentile;
use sidelane_stats::ranks;

/// Latency distribution of the requests of one measurement, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SocketTimes {
    /// Number of requests that arrived after the warm-up.
    pub requests: u64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 95th percentile of the latency in microseconds.
    pub p95_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// Latency percentiles of the whole distribution, in ascending order.
    pub curve: Vec<Percentile>,
}

impl SocketTimes {
    /// Computes the distribution from pairs of arrival time and latency, both in nanoseconds. Requests that arrived
    /// before `from_ns` are left out. Returns `None` if no request remains.
    pub fn from_latencies(arrivals_and_latencies: &[(u64, u64)], from_ns: u64) -> Option<Self> {
        let measured = arrivals_and_latencies.iter().filter(|(arrived_ns, _)| *arrived_ns >= from_ns);
        let mut latencies_ns: Vec<u64> = measured.map(|(_, latency_ns)| *latency_ns).collect();
        latencies_ns.sort_unstable();
        let at = |percentile| percentile_us(&latencies_ns, percentile);
        Some(Self {
            requests: latencies_ns.len() as u64,
            mean_us: latencies_ns.iter().sum::<u64>() as f64 / 1e3 / latencies_ns.len().max(1) as f64,
            p50_us: at(50.0)?,
            p95_us: at(95.0)?,
            p99_us: at(99.0)?,
            curve: percentile_curve(&latencies_ns),
        })
    }
}

/// Returns the latency in microseconds that `percentile` percent of the requests did not exceed. Interpolates between
/// the points of the curve. Returns `None` if the percentile is outside of the curve.
pub fn latency_at_percentile_us(curve: &[Percentile], percentile: f64) -> Option<f64> {
    let after = curve.iter().position(|point| point.percentile >= percentile)?;
    let (next, before) = (&curve[after], &curve[after.checked_sub(1)?]);
    let part = (percentile - before.percentile) / (next.percentile - before.percentile);
    Some(before.us + part * (next.us - before.us))
}

/// Returns a percentile by the nearest-rank method, in microseconds.
fn percentile_us(sorted_ns: &[u64], percentile: f64) -> Option<f64> {
    ranks::percentile(sorted_ns, percentile).map(|ns| ns as f64 / 1e3)
}

/// Returns latency percentiles at equal steps on a logarithmic axis: 25 points for each further nine (90, 99, 99.9 %).
/// The curve ends at the last percentile that the number of requests can resolve.
fn percentile_curve(sorted_ns: &[u64]) -> Vec<Percentile> {
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
    fn latency_is_interpolated_between_curve_points() {
        let curve = [(0.0, 10.0), (50.0, 20.0), (100.0, 40.0)].map(|(percentile, us)| Percentile { percentile, us });
        assert_eq!(
            (latency_at_percentile_us(&curve, 25.0), latency_at_percentile_us(&curve, 75.0)),
            (Some(15.0), Some(30.0))
        );
    }
}
