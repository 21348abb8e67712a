//! Collection of data about the requests of one client, one request after the other, for access log and export.

use std::net::SocketAddr;
use std::rc::Rc;

use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_report::otlp::TraceParent;

use super::super::ended::{ClientFacts, EndedRequest};
use super::super::shared::Shared;
use crate::access::{ClientRequest, FIELD_MAX, REQUEST_MAX, RequestOutcome, Text};
use crate::http::RequestNumber;
use crate::request_table::{RequestEnd, RequestId};

/// Data for the access log about the present request of a client. Each request gets one entry. A request in flight at
/// the end of the proxy is logged as cut.
pub(super) struct Journal {
    shared: Rc<Shared>,
    client: SocketAddr,
    stage: RequestStage,
    /// Request line, Referer and User-Agent, one after the other.
    texts: Vec<u8>,
    /// Lengths of the three texts: bytes in `texts`, and bytes that were omitted.
    lengths: [(usize, u32); 3],
    received: u64,
    sent: u64,
    /// Number of bytes written to the client before the body of the answer.
    head_sent: u64,
    status: Option<u16>,
    /// Span of the client that sent the request; `None` if unknown.
    parent: Option<TraceParent>,
}

/// Stage of the present request.
enum RequestStage {
    /// No byte of a request has arrived.
    Idle,
    /// The request has been arriving since the given time, and is not in the request table yet.
    Arriving(Nanos),
    /// The request is in the request table.
    InFlight(RequestId),
}

impl Journal {
    pub(super) fn new(shared: Rc<Shared>, client: SocketAddr) -> Self {
        Self {
            shared,
            client: SocketAddr::new(client.ip().to_canonical(), client.port()),
            stage: RequestStage::Idle,
            texts: Vec::new(),
            lengths: [(0, 0); 3],
            received: 0,
            sent: 0,
            head_sent: 0,
            status: None,
            parent: None,
        }
    }

    /// Records that a part of a request has arrived.
    pub(super) fn record_arrival(&mut self) {
        if self.shared.has_log() && matches!(self.stage, RequestStage::Idle) {
            self.stage = RequestStage::Arriving(now_ns());
        }
    }

    /// Records the head of a request. It may be incomplete if the rest will never arrive.
    pub(super) fn record_head(&mut self, head: &[u8]) {
        self.received += head.len() as u64;
        if self.shared.has_log() {
            let [line, fields @ ..] = extract_head_texts(head);
            let texts =
                [Text::cut(line, REQUEST_MAX), Text::cut(fields[0], FIELD_MAX), Text::cut(fields[1], FIELD_MAX)];
            self.texts.clear();
            texts.iter().for_each(|text| self.texts.extend_from_slice(text.bytes));
            self.lengths = texts.map(|text| (text.bytes.len(), text.omitted));
        }
    }

    /// Records the span of the client that sent the request.
    pub(super) fn record_parent(&mut self, parent: Option<TraceParent>) {
        self.parent = parent;
    }

    /// Returns the buffer of the texts. Its content is not needed between two requests, so the caller may free its
    /// memory.
    pub(super) fn texts_mut(&mut self) -> &mut Vec<u8> {
        &mut self.texts
    }

    /// Returns whether the head of the request was recorded.
    pub(super) fn has_recorded_head(&self) -> bool {
        self.received > 0
    }

    /// Counts received bytes of the body.
    pub(super) fn add_received_bytes(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    /// Records that the request is in the request table from now on.
    pub(super) fn record_admission(&mut self, request_id: RequestId) {
        self.stage = RequestStage::InFlight(request_id);
    }

    /// Counts bytes that were written to the client.
    pub(super) fn add_sent_bytes(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Records the status of the final answer, and the number of bytes of its head that are still to be written.
    pub(super) fn record_answer(&mut self, status: u16, head_bytes: usize) {
        self.status = Some(status);
        self.head_sent = self.sent + head_bytes as u64;
    }

    /// Records an answer of the proxy itself.
    pub(super) fn record_own_answer(&mut self, answer: &[u8]) {
        let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        self.record_answer(status.unwrap_or(0), head);
    }

    /// Ends the request in the request table, writes its log entry, and exports it if it was slow. Does nothing if the request has ended before.
    pub(super) fn finish(&mut self, request_id: RequestId, end: RequestEnd) {
        if let Some(ended) = self.shared.finish(request_id, end) {
            let number = self.shared.request_number(request_id.number);
            self.shared.export_if_slow(&ended, (number, self.client, self.status, self.parent));
            self.log_request(&ended, Some(number));
        }
        self.reset();
    }

    /// Writes the log entry of a request that is not in the request table.
    pub(super) fn finish_untracked(&mut self, outcome: RequestOutcome) {
        if self.shared.has_log() {
            let arrived_ns = if let RequestStage::Arriving(since) = self.stage { since } else { now_ns() };
            self.log_request(&EndedRequest::without_record(outcome, arrived_ns, None), None);
        }
        self.reset();
    }

    fn reset(&mut self) {
        self.stage = RequestStage::Idle;
        (self.received, self.sent, self.head_sent, self.status, self.parent) = (0, 0, 0, None, None);
        self.lengths = [(0, 0); 3];
    }

    fn log_request(&self, ended: &EndedRequest, number: Option<RequestNumber>) {
        let mut rest = &self.texts[..];
        let [line, referer, agent] = self.lengths.map(|(bytes, omitted)| {
            let (bytes, others) = rest.split_at(bytes);
            rest = others;
            Text { bytes, omitted }
        });
        let facts = ClientFacts {
            client: self.client,
            status: self.status,
            received_bytes: self.received,
            sent_bytes: self.sent,
            body_bytes: self.sent.saturating_sub(self.head_sent),
            number,
            asked: ClientRequest::Http { line, referer, agent },
        };
        self.shared.log_request(ended, facts);
    }
}

impl Drop for Journal {
    /// Logs a request that is unfinished when the client's task ends. Either the client has reset the connection before
    /// the head was complete, or the proxy ends.
    fn drop(&mut self) {
        match self.stage {
            RequestStage::Idle => {}
            RequestStage::Arriving(since) => {
                self.log_request(&EndedRequest::without_record(RequestOutcome::Abandoned, since, None), None)
            }
            RequestStage::InFlight(request_id) => {
                if let Some(ended) = self.shared.cut_off_request(request_id).filter(|_| self.shared.has_log()) {
                    self.log_request(&ended, Some(self.shared.request_number(request_id.number)));
                }
            }
        }
    }
}

/// Returns the first line of a head, and the values of Referer and User-Agent, which may be empty. The head may be
/// malformed.
fn extract_head_texts(head: &[u8]) -> [&[u8]; 3] {
    let mut lines = head.trim_ascii_start().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut texts = [lines.next().unwrap_or_default(), &[], &[]];
    for line in lines {
        for (at, name) in [(1, &b"referer:"[..]), (2, b"user-agent:")] {
            if line.len() >= name.len() && line[..name.len()].eq_ignore_ascii_case(name) {
                texts[at] = line[name.len()..].trim_ascii_start();
            }
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referer_and_agent_are_found_in_any_letter_case() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: h\r\nUSER-AGENT:  a b \r\nReferer:http://c\r\nx-referer: no\r\n\r\n";
        assert_eq!(extract_head_texts(head), [&b"GET / HTTP/1.1"[..], b"http://c", b"a b"]);
        assert_eq!(extract_head_texts(b"GET / HTTP/1.1"), [&b"GET / HTTP/1.1"[..], b"", b""]);
        assert_eq!(extract_head_texts(b"\r\n"), [&b""[..], b"", b""]);
    }
}
