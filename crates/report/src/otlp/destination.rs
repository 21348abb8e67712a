//! Destination of exported traces: a collector, or a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{error, fmt};

use super::http::{Answer, Collector};
use super::{Message, RequestTrace, messages};
use crate::whole_file::{NoDirectory, check_directory_exists};

/// Maximum time of one export, until it begins its last message.
const SEND_TIME: Duration = Duration::from_secs(20);

/// Destination of exported traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Collector that takes OTLP over HTTP.
    Collector(Collector),
    /// File to which a line is appended for each message, as the collector's receiver for files reads it.
    File(PathBuf),
}

/// Error in the text of a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The text has another scheme than `http`.
    #[error(
        "`{0}` cannot be reached: only http is supported; write http://HOST:4318 of a collector on this machine or in \
         this network, or the path of a file"
    )]
    Scheme(String),
    /// The text is no complete address of a collector.
    #[error("`{0}` is not the address of a collector; write http://HOST:PORT, as in http://127.0.0.1:4318")]
    Address(String),
    /// The text is empty.
    #[error("the text is empty; write http://HOST:4318 of a collector, or the path of a file")]
    Empty,
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let wrong = || DestinationError::Address(text.to_owned());
        match text.split_once("://") {
            Some(("http", rest)) => Collector::parse(rest).map(Self::Collector).ok_or_else(wrong),
            Some(_) => Err(DestinationError::Scheme(text.to_owned())),
            None if text.is_empty() => Err(DestinationError::Empty),
            // A forgotten `http://` would otherwise make a file of this name.
            None if looks_like_address(text) => Err(wrong()),
            None => Ok(Self::File(text.into())),
        }
    }
}

fn looks_like_address(text: &str) -> bool {
    let is_local = text.strip_prefix("localhost:").is_some_and(|port| port.parse::<u16>().is_ok());
    is_local || text.parse::<SocketAddr>().is_ok()
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collector(collector) => collector.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Numbers of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of traces that were sent completely.
    pub traces: u64,
    /// Number of spans that the collector rejected.
    pub rejected_spans: u64,
    /// Reason that the collector gave for the last rejection; empty for none.
    pub why_rejected: String,
}

/// Error of an export. Traces before it may have been sent.
#[derive(Debug)]
pub struct SendError {
    /// Numbers of what was sent before the error.
    pub sent: Sent,
    /// Number of traces that were not sent.
    pub missing: u64,
    destination: String,
    reason: String,
    what_to_do: &'static str,
}

impl error::Error for SendError {}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, missing, destination, reason, what_to_do } = self;
        let all = sent.traces + missing;
        write!(f, "cannot send {missing} of {all} traces to {destination}: {reason}; {what_to_do}")
    }
}

impl Destination {
    /// Checks before a run that traces can probably be written.
    pub fn check(&self) -> Result<(), NoDirectory> {
        match self {
            Self::Collector(_) => Ok(()),
            Self::File(path) => check_directory_exists(path),
        }
    }

    /// Sends all spans of these traces, and waits for the collector's answers. The first failure ends the export, and so
    /// does a collector that needs more than 20 s in all.
    pub fn send(&self, traces: &[RequestTrace]) -> Result<Sent, SendError> {
        let (mut sent, began) = (Sent::default(), Instant::now());
        for (message, completed) in messages(traces) {
            let outcome = match began.elapsed() < SEND_TIME {
                true => self.send_message(&message),
                false => Err(format!("it took more than {SEND_TIME:?}")),
            };
            match outcome {
                Ok((rejected_spans, why)) => {
                    sent.traces += completed;
                    sent.rejected_spans += rejected_spans;
                    sent.why_rejected = if rejected_spans > 0 { why } else { sent.why_rejected };
                }
                Err(reason) => {
                    let (missing, destination) = (traces.len() as u64 - sent.traces, self.to_string());
                    return Err(SendError { sent, missing, destination, reason, what_to_do: self.what_to_do() });
                }
            }
        }
        Ok(sent)
    }

    /// Returns what to do if an export fails.
    fn what_to_do(&self) -> &'static str {
        match self {
            Self::Collector(_) => "check that a collector takes OTLP over HTTP there, or name a file",
            Self::File(_) => "free some space, or name another file",
        }
    }

    /// Sends one message. Returns the number of spans that the collector rejected, and why.
    fn send_message(&self, message: &Message) -> Result<(u64, String), String> {
        match self {
            Self::Collector(collector) => {
                collector.post(&message.to_json()).map_err(|error| error.to_string()).and_then(read_answer)
            }
            Self::File(path) => {
                append_line(path, message.to_json()).map_err(|error| error.to_string()).map(|()| Default::default())
            }
        }
    }
}

/// Appends a line in one write, so that a reader of the file sees whole lines.
fn append_line(path: &Path, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    OpenOptions::new().append(true).create(true).open(path)?.write_all(&line)
}

/// Returns from a collector's answer how many spans it rejected, and why; or why it took no spans at all.
fn read_answer(Answer { status, body }: Answer) -> Result<(u64, String), String> {
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    if status / 100 != 2 {
        let why = json["message"].as_str().map_or(String::new(), |message| format!(" ({message})"));
        return Err(format!("it answered with status {status}{why}"));
    }
    let partial = &json["partialSuccess"];
    let rejected = &partial["rejectedSpans"];
    let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
    Ok((rejected, partial["errorMessage"].as_str().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::{Attributes, SpanId, SpanKind, Status, TraceId, TraceSpan};
    use super::*;

    fn trace(number: u64) -> RequestTrace {
        let trace_id = TraceId::derive(&[number]);
        let span = TraceSpan {
            trace_id,
            span_id: SpanId::derive(trace_id, &[]),
            parent_span_id: None,
            name: "request".to_owned(),
            kind: SpanKind::Server,
            start_ns: 1,
            end_ns: 2,
            attributes: Attributes::default(),
            status: Status::default(),
        };
        RequestTrace { parts: vec![(Attributes::default(), vec![span])] }
    }

    #[test]
    fn destination_is_a_collector_or_a_file() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("http://[::1]:80/otlp", "http://[::1]:80/otlp/v1/traces"),
            ("http://c:1/v1/traces", "http://c:1/v1/traces"),
            ("traces.jsonl", "traces.jsonl"),
            ("/var/tmp/a:b", "/var/tmp/a:b"),
        ] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), shown);
        }
        let refused = |text: &str| text.parse::<Destination>().unwrap_err().to_string();
        for text in ["https://c:4318", "grpc://c:4317"] {
            assert!(refused(text).contains("only http is supported"), "{text}");
        }
        let incomplete =
            ["http://", "http://c", "http://c:", "http://c:0", "http://:1", "http://a b:1", "http://u@c:1"];
        for text in incomplete.into_iter().chain(["http://c:1/?q", "127.0.0.1:4318", "localhost:4318", "http://::1:1"])
        {
            assert!(refused(text).contains("as in http://127.0.0.1:4318"), "{text}");
        }
        assert!(refused("").contains("empty"));
    }

    #[test]
    fn file_gets_a_line_for_each_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("traces.jsonl");
        let file = Destination::File(path.clone());
        assert_eq!(file.send(&[trace(1), trace(2)]).unwrap().traces, 2);
        assert_eq!(file.send(&[]).unwrap(), Sent::default());
        assert_eq!(file.send(&[trace(3)]).unwrap().traces, 1);
        let lines = std::fs::read_to_string(&path).unwrap();
        let spans: Vec<usize> = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| line["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len())
            .collect();
        assert_eq!(spans, [2, 1]);
        let error = Destination::File("/nowhere/at/all".into()).send(&[trace(1)]).unwrap_err();
        assert!(error.to_string().starts_with("cannot send 1 of 1 traces to /nowhere/at/all: No such file"), "{error}");
    }

    #[test]
    fn rejected_spans_and_refusals_are_read_from_the_answer() {
        let answer = |status, body: &str| read_answer(Answer { status, body: body.as_bytes().to_vec() });
        assert_eq!(answer(200, "{}"), Ok((0, String::new())));
        assert_eq!(answer(200, "no JSON"), Ok((0, String::new())));
        let partial = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        assert_eq!(answer(200, partial), Ok((3, "too old".to_owned())));
        assert_eq!(answer(404, ""), Err("it answered with status 404".to_owned()));
        let full = r#"{"code":8,"message":"queue is full"}"#;
        assert_eq!(answer(503, full), Err("it answered with status 503 (queue is full)".to_owned()));
    }
}
