//! Thread that exports a proxy's slow requests as OpenTelemetry traces. The root is the request at the proxy; below it
//! are the spans of its timeline at the server that answered, and what came before and after.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sidelane_host::procfs::{command_name, process_of};
use sidelane_host::wall_clock::monotonic_epoch_ns;
use sidelane_report::otlp::{Attributes, Destination, RequestTrace, Sent, SpanId, Status, TraceId, TraceSpan};
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::own_threads::PatientThread;
use sidelane_timeline::timeline::Timeline;
use sidelane_trace::otlp::{TraceContext, first_thread, process_resource, with_main_cause};
use sidelane_trace::text::Names;

use super::answer::reason_without_timeline;
use super::recent_timelines::LookupResult;
use super::{State, Traced};
use crate::access::{Dispatch, RequestOutcome};
use crate::export::{ExportCounter, ExportCounts, ExportSender, SlowRequest, export_queue};
use crate::request_table::Label;

/// Interval at which requests are looked up whose timelines come later.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Maximum number of requests that wait for their timelines. Further requests wait in the queue.
const PENDING_MAX: usize = 1024;
/// Maximum time to wait for timelines when the proxy ends.
const LAST_LOOKS: Duration = Duration::from_secs(3);
/// Maximum time to wait for the exporting thread when the proxy ends.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// Name of the proxy as a service.
const SERVICE: &str = "sidelane-proxy";
/// Number of the span before the server's part. The spans of the server's part are numbered from 1.
const BEFORE: u64 = 0;
/// Number of the span after the server's part.
const AFTER: u64 = u64::MAX;

/// Exporting thread.
struct Exporter {
    requests: Receiver<SlowRequest>,
    counter: ExportCounter,
    servers: Vec<Arc<Traced>>,
    to: Destination,
    pending: VecDeque<SlowRequest>,
    /// Number of requests that were not exported before the present failure; `None` while the export succeeds.
    failing_since: Option<u64>,
}

/// Handle to wait for the end of the exporting thread.
pub(crate) struct ExportEnd {
    /// Channel that closes when the thread has ended.
    ended: Receiver<()>,
    counter: ExportCounter,
}

impl ExportEnd {
    /// Waits until all requests are exported after the sender is gone, for 8 s at most. Returns the final numbers.
    pub(crate) fn wait_for_exporter(self) -> ExportCounts {
        if self.ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            eprint_fitted("sidelane: the last slow requests are not exported: their destination did not take them");
        }
        self.counter.counts()
    }
}

/// Starts a thread that exports requests of more than `limit_ns`.
pub(super) fn start(servers: Vec<Arc<Traced>>, to: Destination, limit_ns: u64) -> Result<(ExportSender, ExportEnd)> {
    let (sender, requests, counter) = export_queue(limit_ns);
    let (ends, ended) = sync_channel::<()>(1);
    let end = ExportEnd { ended, counter: counter.clone() };
    let exporter = Exporter { requests, counter, servers, to, pending: VecDeque::new(), failing_since: None };
    thread::Builder::new()
        .name("sidelane-otlp".to_owned())
        .spawn(move || exporter.run(ends))
        .context("cannot start the thread that exports requests; check the limit of processes (ulimit -u)")?;
    Ok((sender, end))
}

impl Exporter {
    /// Exports requests until the sender is dropped. `_ends` closes when this thread ends.
    fn run(mut self, _ends: SyncSender<()>) {
        let _patient = PatientThread::for_reader();
        let mut since_end: Option<Instant> = None;
        while since_end.is_none() || !self.pending.is_empty() {
            if self.receive() && since_end.is_none() {
                since_end = Some(Instant::now());
            }
            let is_last_look = since_end.is_some_and(|since| since.elapsed() >= LAST_LOOKS);
            let traces = self.take_traces(is_last_look);
            self.send(&traces);
        }
    }

    /// Receives requests for some time. Returns whether the sender is gone.
    fn receive(&mut self) -> bool {
        let end = Instant::now() + LOOK_EVERY;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.pending.len() >= PENDING_MAX {
                thread::sleep(left);
                return false;
            }
            match self.requests.recv_timeout(left) {
                Ok(request) => self.pending.push_back(request),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(if self.pending.is_empty() { Duration::ZERO } else { left });
                    return true;
                }
            }
        }
    }

    /// Removes the requests whose timelines are known, or will never be, and returns their traces.
    fn take_traces(&mut self, is_last_look: bool) -> Vec<RequestTrace> {
        let epoch_ns = monotonic_epoch_ns();
        let mut traces = Vec::new();
        for request in mem::take(&mut self.pending) {
            match self.request_trace(&request, epoch_ns, is_last_look) {
                Some(trace) => traces.push(trace),
                None => self.pending.push_back(request),
            }
        }
        traces
    }

    /// Returns the trace of a request; `None` if its timeline comes later and it may wait.
    fn request_trace(&self, request: &SlowRequest, epoch_ns: u64, is_last_look: bool) -> Option<RequestTrace> {
        let traced = request.copy.and_then(|copy| Some((self.servers.get(copy.server.index())?, copy)));
        let Some((traced, copy)) = traced else {
            return Some(untraced_request(request, epoch_ns, "it was sent to no server"));
        };
        match &*traced.lock_state() {
            State::Begins => Some(untraced_request(request, epoch_ns, "the trace of its server had not begun")),
            State::Ended(why) => Some(untraced_request(request, epoch_ns, why)),
            State::Records(kept) => match kept.find(&copy) {
                LookupResult::Found(timeline) => {
                    Some(traced_request(request, epoch_ns, timeline, &kept.names, traced.server))
                }
                LookupResult::Incomplete if !is_last_look => None,
                other => Some(untraced_request(request, epoch_ns, &reason_without_timeline(&other, &copy))),
            },
        }
    }

    fn send(&mut self, traces: &[RequestTrace]) {
        if traces.is_empty() {
            return;
        }
        match self.to.send(traces) {
            Ok(Sent { traces, rejected_spans, why_rejected }) => {
                self.counter.add(traces, 0);
                if rejected_spans > 0 {
                    eprint_fitted(&format!("sidelane: {} rejected {rejected_spans} spans: {why_rejected}", self.to));
                }
                if let Some(before) = self.failing_since.take() {
                    let missing = self.counter.counts().not_exported - before;
                    eprint_fitted(&format!("sidelane: slow requests are exported again; {missing} were not"));
                }
            }
            Err(error) => {
                if self.failing_since.is_none() {
                    self.failing_since = Some(self.counter.counts().not_exported);
                    eprint_fitted(&format!("sidelane: {error} (requests are not delayed)"));
                }
                self.counter.add(error.sent.traces, error.missing);
            }
        }
    }
}

/// Returns the context of a request's trace: it continues the client's trace, or is a trace of its own.
fn context<'a>(request: &SlowRequest, epoch_ns: u64, names: &'a Names) -> TraceContext<'a> {
    let numbers = [request.number.id, request.number.mark, request.arrived_ns];
    let trace_id = request.parent.map_or_else(|| TraceId::derive(&numbers), |parent| parent.trace_id);
    TraceContext { trace_id, root: SpanId::derive(trace_id, &numbers), epoch_ns, names }
}

fn root_span(request: &SlowRequest, context: &TraceContext<'_>, attributes: Attributes) -> TraceSpan {
    let times_ns = (request.arrived_ns, request.ended_ns);
    let is_failure = request.status.is_some_and(|status| status >= 500)
        || matches!(request.outcome, RequestOutcome::Failed | RequestOutcome::Cut | RequestOutcome::TimedOut);
    TraceSpan {
        parent_span_id: request.parent.map(|parent| parent.span_id),
        status: if is_failure { Status::ERROR } else { Status::default() },
        ..context.root_span(method_and_path(&request.label).0, times_ns, attributes)
    }
}

/// Returns the method of a request, and its path without the query. The path is `None` if the label is cut off.
fn method_and_path(label: &Label) -> (&str, Option<&str>) {
    let text = std::str::from_utf8(label.bytes()).unwrap_or_default();
    let (method, target) = text.split_once(' ').unwrap_or((text, ""));
    let path = target.split('?').next().filter(|path| path.len() < target.len() || text.len() < Label::MAX);
    (method, path)
}

fn request_attributes(request: &SlowRequest) -> Attributes {
    let (method, path) = method_and_path(&request.label);
    let second_copy = match request.sent {
        Dispatch::Never | Dispatch::Once => None,
        Dispatch::Hazard(hazard) => Some(hazard.name()),
        Dispatch::Timer => Some("timer"),
        Dispatch::Again => Some("again"),
    };
    Attributes::default()
        .with("http.request.method", method)
        .with_known("url.path", path)
        .with_known("http.response.status_code", request.status)
        .with("client.address", request.client.ip().to_string())
        .with("client.port", request.client.port())
        .with("sidelane.request", request.number.to_string())
        .with("sidelane.outcome", request.outcome.name())
        .with_known("sidelane.second_copy", second_copy)
}

fn proxy_resource() -> Attributes {
    process_resource(SERVICE, None, Some(std::process::id()))
}

/// Returns the trace of a request whose time at the server is known.
fn traced_request(
    request: &SlowRequest,
    epoch_ns: u64,
    timeline: &Timeline,
    names: &Names,
    server: SocketAddr,
) -> RequestTrace {
    let context = context(request, epoch_ns, names);
    // A response may reach the client before the record of its departure at the server.
    let left_ns = timeline.ended_ns.min(request.ended_ns);
    let own = |number, name, (from_ns, to_ns): (u64, u64)| {
        let attributes = Attributes::default().with("sidelane.cause", "proxy");
        (from_ns < to_ns).then(|| context.child(number, name, (from_ns, to_ns), attributes))
    };
    let root = root_span(request, &context, with_main_cause(request_attributes(request), timeline));
    let before = own(BEFORE, "proxy, until the request is at the server", (request.arrived_ns, timeline.arrived_ns));
    let after = own(AFTER, "proxy, until the response is at the client", (left_ns, request.ended_ns));
    let spans = [Some(root), before, after].into_iter().flatten().collect();
    let pid = first_thread(timeline).and_then(process_of);
    let process = pid.and_then(|pid| names.name(pid).map(str::to_owned).or_else(|| command_name(pid)));
    let resource = process_resource(process.as_deref().unwrap_or(&server.to_string()), None, pid);
    RequestTrace { parts: vec![(proxy_resource(), spans), (resource, context.cause_spans(timeline, request.ended_ns))] }
}

/// Returns the trace of a request whose time at the server is not known, for the given reason.
fn untraced_request(request: &SlowRequest, epoch_ns: u64, why: &str) -> RequestTrace {
    let names = Names::default();
    let context = context(request, epoch_ns, &names);
    let attributes = Attributes::default().with("sidelane.cause", "not-explained").with("sidelane.description", why);
    let whole = context.child(BEFORE, "not explained", (request.arrived_ns, request.ended_ns), attributes);
    let root = root_span(request, &context, request_attributes(request));
    RequestTrace { parts: vec![(proxy_resource(), vec![root, whole])] }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::Server;
    use sidelane_report::otlp::TraceParent;
    use sidelane_timeline::cause::Cause;
    use sidelane_trace::sample::timeline;

    use super::*;
    use crate::config::SentCopy;
    use crate::http::RequestNumber;

    const S: u64 = 1_000_000_000;
    const PARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn slow_request(ended_ns: u64) -> SlowRequest {
        let copy = SentCopy { server: Server::FIRST, port: 7, arrived_ns: S, sent_ns: S + 5, until_ns: Some(ended_ns) };
        SlowRequest {
            number: RequestNumber { id: 3, mark: 9 },
            arrived_ns: S,
            ended_ns,
            label: Label::from_text(b"GET /a?secret"),
            client: ([127, 0, 0, 1], 40_000).into(),
            parent: TraceParent::parse(PARENT),
            status: Some(200),
            outcome: RequestOutcome::Answered,
            sent: Dispatch::Once,
            copy: Some(copy),
        }
    }

    fn server_timeline() -> Timeline {
        timeline(1, S + 10, &[(Cause::NetworkReceive, 10), (Cause::RunQueue, 70), (Cause::OnCpu, 20)])
    }

    fn traced(ended_ns: u64) -> RequestTrace {
        let server = ([127, 0, 0, 1], 9001).into();
        traced_request(&slow_request(ended_ns), 0, &server_timeline(), &Names::default(), server)
    }

    fn lengths_in_order(trace: &RequestTrace) -> Vec<u64> {
        let mut spans: Vec<&TraceSpan> = trace.parts.iter().flat_map(|(_, spans)| spans).skip(1).collect();
        spans.sort_by_key(|span| span.start_ns);
        assert!(spans.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns), "{spans:?}");
        spans.iter().map(|span| span.end_ns - span.start_ns).collect()
    }

    #[test]
    fn request_continues_the_trace_of_its_client() {
        let trace = traced(S + 150);
        let root = &trace.parts[0].1[0];
        let parent = TraceParent::parse(PARENT).unwrap();
        assert_eq!((root.trace_id, root.parent_span_id), (parent.trace_id, Some(parent.span_id)));
        for span in trace.parts.iter().flat_map(|(_, spans)| spans).skip(1) {
            assert_eq!((span.trace_id, span.parent_span_id), (parent.trace_id, Some(root.span_id)));
        }
        let own = SlowRequest { parent: None, ..slow_request(S + 150) };
        let own = &untraced_request(&own, 0, "why").parts[0].1[0];
        assert!(own.parent_span_id.is_none() && own.trace_id != parent.trace_id);
    }

    #[test]
    fn spans_of_proxy_and_server_sum_to_the_latency() {
        assert_eq!(lengths_in_order(&traced(S + 150)), [10, 10, 70, 20, 40]);
        assert_eq!(lengths_in_order(&traced(S + 100)), [10, 10, 70, 10], "the answer was faster than its record");
        assert_eq!(lengths_in_order(&untraced_request(&slow_request(S + 150), 0, "why")), [150]);
    }

    #[test]
    fn query_and_cut_path_are_left_out() {
        let told = |text: &str| {
            let label = Label::from_text(text.as_bytes());
            let (method, path) = method_and_path(&label);
            (method.to_owned(), path.map(str::to_owned))
        };
        assert_eq!(told("GET /a?secret"), ("GET".to_owned(), Some("/a".to_owned())));
        assert_eq!(told("POST /"), ("POST".to_owned(), Some("/".to_owned())));
        assert_eq!(told(&format!("GET /{}", "x".repeat(100))), ("GET".to_owned(), None));
        assert_eq!(told(&format!("GET /a?{}", "x".repeat(100))), ("GET".to_owned(), Some("/a".to_owned())));
    }
}
