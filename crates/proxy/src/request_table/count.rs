//! Counts that the request table keeps.

use serde::Serialize;
use sidelane_policy::hedge::Hazard;

use super::record::{Record, RequestEnd};
use super::servers::{Durations, add_each};

/// Counts of requests and servers since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Number of requests that arrived.
    pub requests: u64,
    /// Number of requests whose answer was completely forwarded.
    pub answered: u64,
    /// Number of answered requests whose answer was a failure of the server, such as 503.
    pub failures: u64,
    /// Number of requests that were answered with an error of the proxy.
    pub failed: u64,
    /// Number of requests whose answer broke off.
    pub cut: u64,
    /// Number of requests whose client disconnected before the end of the answer.
    pub left: u64,
    /// Number of finished requests that were sent to another server although no copy was lost.
    pub hedges: u64,
    /// Number of hedges whose answer was forwarded and is not a failure.
    pub wins: u64,
    /// Number of hedges that got a failure as answer before the client had an answer.
    pub failed_hedges: u64,
    /// Number of hedges that the budget did not allow.
    pub refused: u64,
    /// Number of copies that were sent because another copy was lost.
    pub sent_again: u64,
    /// Number of answers that were dropped because another server answered first.
    pub dropped: u64,
    /// Total time for which servers had the copies of requests whose answers were dropped.
    pub wasted_ns: u64,
    /// Number of swaps for each hazard.
    pub swaps: [u64; Hazard::ALL.len()],
    /// Number of warm-ups of servers.
    pub warm_ups: u64,
    /// Number of requests that were sent to warm up servers.
    pub warm_up_requests: u64,
    /// Number of connections that became tunnels to one server, such as WebSockets, or Redis connections after AUTH.
    /// Requests inside of tunnels are not counted.
    pub tied: u64,
    /// Total time of all answered requests without failures, from their arrival to the end of their answer.
    pub answered_ns: u64,
    /// Histogram of the times of all answered requests without failures.
    #[serde(skip)]
    pub durations: Durations,
}

impl Counts {
    /// Adds the counts of another table.
    pub fn add(&mut self, other: &Self) {
        // Name all fields without `..`, so that a new field cannot be forgotten.
        let Self {
            requests,
            answered,
            failures,
            failed,
            cut,
            left,
            hedges,
            wins,
            failed_hedges,
            refused,
            sent_again,
            dropped,
            wasted_ns,
            swaps,
            warm_ups,
            warm_up_requests,
            tied,
            answered_ns,
            durations,
        } = other;
        self.requests += requests;
        self.answered += answered;
        self.failures += failures;
        self.failed += failed;
        self.cut += cut;
        self.left += left;
        self.hedges += hedges;
        self.wins += wins;
        self.failed_hedges += failed_hedges;
        self.refused += refused;
        self.sent_again += sent_again;
        self.dropped += dropped;
        self.wasted_ns += wasted_ns;
        add_each(&mut self.swaps, swaps);
        self.warm_ups += warm_ups;
        self.warm_up_requests += warm_up_requests;
        self.tied += tied;
        self.answered_ns += answered_ns;
        self.durations.add(durations);
    }

    pub(super) fn record_end(&mut self, record: &Record, end: RequestEnd) {
        self.hedges += u64::from(record.hedge_reason().is_some());
        self.wins += u64::from(record.is_hedge_win());
        match end {
            RequestEnd::Answered => {
                self.answered += 1;
                self.failures += u64::from(record.is_failure);
                // Count no durations of failures: a server that fails at once must not look fast.
                if let Some(duration) = record.duration_ns().filter(|_| !record.is_failure) {
                    self.answered_ns += duration;
                    self.durations.record(duration);
                }
            }
            RequestEnd::Failed(_) => self.failed += 1,
            RequestEnd::Cut => self.cut += 1,
            RequestEnd::ClientLeft => self.left += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_of_two_tables_is_added() {
        let mut swaps = [0; Hazard::ALL.len()];
        swaps.iter_mut().zip(100..).for_each(|(count, number)| *count = number);
        let one = Counts {
            requests: 1,
            answered: 2,
            failures: 3,
            failed: 4,
            cut: 5,
            left: 6,
            hedges: 7,
            wins: 8,
            failed_hedges: 9,
            refused: 10,
            sent_again: 11,
            dropped: 12,
            wasted_ns: 13,
            swaps,
            warm_ups: 14,
            warm_up_requests: 15,
            tied: 16,
            answered_ns: 17,
            durations: Durations::default(),
        };
        let mut sum = Counts::default();
        sum.add(&one);
        assert_eq!(serde_json::to_value(&sum).unwrap(), serde_json::to_value(&one).unwrap());
        sum.add(&one);
        let (sum, one) = (serde_json::to_value(&sum).unwrap(), serde_json::to_value(&one).unwrap());
        for (name, value) in one.as_object().unwrap() {
            let numbers = |value: &serde_json::Value| match value.as_array() {
                Some(all) => all.iter().map(|one| one.as_u64().unwrap()).collect(),
                None => vec![value.as_u64().unwrap()],
            };
            let twice: Vec<u64> = numbers(value).iter().map(|count| 2 * count).collect();
            assert_eq!(numbers(&sum[name]), twice, "{name}");
        }
    }
}
