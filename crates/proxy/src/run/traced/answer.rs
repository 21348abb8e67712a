//! Trace of a request at its server, as JSON for the client that asks for it.

use std::cmp::Reverse;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sidelane_timeline::advice::advice;
use sidelane_timeline::diagnosis::CauseTime;
use sidelane_timeline::timeline::{Span, Timeline};
use sidelane_trace::text::describe_span;

use super::recent_timelines::{LookupResult, RecentTimelines};
use crate::config::SentCopy;

/// Maximum number of spans in the answer. The shortest spans beyond it are left out.
const SPANS_MAX: usize = 200;

/// Returns the answer for a request without a trace.
pub(super) fn untraced_answer(why: &str, what_to_do: &str) -> Value {
    json!({ "state": "unknown", "why": why, "what_to_do": what_to_do })
}

/// Returns the answer for a request, from the stored timelines of its server.
pub(super) fn trace_answer(timelines: &RecentTimelines, copy: &SentCopy, server: SocketAddr) -> Value {
    match timelines.find(copy) {
        LookupResult::Found(timeline) => timeline_answer(timeline, timelines, copy),
        other => {
            let (state, what_to_do) = match &other {
                LookupResult::Incomplete => ("later", "ask again in 2 s".to_owned()),
                LookupResult::None => (
                    "unknown",
                    format!(
                        "run `sidelane trace --service port:{}`, and see which records it counts as lost",
                        server.port()
                    ),
                ),
                LookupResult::Several(_) => (
                    "unknown",
                    format!("run `sidelane trace --service port:{}` during the next slow request", server.port()),
                ),
                _ => ("unknown", "ask for a request that came later".to_owned()),
            };
            json!({ "state": state, "why": reason_without_timeline(&other, copy), "what_to_do": what_to_do })
        }
    }
}

/// Returns why the search for a request gave no timeline.
pub(super) fn reason_without_timeline(result: &LookupResult<'_>, copy: &SentCopy) -> String {
    match result {
        LookupResult::Found(_) => String::new(),
        LookupResult::BeforeTrace => "it was sent before the trace began".to_owned(),
        LookupResult::Incomplete => "it has not ended, or its response may go on".to_owned(),
        LookupResult::None => format!(
            "the trace has no request from the proxy's port {} at that time: the server did not take it up, or records \
             are missing",
            copy.port
        ),
        LookupResult::Several(count) => format!(
            "the trace has {count} requests from the proxy's port {} at that time, so this one cannot be told from the \
             others",
            copy.port
        ),
    }
}

/// Returns the answer for a timeline. Its times are relative to the request's arrival at the proxy.
fn timeline_answer(timeline: &Timeline, timelines: &RecentTimelines, copy: &SentCopy) -> Value {
    let since = |at_ns: u64| at_ns.saturating_sub(copy.arrived_ns);
    let mut longest: Vec<&Span> = timeline.spans.iter().collect();
    longest.sort_by_key(|span| Reverse(span.length_ns()));
    longest.truncate(SPANS_MAX);
    longest.sort_by_key(|span| span.from_ns);
    let spans = longest.iter().map(|span| {
        json!({
            "from_ns": since(span.from_ns),
            "to_ns": since(span.to_ns),
            "cause": span.cause,
            "words": describe_span(span, &timelines.names),
        })
    });
    json!({
        "state": if timeline.incomplete.is_none() { "known" } else { "incomplete" },
        "arrived_ns": since(timeline.arrived_ns),
        "taken_up_ns": since(timeline.started_ns),
        "answered_ns": since(timeline.finished_ns),
        "left_ns": since(timeline.ended_ns),
        "time": time_by_cause(timeline),
        "spans": spans.collect::<Vec<_>>(),
        "shorter_spans_left_out": timeline.spans.len() - longest.len(),
    })
}

/// Returns the time for each cause, with advice, in descending order.
fn time_by_cause(timeline: &Timeline) -> Vec<Value> {
    let told = timeline.time().into_iter().map(|CauseTime { cause, ns }| {
        json!({ "cause": cause, "name": cause.name(), "ns": ns, "what_to_do": advice(cause, timeline.longest_span_detail(cause)) })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::Server;

    use sidelane_timeline::cause::Cause;

    use super::*;
    use sidelane_trace::sample::timeline;

    const S: u64 = 1_000_000_000;

    fn answer_with_spans(parts: &[(Cause, u64)]) -> Value {
        let mut kept = RecentTimelines::since(0);
        kept.add(Timeline { peer_port: 7, ..timeline(1, S, parts) });
        let asked = SentCopy { server: Server::FIRST, port: 7, arrived_ns: S - 5, sent_ns: S, until_ns: Some(2 * S) };
        trace_answer(&kept, &asked, ([127, 0, 0, 1], 9001).into())
    }

    #[test]
    fn times_start_at_arrival_and_longest_cause_comes_first() {
        let told = answer_with_spans(&[(Cause::NetworkReceive, 10), (Cause::RunQueue, 70), (Cause::OnCpu, 20)]);
        assert_eq!((&told["state"], &told["arrived_ns"], &told["left_ns"]), (&json!("known"), &json!(5), &json!(105)));
        assert_eq!(told["time"][0]["cause"], "run-queue");
        assert_eq!(told["time"][0]["ns"], 70);
        assert!(told["time"][0]["what_to_do"].as_str().unwrap().contains("sidelane run"), "{told}");
        assert_eq!(told["spans"][1]["from_ns"], 15);
    }

    #[test]
    fn shortest_of_too_many_spans_are_left_out_and_counted() {
        let mut parts = vec![(Cause::OnCpu, 9); SPANS_MAX];
        parts.push((Cause::Lock, 1));
        let told = answer_with_spans(&parts);
        assert_eq!(told["spans"].as_array().unwrap().len(), SPANS_MAX);
        assert_eq!((&told["shorter_spans_left_out"], &told["time"][1]["cause"]), (&json!(1), &json!("lock")));
    }
}
