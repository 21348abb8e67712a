//! End of a request: it updates the request table, writes the entry of the access log, and exports slow requests.

use std::cell::RefCell;
use std::net::SocketAddr;

use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;
use sidelane_report::otlp::TraceParent;

use super::shared::Shared;
use crate::access::{ClientRequest, Dispatch, Entry, RequestOutcome, Sender, Winner};
use crate::config::SentCopy;
use crate::export::{ExportCounts, ExportSender, SlowRequest};
use crate::http::RequestNumber;
use crate::request_table::{Label, Record, RequestEnd, RequestId};

/// Data from the request table about a request at its end.
#[derive(Clone, Copy)]
pub(super) struct EndedRequest {
    arrived_ns: Nanos,
    duration_ns: Nanos,
    first_byte_ns: Option<Nanos>,
    server: Option<Server>,
    outcome: RequestOutcome,
    sent: Dispatch,
    winner: Winner,
    label: Label,
    copy: Option<SentCopy>,
}

/// Data about a request that the client's task has, and that the request table lacks.
pub(super) struct ClientFacts<'a> {
    pub(super) client: SocketAddr,
    pub(super) status: Option<u16>,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) body_bytes: u64,
    pub(super) number: Option<RequestNumber>,
    pub(super) asked: ClientRequest<'a>,
}

/// Returns the copy of a request at this server; `None` if the copy had no connection. `ended_ns` is the end of the
/// request, if it has ended.
pub(super) fn sent_copy(record: &Record, server: Server, ended_ns: Option<Nanos>) -> Option<SentCopy> {
    let copy = &record.copies[server.index()];
    let answered = record.answered.filter(|(by, _)| *by == server).map(|(_, at_ns)| at_ns);
    Some(SentCopy {
        server,
        port: copy.port?,
        arrived_ns: record.arrived_ns,
        sent_ns: copy.at_ns,
        until_ns: answered.or(ended_ns),
    })
}

impl EndedRequest {
    fn from_record(record: &Record, end: RequestEnd, ended_ns: Nanos) -> Self {
        let since_arrival = |at_ns: Nanos| at_ns.saturating_sub(record.arrived_ns);
        Self {
            arrived_ns: record.arrived_ns,
            duration_ns: since_arrival(ended_ns),
            first_byte_ns: record.answered.map(|(_, at_ns)| since_arrival(at_ns)),
            server: record.answered.map(|(by, _)| by),
            outcome: end.into(),
            sent: Dispatch::from_record(record),
            winner: Winner::from_record(record),
            label: record.label,
            copy: sent_copy(record, record.answered.map_or(record.first_server(), |(by, _)| by), Some(ended_ns)),
        }
    }

    /// Creates the data of a request that reached no server, or that the request table does not count.
    pub(super) fn without_record(outcome: RequestOutcome, arrived_ns: Nanos, server: Option<Server>) -> Self {
        let sent = if server.is_some() { Dispatch::Once } else { Dispatch::Never };
        Self {
            arrived_ns,
            duration_ns: now_ns().saturating_sub(arrived_ns),
            first_byte_ns: None,
            server,
            outcome,
            sent,
            winner: Winner::None,
            label: Label::from_text(b""),
            copy: None,
        }
    }

    /// Returns the beginning of the request's first line, as the request table stores it.
    pub(super) fn label(&self) -> &[u8] {
        self.label.bytes()
    }
}

impl Shared {
    /// Returns whether the proxy writes an access log.
    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Ends a request in the table. Returns its data for the access log and the export; `None` without both, or if the
    /// request had ended before.
    pub(super) fn finish(&self, request_id: RequestId, end: RequestEnd) -> Option<EndedRequest> {
        let (at_ns, mut table) = (now_ns(), self.table.borrow_mut());
        let record = table.find_in_flight(request_id).filter(|_| self.has_log() || self.exports.is_some());
        let ended = record.map(|record| EndedRequest::from_record(record, end, at_ns));
        table.finish_request(at_ns, request_id, end);
        ended
    }

    /// Returns the log data of a request that is cut off by the end of the proxy.
    pub(super) fn cut_off_request(&self, request_id: RequestId) -> Option<EndedRequest> {
        // A panic may have left the table borrowed.
        let table = self.table.try_borrow().ok()?;
        Some(EndedRequest::from_record(table.find_in_flight(request_id)?, RequestEnd::Cut, now_ns()))
    }

    /// Exports a request if it was slow. `number`, `client`, `status` and `parent` are as in [`SlowRequest`].
    pub(super) fn export_if_slow(
        &self,
        ended: &EndedRequest,
        (number, client, status, parent): (RequestNumber, SocketAddr, Option<u16>, Option<TraceParent>),
    ) {
        let Some(exports) = &self.exports else { return };
        let EndedRequest { arrived_ns, duration_ns, outcome, sent, label, copy, .. } = *ended;
        let ended_ns = arrived_ns + duration_ns;
        exports.send_if_slow(SlowRequest {
            number,
            arrived_ns,
            ended_ns,
            label,
            client,
            parent,
            status,
            outcome,
            sent,
            copy,
        });
    }

    /// Returns the numbers of slow requests since the start, of all threads. The first thread alone has them.
    pub(super) fn export_counts(&self) -> ExportCounts {
        self.exports.as_ref().filter(|_| self.seat.is_first()).map_or(ExportCounts::default(), ExportSender::counts)
    }

    /// Sends the entry of a request to the access log.
    pub(super) fn log_request(&self, ended: &EndedRequest, facts: ClientFacts<'_>) {
        let Some(log) = &self.log else { return };
        let ClientFacts { client, status, received_bytes, sent_bytes, body_bytes, number, asked } = facts;
        let EndedRequest { arrived_ns, duration_ns, first_byte_ns, server, outcome, sent, winner, .. } = *ended;
        log.borrow_mut().send(&Entry {
            arrived_ns,
            duration_ns,
            first_byte_ns,
            client,
            server,
            outcome,
            sent,
            winner,
            status,
            received_bytes,
            sent_bytes,
            body_bytes,
            number,
            asked,
        });
    }

    /// Returns the number of lost entries of the access log since the start.
    pub(super) fn log_lines_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, |log: &RefCell<Sender>| log.borrow().lost_entries())
    }
}
