//! The last requests of one server, as its trace told them.

use std::collections::VecDeque;

use sidelane_timeline::builder::Settings;
use sidelane_timeline::timeline::Timeline;
use sidelane_trace::words::Names;

use crate::config::SentCopy;

/// As many requests as the proxy remembers.
const REQUESTS_MAX: usize = 4096;
/// The most spans that are kept: 14 MB.
const SPANS_MAX: usize = 200_000;
/// From when its records are there, a timeline comes so much later than what the builder waits for, at most: the builder
/// looks a few times a second.
const LATER_NS: u64 = 100_000_000;

/// What is known of a server's requests.
#[derive(Debug, Default)]
pub(super) struct Kept {
    timelines: VecDeque<Timeline>,
    spans: usize,
    /// Names of threads.
    pub(super) names: Names,
    /// When the trace began.
    began_ns: u64,
    /// All records are there up to here.
    pub(super) until_ns: u64,
}

/// What is found of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'k> {
    /// What the server did for it.
    This(&'k Timeline),
    /// It was sent before the trace began.
    Earlier,
    /// It is not told yet: the server may have it still, or more of its response may come.
    Later,
    /// The trace has none that came from its port while it was under way.
    None,
    /// Several requests came from that port in that time, from other machines or one after another; how many.
    Several(usize),
}

impl Kept {
    /// Nothing yet of a trace that began then.
    pub(super) fn since(began_ns: u64) -> Self {
        Self { began_ns, ..Self::default() }
    }

    /// Adds the newest; the oldest make room.
    pub(super) fn add(&mut self, timeline: Timeline) {
        self.spans += timeline.spans.len();
        self.timelines.push_back(timeline);
        while self.timelines.len() > REQUESTS_MAX || self.spans > SPANS_MAX {
            let oldest = self.timelines.pop_front();
            self.spans -= oldest.map_or(0, |oldest| oldest.spans.len());
        }
    }

    /// Looks for the request that came from the proxy's port while the proxy waited for its answer. Both clocks are
    /// `CLOCK_MONOTONIC`.
    pub(super) fn find(&self, asked: &SentCopy) -> Found<'_> {
        let until_ns = asked.until_ns.unwrap_or(u64::MAX);
        let is_it = |timeline: &&Timeline| {
            timeline.peer_port == u32::from(asked.port) && (asked.sent_ns..=until_ns).contains(&timeline.arrived_ns)
        };
        let found: Vec<&Timeline> = self.timelines.iter().filter(is_it).collect();
        match found[..] {
            [one] => Found::This(one),
            [_, ..] => Found::Several(found.len()),
            [] if asked.sent_ns < self.began_ns => Found::Earlier,
            [] if self.until_ns < until_ns.saturating_add(told_within_ns()) => Found::Later,
            [] => Found::None,
        }
    }
}

/// The longest time from the end of a request to its trace.
fn told_within_ns() -> u64 {
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

    /// A request that arrived then, from that port.
    fn arrived(number: u64, at_ns: u64, port: u16) -> Timeline {
        Timeline { peer_port: port.into(), ..timeline(number, at_ns, &[(Cause::OnCpu, 1_000)]) }
    }

    fn kept(timelines: impl IntoIterator<Item = Timeline>) -> Kept {
        let mut kept = Kept { until_ns: 10 * S, ..Kept::since(S) };
        timelines.into_iter().for_each(|timeline| kept.add(timeline));
        kept
    }

    fn asked(sent_ns: u64, until_ns: Option<u64>) -> SentCopy {
        SentCopy { server: Server::First, port: PORT, arrived_ns: sent_ns, sent_ns, until_ns }
    }

    fn number(found: Found<'_>) -> u64 {
        match found {
            Found::This(timeline) => timeline.request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_known_by_its_port_and_by_when_it_came() {
        let all = [(1, 2 * S, PORT), (2, 3 * S, PORT + 1), (3, 4 * S, PORT), (4, 5 * S, PORT)];
        let kept = kept(all.map(|(number, at_ns, port)| arrived(number, at_ns, port)));
        assert_eq!(number(kept.find(&asked(2 * S + 1, Some(4 * S)))), 3);
        assert_eq!(number(kept.find(&asked(4 * S + 1, None))), 4);
        assert_eq!(kept.find(&asked(2 * S + 1, Some(3 * S))), Found::None, "that one came from another port");
        assert_eq!(kept.find(&asked(2 * S + 1, Some(5 * S))), Found::Several(2));
    }

    #[test]
    fn missing_request_is_later_earlier_or_unknown() {
        let kept = kept([]);
        assert_eq!(kept.find(&asked(S - 1, Some(S))), Found::Earlier);
        assert_eq!(kept.find(&asked(8 * S, Some(9 * S))), Found::Later, "its response may go on");
        assert_eq!(kept.find(&asked(2 * S, None)), Found::Later, "it has no response");
        assert_eq!(kept.find(&asked(8 * S, Some(8 * S + S / 2))), Found::None);
    }

    #[test]
    fn oldest_requests_make_room() {
        let many = (0..REQUESTS_MAX as u64 + 2).map(|number| arrived(number, S + number, PORT));
        let all = kept(many);
        assert_eq!((all.timelines.len(), all.timelines[0].request), (REQUESTS_MAX, 2));
        let long = vec![(Cause::OnCpu, 1); SPANS_MAX / 2];
        let few = kept((0..4).map(|number| timeline(number, S, &long)));
        assert_eq!((few.timelines.len(), few.spans), (2, SPANS_MAX));
    }
}
