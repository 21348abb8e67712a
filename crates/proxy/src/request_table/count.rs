//! What the request table counts.

use serde::Serialize;
use sidelane_policy::hedge::Hazard;

use super::record::{End, Record};
use super::servers::{Durations, add_each};

/// Counted since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests that came.
    pub requests: u64,
    /// Those whose answer was forwarded to the end.
    pub answered: u64,
    /// Those of them whose answer was a failure of the server, such as 503.
    pub failures: u64,
    /// Those that got an error of the proxy's own.
    pub failed: u64,
    /// Those whose answer broke off in the middle.
    pub cut: u64,
    /// Those whose client went away.
    pub left: u64,
    /// Requests that are over and were sent to both servers although nothing was lost.
    pub hedges: u64,
    /// Hedges whose answer was forwarded and is no failure.
    pub wins: u64,
    /// Hedges that the other server answered with a failure before the client had an answer.
    pub failed_hedges: u64,
    /// Hedges that the budget did not allow.
    pub refused: u64,
    /// Copies that were sent because another one was lost.
    pub sent_again: u64,
    /// Later answers that were dropped.
    pub dropped: u64,
    /// How long servers had those copies whose answers were dropped.
    pub wasted_ns: u64,
    /// Swaps, by the number of the hazard.
    pub swaps: [u64; Hazard::ALL.len()],
    /// Servers that were warmed up.
    pub warm_ups: u64,
    /// Requests that were sent to warm a server up.
    pub warm_up_requests: u64,
    /// Connections that are one server's from some moment on, as those of WebSockets, or of Redis after AUTH. What is
    /// asked on them is not counted.
    pub tied: u64,
    /// Time of all answered requests together but those in `failures`, from their arrival to the end of their answer.
    pub answered_ns: u64,
    /// The same, as a histogram.
    #[serde(skip)]
    pub durations: Durations,
}

impl Counts {
    /// Adds what another table counted.
    pub fn add(&mut self, other: &Self) {
        // Without `..`: a new field is not forgotten.
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

    pub(super) fn finish(&mut self, record: &Record, end: End) {
        self.hedges += u64::from(record.hedged_to().is_some());
        self.wins += u64::from(record.is_win());
        match end {
            End::Answered => {
                self.answered += 1;
                self.failures += u64::from(record.is_failure);
                // A server that refuses at once must not look fast.
                if let Some(duration) = record.duration_ns().filter(|_| !record.is_failure) {
                    self.answered_ns += duration;
                    self.durations.record(duration);
                }
            }
            End::Failed(_) => self.failed += 1,
            End::Cut => self.cut += 1,
            End::ClientLeft => self.left += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_tables_are_added_one_by_one() {
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
