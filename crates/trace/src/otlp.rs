//! Slow requests as traces of OpenTelemetry: a root span for the request, and a span below it for each span of its
//! timeline. These lie end to end, so their durations sum to the request's latency.

use anyhow::{Result, bail};
use sidelane_report::otlp::{
    Attributes, Destination, RequestTrace, Sent, SpanId, SpanKind, Status, TraceId, TraceSpan,
};
use sidelane_timeline::advice::advice;
use sidelane_timeline::cause::Cause;
use sidelane_timeline::timeline::{Span, Timeline};
use sidelane_timeline::wait::{Object, Peer, UDP};
use sidelane_tracker::requests::number_within_service;

use super::excerpt::Excerpt;
use super::exemplars::{OF_CAUSE_MAX, SLOWEST_MAX};
use super::report::{TraceReport, human_count};
use super::text::{Names, describe_span};

/// Name of the root span of a request in a protocol that the tracer does not know.
const REQUEST: &str = "request";

/// A slow request, with its process.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowRequest {
    /// Timeline of the request.
    pub timeline: Timeline,
    /// Process whose thread received the request; `None` if no record names it.
    pub pid: Option<u32>,
}

impl SlowRequest {
    /// Returns the request of an excerpt, with its process as its records name it.
    pub fn from_excerpt(excerpt: &Excerpt) -> Self {
        let tid = first_thread(&excerpt.timeline);
        let tasks = || excerpt.records.iter().flat_map(|record| [record.task, record.other]);
        let pid = tid.and_then(|tid| tasks().find(|task| task.tid == tid)).map(|task| task.pid);
        Self { timeline: excerpt.timeline.clone(), pid }
    }
}

/// Returns the thread that had the request first; `None` if no thread is known.
pub fn first_thread(timeline: &Timeline) -> Option<u32> {
    timeline.spans.iter().map(|span| span.tid).find(|tid| *tid != 0)
}

/// Trace to which spans are added, with the clock and the names that they need.
#[derive(Clone, Copy)]
pub struct TraceContext<'a> {
    /// Id of the trace.
    pub trace_id: TraceId,
    /// Id of the root span.
    pub root: SpanId,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds.
    pub epoch_ns: u64,
    /// Names of threads.
    pub names: &'a Names,
}

impl TraceContext<'_> {
    /// Returns a span for each span of the timeline that begins before `until_ns`, which is the end of the last one at
    /// the latest.
    pub fn cause_spans(&self, timeline: &Timeline, until_ns: u64) -> Vec<TraceSpan> {
        let is_before_end = |span: &&Span| span.from_ns < until_ns || span.to_ns <= until_ns;
        let before_end = timeline.spans.iter().filter(is_before_end);
        (1..).zip(before_end).map(|(number, span)| self.cause_span(number, span, until_ns)).collect()
    }

    fn cause_span(&self, number: u64, span: &Span, until_ns: u64) -> TraceSpan {
        let words = Some(describe_span(span, self.names)).filter(|words| !words.is_empty());
        let attributes = Attributes::default()
            .with("sidelane.cause", cause_key(span.cause))
            .with_known("sidelane.description", words)
            .with_known("thread.id", Some(span.tid).filter(|tid| *tid != 0))
            .with_known("thread.name", self.names.name(span.tid))
            .with_known("cpu.logical_number", span.cpu);
        let kind = match span.cause {
            Cause::Downstream | Cause::Connect | Cause::NoAnswer => SpanKind::Client,
            _ => SpanKind::Internal,
        };
        let times_ns = (span.from_ns, span.to_ns.min(until_ns));
        TraceSpan { kind, ..self.child(number, span.cause.name(), times_ns, with_peer(attributes, span)) }
    }

    /// Returns a span below the root. `number` tells it from the other spans of the trace.
    pub fn child(&self, number: u64, name: &str, (from_ns, to_ns): (u64, u64), attributes: Attributes) -> TraceSpan {
        let span_id = SpanId::derive(self.trace_id, &[u64_of(self.root), number]);
        let root = self.root_span(name, (from_ns, to_ns), attributes);
        TraceSpan { span_id, parent_span_id: Some(self.root), kind: SpanKind::Internal, ..root }
    }

    /// Returns the root span of the trace, without a parent.
    pub fn root_span(&self, name: &str, (from_ns, to_ns): (u64, u64), attributes: Attributes) -> TraceSpan {
        TraceSpan {
            trace_id: self.trace_id,
            span_id: self.root,
            parent_span_id: None,
            name: name.to_owned(),
            kind: SpanKind::Server,
            start_ns: self.epoch_ns.saturating_add(from_ns),
            end_ns: self.epoch_ns.saturating_add(to_ns),
            attributes,
            status: Status::default(),
        }
    }
}

fn u64_of(id: SpanId) -> u64 {
    u64::from_be_bytes(id.to_bytes())
}

/// Returns the name of a cause as results have it, such as `run-queue`.
fn cause_key(cause: Cause) -> String {
    serde_json::to_value(cause).ok().and_then(|key| key.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Adds the address of the service for which the thread waited, if it is known.
fn with_peer(attributes: Attributes, span: &Span) -> Attributes {
    let Some(Object::Service(Peer::Address(address, port, protocol))) = span.wait.map(|wait| wait.object) else {
        return attributes;
    };
    attributes
        .with("network.peer.address", address.to_string())
        .with("network.peer.port", port)
        .with("network.transport", if protocol == UDP { "udp" } else { "tcp" })
}

/// Adds the cause that took most of the request's time, and what to do about it.
pub fn with_main_cause(attributes: Attributes, timeline: &Timeline) -> Attributes {
    let Some(main) = timeline.time().first().map(|time| time.cause) else { return attributes };
    attributes
        .with("sidelane.cause", cause_key(main))
        .with("sidelane.advice", advice(main, timeline.longest_span_detail(main)))
}

/// Returns the resource of a process: `service` is its name as the user wrote it. A port or a process id is no name of
/// a service, so the name of the process stands for it.
pub fn process_resource(service: &str, process: Option<&str>, pid: Option<u32>) -> Attributes {
    let is_number = ["port:", "pid:"].iter().any(|kind| service.starts_with(kind));
    let name = match process {
        Some(process) if is_number => process,
        _ => service.strip_prefix("comm:").unwrap_or(service),
    };
    Attributes::default().with("service.name", name).with_known("process.pid", pid)
}

impl TraceReport {
    /// Exports the slow requests, and returns a line that says how many.
    ///
    /// # Errors
    /// If the time of day of the trace is unknown, or not all could be sent.
    pub fn export(&self, to: &Destination) -> Result<String> {
        let Some(traces) = self.to_request_traces() else {
            bail!(
                "cannot export requests to {to}: the log is of a version without the time of day; trace the service again"
            );
        };
        let Sent { traces: sent, rejected_spans, why_rejected } = to.send(&traces)?;
        let slow = self.diagnosis.slow;
        let mut text = format!("exported {} of {} slow requests to {to}", human_count(sent), human_count(slow));
        if rejected_spans > 0 {
            text += &format!("; the collector rejected {} spans: {why_rejected}", human_count(rejected_spans));
        }
        if sent < slow {
            text += &format!("; a trace keeps the {SLOWEST_MAX} slowest, and {OF_CAUSE_MAX} for each cause");
        }
        Ok(text)
    }

    fn to_request_traces(&self) -> Option<Vec<RequestTrace>> {
        let epoch_ns = self.epoch_ns?;
        Some(self.slow_requests.iter().map(|request| self.request_trace(request, epoch_ns)).collect())
    }

    fn request_trace(&self, SlowRequest { timeline, pid }: &SlowRequest, epoch_ns: u64) -> RequestTrace {
        let trace_id = TraceId::derive(&[epoch_ns, timeline.socket, timeline.request, timeline.arrived_ns]);
        let root = SpanId::derive(trace_id, &[]);
        let context = TraceContext { trace_id, root, epoch_ns, names: &self.names };
        let port = self.service.strip_prefix("port:").and_then(|port| port.parse::<u16>().ok());
        let attributes = Attributes::default()
            .with("network.transport", "tcp")
            .with_known("server.port", port)
            .with_known("network.peer.port", Some(timeline.peer_port).filter(|port| *port != 0))
            .with("sidelane.request", number_within_service(timeline.request).to_string());
        let times_ns = (timeline.arrived_ns, timeline.ended_ns);
        let mut spans = vec![context.root_span(REQUEST, times_ns, with_main_cause(attributes, timeline))];
        spans.extend(context.cause_spans(timeline, timeline.ended_ns));
        let process = pid.and_then(|pid| self.names.name(pid));
        RequestTrace { parts: vec![(process_resource(&self.service, process, *pid), spans)] }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sidelane_timeline::wait::{TCP, Wait};

    use super::super::sample::{self, SERVER, STRANGER, timeline};
    use super::*;

    /// Unix time at which `CLOCK_MONOTONIC` was 0 in these tests.
    const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

    /// Returns a trace's spans as JSON, with attributes as one object.
    fn spans_as_json(spans: &[TraceSpan]) -> Vec<Value> {
        let plain = |attribute: &Value| {
            let value = attribute["value"].as_object().unwrap().values().next().unwrap();
            (attribute["key"].as_str().unwrap().to_owned(), value.clone())
        };
        let span = |span: &TraceSpan| {
            let mut json = serde_json::to_value(span).unwrap();
            json["attributes"] = json["attributes"].as_array().unwrap().iter().map(plain).collect();
            json
        };
        spans.iter().map(span).collect()
    }

    /// The timeline of the test below: 9 µs of network, 2 ms behind stress-ng, 100 µs for another service.
    fn worked_timeline() -> Timeline {
        let parts = [(Cause::NetworkReceive, 9_000), (Cause::RunQueue, 2_000_000), (Cause::Downstream, 100_000)];
        let mut timeline = Timeline { peer_port: 40_000, ..timeline(5, 7_000_000, &parts) };
        let object = Object::Service(Peer::Address([127, 0, 0, 1].into(), 6379, TCP));
        timeline.spans[2].wait = Some(Wait { object, ..Wait::default() });
        timeline
    }

    #[test]
    fn timeline_becomes_these_spans() {
        let mut report = sample::report();
        let pid = Some(SERVER.pid);
        (report.epoch_ns, report.slow_requests) =
            (Some(EPOCH_NS), vec![SlowRequest { timeline: worked_timeline(), pid }]);
        let traces = report.to_request_traces().unwrap();
        let [(resource, spans)] = &traces[0].parts[..] else { panic!("one resource: {traces:?}") };
        assert_eq!(*resource, Attributes::default().with("service.name", "server").with("process.pid", SERVER.pid));
        let told = spans_as_json(spans);
        let root = &told[0];
        assert_eq!((&root["name"], &root["kind"], root.get("parentSpanId")), (&json!("request"), &json!(2), None));
        let advice = advice(Cause::RunQueue, 0);
        assert_eq!(
            root["attributes"],
            json!({"network.transport": "tcp", "server.port": "8080", "network.peer.port": "40000",
                   "sidelane.request": "5", "sidelane.cause": "run-queue", "sidelane.advice": advice})
        );
        let times = |span: &Value| [span["startTimeUnixNano"].clone(), span["endTimeUnixNano"].clone()];
        assert_eq!(times(root), ["1700000000007000000", "1700000000009109000"]);
        let wanted = [
            (
                "network, receiving",
                1,
                ["1700000000007000000", "1700000000007009000"],
                json!({"cpu.logical_number": "0"}),
            ),
            (
                "wait for a CPU",
                1,
                ["1700000000007009000", "1700000000009009000"],
                json!({"sidelane.description": format!("server (100) on lane 1 behind stress-ng ({})", STRANGER.tid),
                       "thread.id": "100", "thread.name": "server", "cpu.logical_number": "1"}),
            ),
            (
                "answer of another service",
                3,
                ["1700000000009009000", "1700000000009109000"],
                json!({"sidelane.description": "server (100) on lane 1", "thread.id": "100", "thread.name": "server",
                       "cpu.logical_number": "1", "network.peer.address": "127.0.0.1", "network.peer.port": "6379",
                       "network.transport": "tcp"}),
            ),
        ];
        for (span, (name, kind, at, attributes)) in told[1..].iter().zip(wanted) {
            assert_eq!((&span["name"], span["kind"].as_u64()), (&json!(name), Some(kind)), "{span}");
            assert_eq!(times(span), at.map(Value::from), "{span}");
            assert_eq!((&span["traceId"], &span["parentSpanId"]), (&root["traceId"], &root["spanId"]), "{span}");
            let has = |(key, value): (&String, &Value)| span["attributes"][key] == *value;
            assert!(attributes.as_object().unwrap().iter().all(has), "{name}: {span}");
        }
        assert_eq!(told.len(), 4);
    }

    #[test]
    fn spans_of_each_slow_request_sum_to_its_latency() {
        let report = sample::report();
        let traces = report.to_request_traces().unwrap();
        assert!(traces.len() > 40, "{}", traces.len());
        for (trace, request) in traces.iter().zip(&report.slow_requests) {
            let spans = &trace.parts[0].1;
            let length = |span: &TraceSpan| span.end_ns - span.start_ns;
            assert_eq!(spans[1..].iter().map(length).sum::<u64>(), length(&spans[0]));
            assert_eq!(length(&spans[0]), request.timeline.latency_ns());
            assert!(spans[1..].windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns), "without a gap");
        }
    }

    #[test]
    fn spans_end_with_the_request_at_a_proxy() {
        let (timeline, names) = (worked_timeline(), Names::default());
        let trace_id = TraceId::derive(&[1]);
        let context = TraceContext { trace_id, root: SpanId::derive(trace_id, &[]), epoch_ns: 0, names: &names };
        let lengths = |until_ns: u64| {
            let spans = context.cause_spans(&timeline, until_ns);
            spans.iter().map(|span| span.end_ns - span.start_ns).collect::<Vec<_>>()
        };
        assert_eq!(lengths(timeline.arrived_ns + 1_009_000), [9_000, 1_000_000]);
        assert_eq!(lengths(timeline.arrived_ns + 2_009_000), [9_000, 2_000_000]);
        assert_eq!(lengths(u64::MAX), [9_000, 2_000_000, 100_000]);
    }

    #[test]
    fn process_stands_for_a_port_and_no_other_name() {
        let name = |service: &str| process_resource(service, Some("java"), None);
        let wanted = |name: &str| Attributes::default().with("service.name", name);
        assert_eq!([name("port:80"), name("pid:7")], [wanted("java"), wanted("java")]);
        assert_eq!([name("comm:memcached"), name("the shop")], [wanted("memcached"), wanted("the shop")]);
        assert_eq!(process_resource("port:80", None, None), wanted("port:80"));
    }
}
