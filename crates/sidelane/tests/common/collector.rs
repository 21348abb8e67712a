//! A receiver of OTLP over HTTP, and checks of the traces that it gets.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use super::scripted::{read_until, start_server};

/// Receiver of OTLP over HTTP in this process.
pub struct Collector {
    pub url: String,
    messages: Receiver<Value>,
}

/// Spans of a trace, by the id of the trace.
pub type Traces = BTreeMap<String, Vec<Value>>;

impl Collector {
    pub fn start() -> Self {
        let (sender, messages) = channel();
        let address = start_server(move |mut stream| {
            // A message counts as sent when it is answered, so the test has it by then.
            let _ = sender.send(read_message(&mut stream));
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
        });
        Self { url: format!("http://{address}"), messages }
    }

    /// Returns the traces that have arrived since the last call.
    pub fn take_traces(&self) -> Traces {
        let mut traces = Traces::new();
        self.messages.try_iter().for_each(|message| add_spans(&message, &mut traces));
        traces
    }
}

fn read_message(stream: &mut TcpStream) -> Value {
    let head = read_until(stream, "\r\n\r\n");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).expect("JSON")
}

fn add_spans(message: &Value, traces: &mut Traces) {
    for of_resource in message["resourceSpans"].as_array().expect("a list") {
        for span in of_resource["scopeSpans"][0]["spans"].as_array().expect("a list") {
            traces.entry(span["traceId"].as_str().unwrap().to_owned()).or_default().push(span.clone());
        }
    }
}

/// Returns the traces in a file of OTLP's JSON, a message in each line.
pub fn traces_in_lines(lines: &str) -> Traces {
    let mut traces = Traces::new();
    lines.lines().for_each(|line| add_spans(&serde_json::from_str(line).unwrap(), &mut traces));
    traces
}

fn time_ns(span: &Value, key: &str) -> u64 {
    span[key].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{key}: {span}"))
}

pub fn length_ns(span: &Value) -> u64 {
    time_ns(span, "endTimeUnixNano") - time_ns(span, "startTimeUnixNano")
}

/// Returns the root of a trace. All other spans lie end to end below it, and sum to its length.
pub fn root_of_whole_trace(spans: &[Value]) -> &Value {
    let (roots, mut others): (Vec<&Value>, Vec<&Value>) = spans.iter().partition(|span| span["kind"] == 2);
    let [root] = roots[..] else { panic!("one root: {spans:#?}") };
    others.sort_by_key(|span| (time_ns(span, "startTimeUnixNano"), time_ns(span, "endTimeUnixNano")));
    let mut end_ns = time_ns(root, "startTimeUnixNano");
    for span in &others {
        assert_eq!(
            (&span["parentSpanId"], time_ns(span, "startTimeUnixNano")),
            (&root["spanId"], end_ns),
            "{spans:#?}"
        );
        end_ns = time_ns(span, "endTimeUnixNano");
    }
    assert_eq!(end_ns, time_ns(root, "endTimeUnixNano"));
    assert_eq!(others.iter().map(|span| length_ns(span)).sum::<u64>(), length_ns(root));
    root
}
