//! Latencies by time: they show the effect of a change of load, and how long it lasts.
//!
//! A request belongs to the window of its intended time. The seed fixes that time, so the same window holds the same
//! requests in every run.

use serde::Serialize;
use sidelane_stats::ranks;

use crate::clock::{Nanos, SECOND_NS};

/// Length of a window: short enough to show a reaction, long enough for a percentile of some hundred requests per
/// second.
const WINDOW_NS: Nanos = SECOND_NS / 2;
/// Length of the sliding window whose percentile is compared with a limit.
const SLIDING_NS: Nanos = SECOND_NS;
/// Step by which the sliding window moves.
const SLIDE_NS: Nanos = SECOND_NS / 20;
const PERCENTILE: f64 = 99.0;

/// Intended time and latency of each request.
#[derive(Debug, Default)]
pub struct Series(Vec<(Nanos, Nanos)>);

/// Latencies of the requests in one window.
#[derive(Debug, Serialize, PartialEq)]
pub struct Window {
    from_s: f64,
    requests: usize,
    p99_us: Option<f64>,
}

/// Latencies in one of the equal parts of the measured time.
#[derive(Debug, Serialize, PartialEq)]
pub struct Iteration {
    requests: usize,
    p50_us: Option<f64>,
    p999_us: Option<f64>,
    max_us: Option<f64>,
}

impl Series {
    /// Adds a request by its intended time and latency.
    pub fn add(&mut self, intended_ns: Nanos, latency_ns: Nanos) {
        self.0.push((intended_ns, latency_ns));
    }

    /// Returns the latencies between two times in windows of half a second. A last part shorter than a window is
    /// omitted.
    pub fn windows(&self, start_ns: Nanos, end_ns: Nanos) -> Vec<Window> {
        let count = end_ns.saturating_sub(start_ns) / WINDOW_NS;
        let window = |number: Nanos| {
            let from_ns = number * WINDOW_NS;
            let latencies = self.latencies_between(start_ns + from_ns, start_ns + from_ns + WINDOW_NS);
            let (requests, p99_us) = (latencies.len(), percentile_ns(latencies, PERCENTILE).map(|ns| ns as f64 / 1e3));
            Window { from_s: from_ns as f64 / SECOND_NS as f64, requests, p99_us }
        };
        (0..count).map(window).collect()
    }

    /// Returns the latencies between two times in `count` equal parts.
    pub fn iterations(&self, start_ns: Nanos, end_ns: Nanos, count: u64) -> Vec<Iteration> {
        let at_ns = |number: u64| start_ns + (end_ns - start_ns) * number / count;
        (0..count)
            .map(|number| Iteration::from_latencies(self.latencies_between(at_ns(number), at_ns(number + 1))))
            .collect()
    }

    /// Returns the longest time in seconds for which the p99 of the last second was above `limit_ns`.
    pub fn longest_time_above_limit_s(&self, limit_ns: Nanos, start_ns: Nanos, end_ns: Nanos) -> f64 {
        let (mut above, mut longest) = (0_u64, 0);
        let mut now_ns = start_ns + SLIDING_NS;
        while now_ns <= end_ns {
            let is_above = percentile_ns(self.latencies_between(now_ns - SLIDING_NS, now_ns), PERCENTILE)
                .is_some_and(|p99_ns| p99_ns > limit_ns);
            above = if is_above { above + 1 } else { 0 };
            longest = longest.max(above);
            now_ns += SLIDE_NS;
        }
        (longest * SLIDE_NS) as f64 / SECOND_NS as f64
    }

    fn latencies_between(&self, from_ns: Nanos, to_ns: Nanos) -> Vec<Nanos> {
        let inside = |(intended_ns, _): &&(Nanos, Nanos)| (from_ns..to_ns).contains(intended_ns);
        self.0.iter().filter(inside).map(|(_, latency_ns)| *latency_ns).collect()
    }
}

impl Iteration {
    fn from_latencies(latencies: Vec<Nanos>) -> Self {
        let requests = latencies.len();
        let at_us = |percentile| Some(percentile_ns(latencies.clone(), percentile)? as f64 / 1e3);
        Iteration { requests, p50_us: at_us(50.0), p999_us: at_us(99.9), max_us: at_us(100.0) }
    }
}

/// Returns a percentile by the nearest rank; `None` without latencies.
fn percentile_ns(mut latencies: Vec<Nanos>, percentile: f64) -> Option<Nanos> {
    latencies.sort_unstable();
    ranks::percentile(&latencies, percentile)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Returns a series with one request each 5 ms for `seconds`, with a latency that depends on its intended time.
    fn series_with_latencies(seconds: Nanos, latency_ns: impl Fn(Nanos) -> Nanos) -> Series {
        let mut series = Series::default();
        (0..seconds * 200).for_each(|number| series.add(number * 5 * MS, latency_ns(number * 5 * MS)));
        series
    }

    #[test]
    fn windows_hold_requests_by_intended_time() {
        let windows =
            series_with_latencies(2, |sent_ns| if sent_ns < SECOND_NS { MS } else { 9 * MS }).windows(0, 2 * SECOND_NS);
        let seen: Vec<(f64, Option<f64>)> = windows.iter().map(|window| (window.from_s, window.p99_us)).collect();
        let (low, high) = (Some(1_000.0), Some(9_000.0));
        assert_eq!(seen, [(0.0, low), (0.5, low), (1.0, high), (1.5, high)]);
        assert!(windows.iter().all(|window| window.requests == 100));
        let quiet = Series::default().windows(0, SECOND_NS);
        assert!(quiet.iter().all(|window| window.p99_us.is_none()), "{quiet:?}");
    }

    #[test]
    fn iterations_have_equal_length_and_their_own_maximum() {
        let series = series_with_latencies(2, |sent_ns| if sent_ns == SECOND_NS { 40 * MS } else { MS });
        let iterations = series.iterations(0, 2 * SECOND_NS, 4);
        let of = |max_us| Iteration { requests: 100, p50_us: Some(1e3), p999_us: Some(max_us), max_us: Some(max_us) };
        assert_eq!(iterations, [of(1e3), of(1e3), of(40e3), of(1e3)]);
    }

    #[test]
    fn slow_time_includes_its_sliding_windows() {
        let slow_ns = 2 * SECOND_NS..3 * SECOND_NS;
        let series = series_with_latencies(8, |sent_ns| if slow_ns.contains(&sent_ns) { 50 * MS } else { MS });
        // The p99 exceeds the limit during the second with slow requests. It does so for nearly another second, while
        // the sliding window still holds 1 % slow requests.
        let longest_s = series.longest_time_above_limit_s(20 * MS, 0, 8 * SECOND_NS);
        assert!((1.8..=2.1).contains(&longest_s), "{longest_s} s");
        assert_eq!(series.longest_time_above_limit_s(50 * MS, 0, 8 * SECOND_NS), 0.0);
    }

    #[test]
    fn separate_slow_times_are_not_summed() {
        let series =
            series_with_latencies(9, |sent_ns| if (sent_ns / SECOND_NS).is_multiple_of(4) { 50 * MS } else { MS });
        assert!(series.longest_time_above_limit_s(20 * MS, 0, 9 * SECOND_NS) < 2.1);
    }
}
