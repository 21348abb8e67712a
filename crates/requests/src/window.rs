//! Statistics of the requests of one period of time.

use std::collections::BTreeSet;

use super::records::Request;
use crate::note::RequestNote;
use sidelane_report::LatencyHistogram;
use sidelane_timeline::ending::Ending;
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::requests::Counts;

/// Maximum number of requests that one TLS handshake looks like. The service answers the first with its certificate and
/// the second with tickets. HTTP/2 and WebSocket handshakes count one request.
const HANDSHAKE_REQUESTS: u64 = 2;

/// Histogram of times, with the exact maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Histogram of all times in nanoseconds.
    pub histogram: Histogram,
    /// Longest time in nanoseconds.
    pub max_ns: u64,
}

impl Times {
    /// Adds one time.
    pub fn record(&mut self, time_ns: u64) {
        self.histogram.record(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }

    /// Adds the times of another period.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the times for results, named `setting`.
    pub fn to_histogram(&self, setting: &str) -> LatencyHistogram {
        LatencyHistogram::new(setting, self.histogram.latency_counts().map(|(ns, count)| (ns.min(self.max_ns), count)))
    }

    /// Returns the given percentile of the times in nanoseconds; `None` if there are none.
    pub fn percentile_ns(&self, percentile: f64) -> Option<u64> {
        self.histogram.percentile_ns(percentile).map(|ns| ns.min(self.max_ns))
    }
}

/// Statistics of the requests that were settled in one period of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Service times of requests, from start to finish.
    pub server: Times,
    /// Queueing delays of requests, from arrival to start.
    pub queueing: Times,
    /// Latencies of requests, from arrival to finish.
    pub latency: Times,
    /// Queue lengths at each arrival, including the arriving request.
    pub queue_len: Times,
    /// Ids of the threads that answered requests.
    pub threads: BTreeSet<u32>,
    /// Number of requests that waited for another request on their lane.
    pub waited: u64,
    /// Time that batch ran beside requests, in nanoseconds.
    pub co_run_ns: u64,
    /// Counts of requests that were merged or lost.
    pub counts: Counts,
    /// Waiting times of clients that closed their connection before a response came.
    pub abandoned: Times,
    /// Number of requests that ended when the service closed their connection.
    pub closed_by_service: u64,
    /// Number of messages that ask for no response.
    pub one_way: u64,
    /// Number of requests whose response was a stream.
    pub streamed: u64,
    /// Number of sends that followed after their request had been passed on.
    pub late_sends: u64,
}

impl Window {
    /// Adds a request to the statistics that match its end.
    pub fn add(&mut self, request: &Request) {
        match request.ending {
            None => self.add_answered(request),
            Some(Ending::Abandoned) => self.abandoned.record(request.latency_ns()),
            Some(Ending::ClosedByService) => self.closed_by_service += 1,
            Some(Ending::NoAnswerWanted) => self.one_way += 1,
            Some(Ending::Unknown) => (),
        }
    }

    fn add_answered(&mut self, request: &Request) {
        self.server.record(request.server_ns());
        self.queueing.record(request.queueing_ns());
        self.latency.record(request.latency_ns());
        self.queue_len.record(u64::from(request.queue_len));
        self.threads.insert(request.tid);
        self.waited += u64::from(request.waited);
        self.streamed += u64::from(request.is_streamed());
        self.co_run_ns += request.co_run_ns;
    }

    /// Returns warnings about counted requests that are probably not application requests, if they are more than 1 % of
    /// all.
    pub fn notes(&self) -> impl Iterator<Item = RequestNote> + use<> {
        request_notes(&self.counts, self.answered_count(), self.streamed + self.late_sends)
    }

    /// Returns the number of requests without a response for an unknown reason.
    pub fn unanswered(&self) -> u64 {
        let known = self.abandoned.histogram.count() + self.closed_by_service + self.one_way;
        self.counts.unanswered.saturating_sub(known)
    }

    /// Returns the number of answered requests.
    pub fn answered_count(&self) -> u64 {
        self.server.histogram.count()
    }
}

/// Returns warnings about observed requests that are probably not application requests (merged, streamed, handshakes),
/// if they are more than 1 % of all.
pub fn request_notes(counts: &Counts, requests: u64, streams: u64) -> impl Iterator<Item = RequestNote> + use<> {
    let joined = notable_percent(counts.joined, requests).map(|percent| RequestNote::RequestsJoined { percent });
    let streams = notable_percent(streams, requests).map(|percent| RequestNote::AnswersStream { percent });
    let connections = counts.began;
    let settling = notable_percent(HANDSHAKE_REQUESTS * connections, requests);
    let settling = settling.map(|percent| RequestNote::HandshakesPossible { connections, percent });
    joined.into_iter().chain(streams).chain(settling)
}

/// Returns the percentage of `part` in `total`, rounded up; `None` if it is at most 1 %.
fn notable_percent(part: u64, total: u64) -> Option<u64> {
    const FEW_PERCENT: u64 = 1;
    let (all, some) = (total.max(1), part.min(total));
    (some * 100 > all * FEW_PERCENT).then(|| (some * 100).div_ceil(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_requests_above_1_percent_are_noted() {
        let mut window = Window::default();
        (0..200).for_each(|_| window.add(&Request::default()));
        window.counts.joined = 2;
        assert_eq!(window.notes().next(), None);
        window.counts.joined = 3;
        assert_eq!(window.notes().collect::<Vec<_>>(), [RequestNote::RequestsJoined { percent: 2 }]);
        window.counts = Counts { began: 2, ..Counts::default() };
        let note = RequestNote::HandshakesPossible { connections: 2, percent: 2 };
        assert_eq!(window.notes().collect::<Vec<_>>(), [note]);
        window.counts.began = 1;
        let (answered_ns, finished_ns) = (10, 11 + super::super::SETTLE_NS);
        let stream = Request { answered_ns, finished_ns, sends: 2, ..Request::default() };
        (0..50).for_each(|_| window.add(&stream));
        assert_eq!(window.notes().collect::<Vec<_>>(), [RequestNote::AnswersStream { percent: 20 }]);
    }

    #[test]
    fn a_window_sums_up_its_requests() {
        let mut window = Window::default();
        for tid in [7, 8] {
            let request =
                Request { arrived_ns: 10, started_ns: 40, finished_ns: 140, tid, queue_len: 2, ..Request::default() };
            window.add(&request);
        }
        assert_eq!((window.answered_count(), window.threads.len()), (2, 2));
        assert_eq!((window.queueing.max_ns, window.server.max_ns, window.latency.max_ns), (30, 100, 130));
        assert_eq!(window.queue_len.percentile_ns(99.0), Some(2));
    }
}
