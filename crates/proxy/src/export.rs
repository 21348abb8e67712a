//! Slow requests on their way from the serving thread to the thread that exports them as OpenTelemetry traces.
//!
//! The serving thread never waits: a request for which the queue has no room is counted, and not exported.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::Serialize;
use sidelane_policy::Nanos;
use sidelane_report::otlp::TraceParent;

use crate::access::{Dispatch, RequestOutcome};
use crate::config::SentCopy;
use crate::http::RequestNumber;
use crate::request_table::Label;

/// Maximum number of requests in the queue.
const QUEUE_MAX: usize = 1024;

/// Slow request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct SlowRequest {
    /// Number with which the client can request details of the request.
    pub number: RequestNumber,
    /// Time at which the head of the request was complete.
    pub arrived_ns: Nanos,
    /// Time at which the request ended.
    pub ended_ns: Nanos,
    /// Beginning of the first line of the request.
    pub label: Label,
    /// Client of the proxy.
    pub client: SocketAddr,
    /// Span of the client that sent the request, from its field `traceparent`; `None` without a valid field.
    pub parent: Option<TraceParent>,
    /// HTTP status of the answer; `None` without an answer.
    pub status: Option<u16>,
    /// Outcome of the request.
    pub outcome: RequestOutcome,
    /// Servers to which the request was sent.
    pub sent: Dispatch,
    /// Copy that was answered, or else the first copy; `None` if that copy had no connection.
    pub copy: Option<SentCopy>,
}

impl SlowRequest {
    /// Returns the time from the arrival to the end of the request.
    pub fn duration_ns(&self) -> Nanos {
        self.ended_ns.saturating_sub(self.arrived_ns)
    }
}

/// Numbers of slow requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportCounts {
    /// Number of requests that were exported.
    pub exported: u64,
    /// Number of requests that were not exported, because the destination did not take them, or not fast enough.
    pub not_exported: u64,
}

#[derive(Debug, Default)]
struct SharedCounts {
    exported: AtomicU64,
    not_exported: AtomicU64,
}

/// Counter of slow requests, for several threads.
#[derive(Clone, Debug, Default)]
pub struct ExportCounter(Arc<SharedCounts>);

impl ExportCounter {
    /// Counts requests that were exported, and requests that were not.
    pub fn add(&self, exported: u64, not_exported: u64) {
        self.0.exported.fetch_add(exported, Ordering::Relaxed);
        self.0.not_exported.fetch_add(not_exported, Ordering::Relaxed);
    }

    /// Returns the numbers so far.
    pub fn counts(&self) -> ExportCounts {
        ExportCounts {
            exported: self.0.exported.load(Ordering::Relaxed),
            not_exported: self.0.not_exported.load(Ordering::Relaxed),
        }
    }
}

/// End of the queue at the serving threads.
#[derive(Clone, Debug)]
pub struct ExportSender {
    limit_ns: Nanos,
    queue: SyncSender<SlowRequest>,
    counter: ExportCounter,
}

/// Creates a queue for requests that take longer than `limit_ns`.
pub fn export_queue(limit_ns: Nanos) -> (ExportSender, Receiver<SlowRequest>, ExportCounter) {
    let (queue, receiver) = sync_channel(QUEUE_MAX);
    let counter = ExportCounter::default();
    (ExportSender { limit_ns, queue, counter: counter.clone() }, receiver, counter)
}

impl ExportSender {
    /// Puts a request into the queue if it was slow.
    pub fn send_if_slow(&self, request: SlowRequest) {
        if request.duration_ns() > self.limit_ns && self.queue.try_send(request).is_err() {
            self.counter.add(0, 1);
        }
    }

    /// Returns the numbers of slow requests so far.
    pub fn counts(&self) -> ExportCounts {
        self.counter.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(duration_ns: Nanos) -> SlowRequest {
        SlowRequest {
            number: RequestNumber { id: duration_ns, mark: 1 },
            arrived_ns: 10,
            ended_ns: 10 + duration_ns,
            label: Label::from_text(b"GET /"),
            client: ([127, 0, 0, 1], 1).into(),
            parent: None,
            status: Some(200),
            outcome: RequestOutcome::Answered,
            sent: Dispatch::Once,
            copy: None,
        }
    }

    #[test]
    fn slow_requests_wait_and_those_beyond_are_counted() {
        let (sender, receiver, counter) = export_queue(100);
        (90..=101).for_each(|duration_ns| sender.send_if_slow(request(duration_ns)));
        assert_eq!(receiver.try_iter().map(|request| request.number.id).collect::<Vec<_>>(), [101]);
        (0..QUEUE_MAX as u64 + 7).for_each(|_| sender.send_if_slow(request(200)));
        assert_eq!(counter.counts(), ExportCounts { exported: 0, not_exported: 7 });
        assert_eq!(receiver.try_iter().count(), QUEUE_MAX);
        drop(receiver);
        sender.send_if_slow(request(200));
        assert_eq!(sender.counts().not_exported, 8, "a queue that is not read any more has no room");
    }
}
