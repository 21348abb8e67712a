//! The causes that a trace named for the requests of a run, compared with the planted ones.

use std::collections::BTreeMap;

use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings, Objective};
use sidelane_timeline::ending::{Ending, UnansweredRequest};
use sidelane_timeline::record::{Kinds, Task};
use sidelane_timeline::timeline::{Span, Timeline};

use super::cause::{Attribution, SLOW_NS};
use super::truth::ClientRequest;
use crate::bench::tail::traced::TraceResult;

/// Result of a run with one planted cause.
pub(super) struct PlantedRunResult {
    /// Statement that the trace should make on the planted requests.
    pub(super) claim: Attribution,
    /// Number of slow planted requests by statement; the key is `None` if the trace lacks the request.
    pub(super) of_planted: BTreeMap<Option<Attribution>, u64>,
    /// Number of slow requests that were not planted, by statement.
    pub(super) of_others: BTreeMap<Option<Attribution>, u64>,
    /// Number of requests that were not planted.
    pub(super) others: u64,
    /// Number of requests whose spans do not sum to their latency within 1 %.
    pub(super) do_not_sum: u64,
    /// Total time by which slow requests exceed the normal latency; `not_explained_ns` is its part that no cause
    /// explains.
    pub(super) tail_ns: u64,
    pub(super) not_explained_ns: u64,
    /// Client's latencies of all planted requests.
    pub(super) planted_ns: Vec<u64>,
    /// Number of requests with a complete timeline; `asked` is the number of all requests.
    pub(super) whole: u64,
    pub(super) asked: u64,
}

impl PlantedRunResult {
    pub(super) fn from_trace(
        expected: Attribution,
        requests: &[ClientRequest],
        trace: &TraceResult,
    ) -> PlantedRunResult {
        let whole: Vec<&Timeline> = trace.timelines.iter().filter(|timeline| timeline.incomplete.is_none()).collect();
        let diagnoser = build_diagnoser(&whole, trace.recorded);
        let of = |planted: bool| {
            let mut named = BTreeMap::new();
            for asked in requests.iter().filter(|asked| asked.planted == planted && asked.latency_ns() > SLOW_NS) {
                *named.entry(asked.attribution(&whole, &trace.unanswered, &diagnoser)).or_default() += 1;
            }
            named
        };
        let (tail_ns, not_explained_ns) = tail_and_unexplained_ns(&diagnoser);
        PlantedRunResult {
            claim: expected,
            of_planted: of(true),
            of_others: of(false),
            others: requests.iter().filter(|asked| !asked.planted).count() as u64,
            do_not_sum: whole.iter().filter(|timeline| !spans_sum_to_latency(timeline)).count() as u64,
            tail_ns,
            not_explained_ns,
            planted_ns: requests.iter().filter(|asked| asked.planted).map(ClientRequest::latency_ns).collect(),
            whole: whole.len() as u64,
            asked: requests.len() as u64,
        }
    }

    /// Returns the number of slow planted requests, and the number of them for which the trace named the planted cause.
    pub(super) fn slow_and_named_counts(&self) -> (u64, u64) {
        let named = self.of_planted.get(&Some(self.claim)).copied().unwrap_or(0);
        (self.of_planted.values().sum(), named)
    }

    /// Returns the number of slow requests that were not planted but for which the trace named the planted cause.
    pub(super) fn wrongly_named_count(&self) -> u64 {
        self.of_others.get(&Some(self.claim)).copied().unwrap_or(0)
    }
}

impl ClientRequest {
    fn latency_ns(&self) -> u64 {
        self.answered_ns - self.sent_ns
    }

    /// Returns the trace's statement on the request. An abandoned request with a matching arrival takes precedence over
    /// an answered one.
    fn attribution(
        &self,
        timelines: &[&Timeline],
        unanswered: &[UnansweredRequest],
        diagnoser: &Diagnoser,
    ) -> Option<Attribution> {
        let is_left = |request: &UnansweredRequest| {
            request.ending == Ending::Abandoned && self.matches_arrival(request.arrived_ns)
        };
        if unanswered.iter().any(is_left) {
            return Some(Attribution::Abandoned);
        }
        let its = timelines
            .iter()
            .filter(|timeline| self.matches_arrival(timeline.arrived_ns))
            .min_by_key(|timeline| timeline.arrived_ns);
        its.and_then(|timeline| diagnoser.main_cause(timeline)).map(Attribution::Cause)
    }

    /// Returns whether a traced request with this arrival may be this request of the client. The client sends one
    /// request at a time, or a twin after it, so the first match is the right one.
    fn matches_arrival(&self, arrived_ns: u64) -> bool {
        (self.sent_ns..self.answered_ns).contains(&arrived_ns)
    }
}

fn spans_sum_to_latency(timeline: &Timeline) -> bool {
    let sum_ns: u64 = timeline.spans.iter().map(Span::length_ns).sum();
    sum_ns.abs_diff(timeline.latency_ns()) * 100 <= timeline.latency_ns()
}

fn build_diagnoser(timelines: &[&Timeline], recorded: Kinds) -> Diagnoser {
    let settings = DiagnoserSettings { objective: Objective::Latency(SLOW_NS), kinds: recorded, ..Default::default() };
    let mut diagnoser = Diagnoser::new(settings);
    timelines.iter().for_each(|timeline| diagnoser.add(timeline));
    diagnoser
}

/// Returns the time by which slow requests exceed the normal latency, and the part that no cause explains, in
/// nanoseconds.
fn tail_and_unexplained_ns(diagnoser: &Diagnoser) -> (u64, u64) {
    let diagnosis = diagnoser.diagnose(&|_: Task| None);
    let not_explained = diagnosis.findings.iter().filter(|finding| finding.cause == Cause::NotExplained);
    (diagnosis.tail_ns, not_explained.map(|finding| finding.tail_ns).sum())
}
