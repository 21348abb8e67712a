//! Latencies of the last second, or of a longer time if the second has too few requests for a percentile.
//!
//! Problem. A percentile of the latencies of the last second is needed ten times a second. If the service has few
//! requests, it covers as many such intervals (up to ten seconds) as a hundred requests need. The number of requests in
//! that time is unbounded, but the memory here must not grow with it.
//!
//! Approach. One histogram contains all intervals that count. The oldest intervals are subtracted as newer ones fill
//! up; a subtracted interval never counts again. To subtract an interval, its requests must be known. So each interval
//! of the last second has a histogram of its own. An older interval only counts while all newer intervals have less
//! than a hundred requests. So a short list is enough for all older intervals except the oldest. If the oldest is too
//! large for the list, it is the sum minus all other intervals.

use crate::Nanos;
use crate::borrow::headroom::LastSecond;
use crate::borrow::latencies::{Latencies, bucket};

/// Number of intervals in the last second, which always count.
const LOOKS_MIN: usize = 10;
/// Largest number of intervals that count (ten seconds), if fewer have too few requests for a percentile.
const LOOKS_MAX: u64 = 100;
const REQUESTS_WANTED: u64 = 100;

/// Capacity of the list of older intervals. All of them but the oldest have fewer than [`REQUESTS_WANTED`] requests
/// together, and so has the oldest.
const LISTED_MAX: usize = 2 * REQUESTS_WANTED as usize;

/// Request of an older interval.
#[derive(Clone, Copy, Debug)]
struct ListedRequest {
    look: u64,
    bucket: u16,
}

/// Number of requests that finished in one interval.
#[derive(Clone, Copy, Debug)]
struct IntervalSize {
    look: u64,
    requests: u64,
}

/// Histogram of the latencies in the last intervals, from which a percentile is read. Its size is always 54 kB.
#[derive(Clone, Debug)]
pub struct LatencyWindow {
    /// Histogram over all intervals that count.
    sum: Latencies,
    /// Histograms of the last intervals, each at its number modulo [`LOOKS_MIN`].
    latest: [Latencies; LOOKS_MIN],
    /// Number of the present interval.
    present: u64,
    /// Requests of older intervals, oldest first.
    listed: [ListedRequest; LISTED_MAX],
    listed_len: usize,
    /// Size of the oldest interval, if it has too many requests for the list.
    crowd: Option<IntervalSize>,
}

impl Default for LatencyWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyWindow {
    /// Creates a window without requests.
    pub const fn new() -> Self {
        Self {
            sum: Latencies::EMPTY,
            latest: [Latencies::EMPTY; LOOKS_MIN],
            present: 0,
            listed: [ListedRequest { look: 0, bucket: 0 }; LISTED_MAX],
            listed_len: 0,
            crowd: None,
        }
    }

    /// Adds the latency of a finished request.
    pub fn record(&mut self, latency_ns: Nanos) {
        let bucket = bucket(latency_ns);
        self.sum.add(bucket);
        self.latest[self.present as usize % LOOKS_MIN].add(bucket);
    }

    /// Returns the latency that `percentile` of 100 requests do not exceed, over the intervals that count now.
    pub fn last_second(&mut self, percentile: f64) -> LastSecond {
        self.subtract_expired_intervals();
        LastSecond { requests: self.sum.requests, latency_ns: self.sum.percentile_ns(percentile) }
    }

    /// Begins the next interval, which collects requests that finish after this call.
    pub fn begin_next_interval(&mut self) {
        self.subtract_expired_intervals();
        self.present += 1;
        let place = self.present as usize % LOOKS_MIN;
        let requests = self.latest[place].requests;
        let newer = self.latest.iter().map(|look| look.requests).sum::<u64>() - requests;
        if requests > 0 {
            // If the newer intervals have enough requests together, this interval no longer counts, and the list has no
            // older one.
            let look = self.present - LOOKS_MIN as u64;
            match newer {
                REQUESTS_WANTED.. => self.sum.subtract(&self.latest[place]),
                _ if newer + requests >= REQUESTS_WANTED => self.crowd = Some(IntervalSize { look, requests }),
                _ => self.list_requests_of(look, place),
            }
            self.latest[place].clear();
        }
    }

    /// Adds the requests of one of the latest intervals to the list.
    fn list_requests_of(&mut self, look: u64, slot: usize) {
        for (bucket, count) in self.latest[slot].counts.iter().enumerate() {
            for _ in 0..*count {
                self.listed[self.listed_len] = ListedRequest { look, bucket: bucket as u16 };
                self.listed_len += 1;
            }
        }
    }

    /// Subtracts the older intervals that no longer count.
    fn subtract_expired_intervals(&mut self) {
        while let Some(oldest) = self.oldest_interval() {
            let enough_without = self.sum.requests - oldest.requests >= REQUESTS_WANTED;
            if !enough_without && oldest.look + LOOKS_MAX > self.present {
                return;
            }
            match self.crowd.take() {
                Some(_) => self.recompute_sum(),
                None => self.subtract_listed(oldest.requests as usize),
            }
        }
    }

    /// Returns the oldest interval that is older than the last second.
    fn oldest_interval(&self) -> Option<IntervalSize> {
        self.crowd.or_else(|| {
            let listed = &self.listed[..self.listed_len];
            let look = listed.first()?.look;
            let requests = listed.iter().take_while(|request| request.look == look).count() as u64;
            Some(IntervalSize { look, requests })
        })
    }

    fn subtract_listed(&mut self, count: usize) {
        for request in &self.listed[..count] {
            self.sum.counts[usize::from(request.bucket)] -= 1;
        }
        self.sum.requests -= count as u64;
        self.listed.copy_within(count..self.listed_len, 0);
        self.listed_len -= count;
    }

    /// Computes the sum again from the intervals that count.
    fn recompute_sum(&mut self) {
        self.sum.clear();
        self.latest.iter().for_each(|look| self.sum.merge(look));
        self.listed[..self.listed_len].iter().for_each(|request| self.sum.add(usize::from(request.bucket)));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::borrow::latencies::middle_ns;
    use proptest::prelude::*;
    use std::boxed::Box;
    use std::vec::Vec;

    fn window() -> Box<LatencyWindow> {
        Box::default()
    }

    #[test]
    fn percentile_is_the_latency_of_its_rank() {
        let mut window = window();
        assert_eq!(window.last_second(50.0), LastSecond { requests: 0, latency_ns: 0 });
        (1..=100).for_each(|us| window.record(us * 1_000));
        for (percentile, wanted_ns) in [(50.0, 50_000), (99.0, 99_000), (99.9, 100_000), (0.1, 1_000)] {
            let read = window.last_second(percentile).latency_ns;
            assert!(read.abs_diff(wanted_ns) * 50 <= wanted_ns, "p{percentile}: {read}");
        }
    }

    #[test]
    fn window_covers_a_second_or_a_hundred_requests() {
        let mut window = window();
        for look in 0..300_u64 {
            (0..5).for_each(|_| window.record(1_000 * (look + 1)));
            let seen = window.last_second(99.0);
            assert_eq!(seen.requests, (5 * (look + 1)).min(100));
            assert!(seen.latency_ns.abs_diff(1_000 * (look + 1)) * 50 <= 1_000 * (look + 1));
            window.begin_next_interval();
        }
    }

    #[test]
    fn last_second_counts_any_number_of_requests() {
        let mut window = window();
        for look in 0..30_u64 {
            (0..1_000).for_each(|_| window.record(1_000));
            assert_eq!(window.last_second(99.0).requests, 1_000 * (look + 1).min(10));
            window.begin_next_interval();
        }
    }

    #[test]
    fn burst_counts_until_enough_later_requests_or_ten_seconds() {
        for (each_look, looks) in [(0, 100), (1, 100), (5, 20), (40, 10)] {
            let mut window = window();
            (0..5_000).for_each(|_| window.record(1_000_000));
            let counts = (0..200).take_while(|_| {
                let crowd_counts = window.last_second(50.0).requests >= 5_000;
                window.begin_next_interval();
                (0..each_look).for_each(|_| window.record(1_000));
                crowd_counts
            });
            assert_eq!(counts.count(), looks, "with {each_look} a look");
        }
    }

    /// Returns the expected result, computed from its definition over all intervals.
    fn expected_last_second(looks: &[Vec<Nanos>], percentile: f64) -> LastSecond {
        let mut seen: Vec<usize> = Vec::new();
        for (age, look) in looks.iter().rev().take(LOOKS_MAX as usize).enumerate() {
            if age >= LOOKS_MIN && seen.len() as u64 >= REQUESTS_WANTED {
                break;
            }
            seen.extend(look.iter().map(|ns| bucket(*ns)));
        }
        seen.sort_unstable();
        let rank = (seen.len() as f64 * percentile / 100.0).ceil().max(1.0) as usize;
        LastSecond { requests: seen.len() as u64, latency_ns: seen.get(rank - 1).map_or(0, |at| middle_ns(*at)) }
    }

    /// Generates intervals of a service that alternates between idle, busy and flooded.
    fn interval_list_strategy() -> impl Strategy<Value = Vec<Vec<Nanos>>> {
        let latency = 0..2_000_000_000_u64;
        let look = |most| proptest::collection::vec(latency.clone(), 0..most);
        let look = prop_oneof![6 => look(2), 4 => look(8), 2 => look(30), 1 => look(300)];
        proptest::collection::vec(look, 1..250)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn window_agrees_with_a_list_of_all_requests(looks in interval_list_strategy(), percentile in 1.0..99.999_f64) {
            let mut window = window();
            for (number, look) in looks.iter().enumerate() {
                look.iter().for_each(|ns| window.record(*ns));
                // An interval whose percentile is not read also counts.
                if number % 7 != 3 {
                    prop_assert_eq!(window.last_second(percentile), expected_last_second(&looks[..=number], percentile));
                }
                window.begin_next_interval();
            }
        }
    }
}
