//! Log file of requests, with one JSON object in each line.

use std::io::{self, Write};

use serde_json::json;

use super::records::Request;

/// Writes one request as a line of JSON.
pub(super) fn write_request(out: &mut impl Write, request: &Request) -> io::Result<()> {
    let line = json!({
        "number": request.number,
        "connection": request.connection,
        "arrived_ns": request.arrived_ns,
        "started_ns": request.started_ns,
        "finished_ns": request.finished_ns,
        "tid": request.tid,
        "lane": request.lane,
        "waited": request.waited,
        "queue_len": request.queue_len,
        "sends": request.sends,
        "co_run_ns": request.co_run_ns,
    });
    writeln!(out, "{line}")
}
