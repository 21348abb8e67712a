//! Ends of requests: the request table is told, and the access log has an entry for each.

use std::cell::RefCell;
use std::net::SocketAddr;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;

use super::shared::{Shared, now};
use crate::access::{Asked, Entry, Outcome, Sender, Sent, Winner};
use crate::http::Number;
use crate::request_table::{End, Label, Record, RequestId};

/// What the request table knew of a request at its end.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    arrived_ns: Nanos,
    duration_ns: Nanos,
    first_byte_ns: Option<Nanos>,
    server: Option<Server>,
    outcome: Outcome,
    sent: Sent,
    winner: Winner,
    label: Label,
}

/// What the client's task knows of it.
pub(super) struct Facts<'a> {
    pub(super) client: SocketAddr,
    pub(super) status: Option<u16>,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) body_bytes: u64,
    pub(super) number: Option<Number>,
    pub(super) asked: Asked<'a>,
}

impl Ended {
    fn of(record: &Record, end: End, at_ns: Nanos) -> Self {
        let since_arrival = |at_ns: Nanos| at_ns.saturating_sub(record.arrived_ns);
        Self {
            arrived_ns: record.arrived_ns,
            duration_ns: since_arrival(at_ns),
            first_byte_ns: record.answered.map(|(_, at_ns)| since_arrival(at_ns)),
            server: record.answered.map(|(by, _)| by),
            outcome: end.into(),
            sent: Sent::of(record),
            winner: Winner::of(record),
            label: record.label,
        }
    }

    /// A request that no server got, or that the request table does not count.
    pub(super) fn apart(outcome: Outcome, arrived_ns: Nanos, server: Option<Server>) -> Self {
        let sent = if server.is_some() { Sent::Once } else { Sent::Never };
        Self {
            arrived_ns,
            duration_ns: now().saturating_sub(arrived_ns),
            first_byte_ns: None,
            server,
            outcome,
            sent,
            winner: Winner::None,
            label: Label::of(b""),
        }
    }

    /// The begin of the request, as the request table knew it.
    pub(super) fn label(&self) -> &[u8] {
        self.label.bytes()
    }
}

impl Shared {
    /// Whether there is an access log.
    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// The request is over. Returns what the access log is to be told, if there is one, and the request had not ended before.
    pub(super) fn finish(&self, request_id: RequestId, end: End) -> Option<Ended> {
        let (at_ns, mut table) = (now(), self.table.borrow_mut());
        let record = table.record(request_id).filter(|_| self.has_log());
        let ended = record.map(|record| Ended::of(record, end, at_ns));
        table.finished(at_ns, request_id, end);
        ended
    }

    /// What the access log is told of a request that the end of the proxy cuts off.
    pub(super) fn cut_off(&self, request_id: RequestId) -> Option<Ended> {
        // A panic may have come in the middle of anything.
        let table = self.table.try_borrow().ok()?;
        Some(Ended::of(table.record(request_id)?, End::Cut, now()))
    }

    /// Tells the access log of a request.
    pub(super) fn log(&self, ended: &Ended, facts: Facts<'_>) {
        let Some(log) = &self.log else { return };
        let Facts { client, status, received_bytes, sent_bytes, body_bytes, number, asked } = facts;
        let Ended { arrived_ns, duration_ns, first_byte_ns, server, outcome, sent, winner, .. } = *ended;
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

    /// Entries of the access log that are lost so far.
    pub(super) fn log_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, |log: &RefCell<Sender>| log.borrow().lost())
    }
}
