//! Store of the last traced requests of one server.

use std::collections::VecDeque;

use sidelane_timeline::builder::Settings;
use sidelane_timeline::timeline::Timeline;
use sidelane_trace::text::Names;

use crate::config::SentCopy;

/// Maximum number of stored timelines: as many as the request table stores records of finished requests.
const REQUESTS_MAX: usize = 4096;
/// Maximum number of stored spans, which need 14 MB.
const SPANS_MAX: usize = 200_000;
/// Maximum time by which a timeline is complete later than the waiting times in [`Settings`] say. The timeline builder
/// runs only a few times per second.
const LATER_NS: u64 = 100_000_000;

/// Store of the timelines of a server's requests.
#[derive(Debug, Default)]
pub(super) struct RecentTimelines {
    timelines: VecDeque<Timeline>,
    spans: usize,
    /// Names of the server's threads.
    pub(super) names: Names,
    /// Time at which the trace began.
    began_ns: u64,
    /// Time up to which all records were read.
    pub(super) until_ns: u64,
}

/// Result of the search for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LookupResult<'k> {
    /// Timeline of the request.
    Found(&'k Timeline),
    /// The request was sent before the trace began.
    BeforeTrace,
    /// The timeline is not complete yet: the server may still work on the request, or more of its response may come.
    Incomplete,
    /// The trace has no request from the proxy's port while the copy was unanswered.
    None,
    /// The trace has this number of requests from the same port while the copy was unanswered. They come from other
    /// machines with the same port, or one after the other on one connection.
    Several(usize),
}

impl RecentTimelines {
    /// Creates an empty store for a trace that began at `began_ns`.
    pub(super) fn since(began_ns: u64) -> Self {
        Self { began_ns, ..Self::default() }
    }

    /// Adds a timeline. Removes the oldest ones if there are too many.
    pub(super) fn add(&mut self, timeline: Timeline) {
        self.spans += timeline.spans.len();
        self.timelines.push_back(timeline);
        while self.timelines.len() > REQUESTS_MAX || self.spans > SPANS_MAX {
            let oldest = self.timelines.pop_front();
            self.spans -= oldest.map_or(0, |oldest| oldest.spans.len());
        }
    }

    /// Finds the request that came from the proxy's port while the proxy waited for its answer. Proxy and trace both
    /// use `CLOCK_MONOTONIC`.
    pub(super) fn find(&self, copy: &SentCopy) -> LookupResult<'_> {
        let until_ns = copy.until_ns.unwrap_or(u64::MAX);
        let is_it = |timeline: &&Timeline| {
            timeline.peer_port == u32::from(copy.port) && (copy.sent_ns..=until_ns).contains(&timeline.arrived_ns)
        };
        let found: Vec<&Timeline> = self.timelines.iter().filter(is_it).collect();
        match found[..] {
            [one] => LookupResult::Found(one),
            [_, ..] => LookupResult::Several(found.len()),
            [] if copy.sent_ns < self.began_ns => LookupResult::BeforeTrace,
            [] if self.until_ns < until_ns.saturating_add(max_store_delay_ns()) => LookupResult::Incomplete,
            [] => LookupResult::None,
        }
    }
}

/// Returns the maximum time from the end of a request until its timeline is stored.
fn max_store_delay_ns() -> u64 {
    let usual = Settings::default();
    usual.settle_ns + usual.hold_ns + LATER_NS
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::Server;
    use sidelane_timeline::cause::Cause;

    use super::*;
    use sidelane_trace::sample::timeline;

    const S: u64 = 1_000_000_000;
    const PORT: u16 = 40_000;

    /// Creates the timeline of a request that arrived at `at_ns` from the given port.
    fn timeline_at(number: u64, at_ns: u64, port: u16) -> Timeline {
        Timeline { peer_port: port.into(), ..timeline(number, at_ns, &[(Cause::OnCpu, 1_000)]) }
    }

    fn store_with(timelines: impl IntoIterator<Item = Timeline>) -> RecentTimelines {
        let mut kept = RecentTimelines { until_ns: 10 * S, ..RecentTimelines::since(S) };
        timelines.into_iter().for_each(|timeline| kept.add(timeline));
        kept
    }

    fn sent_copy(sent_ns: u64, until_ns: Option<u64>) -> SentCopy {
        SentCopy { server: Server::FIRST, port: PORT, arrived_ns: sent_ns, sent_ns, until_ns }
    }

    fn found_request_number(found: LookupResult<'_>) -> u64 {
        match found {
            LookupResult::Found(timeline) => timeline.request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_is_found_by_port_and_arrival_time() {
        let all = [(1, 2 * S, PORT), (2, 3 * S, PORT + 1), (3, 4 * S, PORT), (4, 5 * S, PORT)];
        let kept = store_with(all.map(|(number, at_ns, port)| timeline_at(number, at_ns, port)));
        assert_eq!(found_request_number(kept.find(&sent_copy(2 * S + 1, Some(4 * S)))), 3);
        assert_eq!(found_request_number(kept.find(&sent_copy(4 * S + 1, None))), 4);
        assert_eq!(
            kept.find(&sent_copy(2 * S + 1, Some(3 * S))),
            LookupResult::None,
            "that one came from another port"
        );
        assert_eq!(kept.find(&sent_copy(2 * S + 1, Some(5 * S))), LookupResult::Several(2));
    }

    #[test]
    fn missing_request_is_incomplete_or_before_trace_or_unknown() {
        let kept = store_with([]);
        assert_eq!(kept.find(&sent_copy(S - 1, Some(S))), LookupResult::BeforeTrace);
        assert_eq!(kept.find(&sent_copy(8 * S, Some(9 * S))), LookupResult::Incomplete, "its response may go on");
        assert_eq!(kept.find(&sent_copy(2 * S, None)), LookupResult::Incomplete, "it has no response");
        assert_eq!(kept.find(&sent_copy(8 * S, Some(8 * S + S / 2))), LookupResult::None);
    }

    #[test]
    fn oldest_timelines_are_removed_at_the_limits() {
        let many = (0..REQUESTS_MAX as u64 + 2).map(|number| timeline_at(number, S + number, PORT));
        let all = store_with(many);
        assert_eq!((all.timelines.len(), all.timelines[0].request), (REQUESTS_MAX, 2));
        let long = vec![(Cause::OnCpu, 1); SPANS_MAX / 2];
        let few = store_with((0..4).map(|number| timeline(number, S, &long)));
        assert_eq!((few.timelines.len(), few.spans), (2, SPANS_MAX));
    }
}
