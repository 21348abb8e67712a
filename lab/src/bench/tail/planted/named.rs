//! The causes that a trace named for the requests of a run, compared with the planted ones.

use std::collections::BTreeMap;

use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings, Objective};
use sidelane_timeline::ending::{Ending, UnansweredRequest};
use sidelane_timeline::record::{Kinds, Task};
use sidelane_timeline::timeline::{Span, Timeline};

use super::cause::{Claim, SLOW_NS};
use super::truth::Asked;
use crate::bench::tail::traced::TraceResult;

/// Result of a run with one planted cause.
pub(super) struct Named {
    /// Claim that is expected for the planted requests.
    pub(super) claim: Claim,
    /// Number of slow planted requests by statement; the key is `None` if the trace lacks the request.
    pub(super) of_planted: BTreeMap<Option<Claim>, u64>,
    /// Number of slow requests that were not planted, by statement.
    pub(super) of_others: BTreeMap<Option<Claim>, u64>,
    /// Number of requests that were not planted.
    pub(super) others: u64,
    /// Number of requests whose spans do not sum to their latency within 1 %.
    pub(super) do_not_sum: u64,
    /// Time of slow requests above the normal, and the part of it that is not explained.
    pub(super) tail_ns: u64,
    pub(super) not_explained_ns: u64,
    /// Client's latencies of all planted requests.
    pub(super) planted_ns: Vec<u64>,
    /// Number of requests with a whole timeline, and number of all requests.
    pub(super) whole: u64,
    pub(super) asked: u64,
}

impl Named {
    pub(super) fn of(claim: Claim, asked: &[Asked], traced: &TraceResult) -> Named {
        let whole: Vec<&Timeline> = traced.timelines.iter().filter(|timeline| timeline.incomplete.is_none()).collect();
        let diagnoser = diagnoser(&whole, traced.recorded);
        let of = |planted: bool| {
            let mut named = BTreeMap::new();
            for asked in asked.iter().filter(|asked| asked.planted == planted && asked.latency_ns() > SLOW_NS) {
                *named.entry(asked.claim(&whole, &traced.unanswered, &diagnoser)).or_default() += 1;
            }
            named
        };
        let (tail_ns, not_explained_ns) = tail(&diagnoser);
        Named {
            claim,
            of_planted: of(true),
            of_others: of(false),
            others: asked.iter().filter(|asked| !asked.planted).count() as u64,
            do_not_sum: whole.iter().filter(|timeline| !sums(timeline)).count() as u64,
            tail_ns,
            not_explained_ns,
            planted_ns: asked.iter().filter(|asked| asked.planted).map(Asked::latency_ns).collect(),
            whole: whole.len() as u64,
            asked: asked.len() as u64,
        }
    }

    /// Returns the number of slow planted requests, and the number of those for which the cause was named.
    pub(super) fn right(&self) -> (u64, u64) {
        let named = self.of_planted.get(&Some(self.claim)).copied().unwrap_or(0);
        (self.of_planted.values().sum(), named)
    }

    /// Returns the number of other slow requests for which the planted cause was named.
    pub(super) fn wrong(&self) -> u64 {
        self.of_others.get(&Some(self.claim)).copied().unwrap_or(0)
    }
}

impl Asked {
    fn latency_ns(&self) -> u64 {
        self.answered_ns - self.sent_ns
    }

    /// Returns the trace's statement on the request. A request that its client abandoned takes precedence.
    fn claim(&self, whole: &[&Timeline], unanswered: &[UnansweredRequest], diagnoser: &Diagnoser) -> Option<Claim> {
        let is_left = |request: &UnansweredRequest| request.ending == Ending::Abandoned && self.is(request.arrived_ns);
        if unanswered.iter().any(is_left) {
            return Some(Claim::Abandoned);
        }
        let its =
            whole.iter().filter(|timeline| self.is(timeline.arrived_ns)).min_by_key(|timeline| timeline.arrived_ns);
        its.and_then(|timeline| diagnoser.claim(timeline)).map(Claim::Cause)
    }

    /// Returns whether a traced request with this arrival may be the asked one. The client asks one request at a time,
    /// or a twin later, so the first match is the right one.
    fn is(&self, arrived_ns: u64) -> bool {
        (self.sent_ns..self.answered_ns).contains(&arrived_ns)
    }
}

fn sums(timeline: &Timeline) -> bool {
    let sum_ns: u64 = timeline.spans.iter().map(Span::length_ns).sum();
    sum_ns.abs_diff(timeline.latency_ns()) * 100 <= timeline.latency_ns()
}

fn diagnoser(whole: &[&Timeline], recorded: Kinds) -> Diagnoser {
    let settings = DiagnoserSettings { objective: Objective::Latency(SLOW_NS), kinds: recorded, ..Default::default() };
    let mut diagnoser = Diagnoser::new(settings);
    whole.iter().for_each(|timeline| diagnoser.add(timeline));
    diagnoser
}

/// Returns the tail time of all requests, and the part of it that is not explained.
fn tail(diagnoser: &Diagnoser) -> (u64, u64) {
    let diagnosis = diagnoser.diagnose(&|_: Task| None);
    let not_explained = diagnosis.findings.iter().filter(|finding| finding.cause == Cause::NotExplained);
    (diagnosis.tail_ns, not_explained.map(|finding| finding.tail_ns).sum())
}
