//! Answer of the proxy itself to requests for `/.sidelane/trace/NUMBER`.

use std::io::Write;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::ended::sent_copy;
use super::super::shared::Shared;
use super::super::team::Message;
use crate::http::{RequestNumber, write_error};
use crate::request_table::{CopyState, Record, RequestEnd};

const PATH: &[u8] = b"/.sidelane/trace/";

/// Returns the complete answer to a request for this target. Another thread may know the request.
pub(super) async fn answer_trace_request(shared: &Rc<Shared>, target: &[u8]) -> Vec<u8> {
    let Some(number) = target.strip_prefix(PATH).and_then(RequestNumber::read) else {
        let mut out = Vec::new();
        write_error(
            404,
            "there is no such page; ask for /.sidelane/trace/NUMBER, with the number in the field \
                          Sidelane-Request of an answer",
            &mut out,
        );
        return out;
    };
    let Some(owner) = shared.seat.other_owner(number) else { return describe_request(shared, number) };
    let (sender, answer) = oneshot::channel();
    // Ignore an error: then there is no answer either.
    let _ = shared.seat.team.send(owner, Message::Describe(number, sender));
    answer.await.unwrap_or_else(|_| unknown_request())
}

/// Returns the answer to a request for the number of a request of this thread.
pub(crate) fn describe_request(shared: &Rc<Shared>, number: RequestNumber) -> Vec<u8> {
    let table = shared.table.borrow();
    // Check the secret mark of the number, so that a guessed number is not accepted.
    match table.find(number.id).filter(|_| number == shared.request_number(number.id)) {
        Some(record) => {
            let mut out = Vec::new();
            write_json(&request_history_json(shared, number.id, record), &mut out);
            out
        }
        None => unknown_request(),
    }
}

fn unknown_request() -> Vec<u8> {
    let mut out = Vec::new();
    write_error(404, "no such request; only those in flight and the last 4,096 are kept", &mut out);
    out
}

/// Returns what the proxy knows of a request, as JSON. Times are relative to its arrival.
fn request_history_json(shared: &Rc<Shared>, id: u64, record: &Record) -> Value {
    let since = |at_ns: u64| at_ns.saturating_sub(record.arrived_ns);
    let copies = shared.servers().filter_map(|server| {
        let copy = &record.copies[server.index()];
        (copy.state != CopyState::None).then(|| {
            json!({
                "server": shared.address(server).to_string(),
                "sent_ns": since(copy.at_ns),
                "why": copy.why.map(|why| why.to_string()),
                "state": copy.state,
                "port": copy.port,
                "at_server": sent_copy(record, server, record.ended.map(|(_, at_ns)| at_ns)).map(|asked| (shared.seat.team.trace_lookup)(&asked)),
            })
        })
    });
    json!({
        "id": id,
        "request": record.label.text(),
        "safe_to_repeat": record.is_repeatable,
        "arrived_at_ns": record.arrived_ns,
        "copies": copies.collect::<Vec<_>>(),
        "answered_by": record.answered.map(|(by, _)| shared.address(by).to_string()),
        "answered_ns": record.answered.map(|(_, at)| since(at)),
        "ended": record.ended.map(|(end, _)| describe_end(end)),
        "ended_ns": record.ended.map(|(_, at)| since(at)),
    })
}

fn describe_end(end: RequestEnd) -> String {
    match end {
        RequestEnd::Answered => "answered".to_owned(),
        RequestEnd::Failed(status) => format!("failed with {status}"),
        RequestEnd::Cut => "the answer broke off".to_owned(),
        RequestEnd::ClientLeft => "the client went away".to_owned(),
    }
}

fn write_json(value: &Value, out: &mut Vec<u8>) {
    let body = value.to_string();
    let head = "Content-Type: application/json\r\nConnection: close\r\n";
    // Ignore the result: writing to memory cannot fail.
    let _ = write!(out, "HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}\n", body.len() + 1);
}
