//! Traces in the format of OpenTelemetry: OTLP, encoded as JSON.
//!
//! Only the parts of the schema that Sidelane fills are here. A collector's OTLP/HTTP receiver takes the same JSON as
//! its receiver for files, so one encoding serves both, without protobuf.

mod destination;
mod http;
mod ids;
mod traceparent;

use serde::{Serialize, Serializer};

pub use destination::{Destination, DestinationError, SendError, Sent};
pub use ids::{SpanId, TraceId};
pub use traceparent::TraceParent;

/// Maximum number of spans in one message. The collector's receiver for files takes lines of at most 1 MiB, and a span
/// needs up to 1 KiB.
const SPANS_MAX: usize = 500;

/// Name of the instrumentation scope of all spans.
const SCOPE: &str = "sidelane";

/// Request as a trace: its spans, by the resource to which they belong.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTrace {
    /// Resources with their spans. The first span of the first resource is the root.
    pub parts: Vec<(Attributes, Vec<TraceSpan>)>,
}

/// Attributes of a resource or span, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Attributes(Vec<Attribute>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Attribute {
    key: &'static str,
    value: Value,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// A text.
    StringValue(String),
    /// A whole number, which JSON carries as a text.
    IntValue(String),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::StringValue(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::StringValue(text.to_owned())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::IntValue(number.to_string())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::IntValue(number.to_string())
    }
}

impl Attributes {
    /// Adds an attribute.
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.0.push(Attribute { key, value: value.into() });
        self
    }

    /// Adds an attribute if its value is known.
    pub fn with_known(self, key: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }
}

/// Kind of a span, by its number in OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SpanKind {
    /// Work or a wait inside a process.
    Internal = 1,
    /// A request as the process that serves it sees it.
    Server = 2,
    /// A request to another process, as its sender sees it.
    Client = 3,
}

impl Serialize for SpanKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

/// Part of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceSpan {
    /// Id of the trace.
    #[serde(rename = "traceId")]
    pub trace_id: TraceId,
    /// Id of this span.
    #[serde(rename = "spanId")]
    pub span_id: SpanId,
    /// Id of the span to which this one belongs; `None` for the root of a trace.
    #[serde(rename = "parentSpanId", skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// Name, which is the same for all spans of the same sort.
    pub name: String,
    /// Kind of the span.
    pub kind: SpanKind,
    /// Begin, in nanoseconds of Unix time.
    #[serde(rename = "startTimeUnixNano", serialize_with = "as_text")]
    pub start_ns: u64,
    /// End, in nanoseconds of Unix time.
    #[serde(rename = "endTimeUnixNano", serialize_with = "as_text")]
    pub end_ns: u64,
    /// Attributes of the span.
    pub attributes: Attributes,
    /// Outcome of the span.
    pub status: Status,
}

/// Outcome of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Number of the outcome; 0: not set.
    #[serde(skip_serializing_if = "is_unset")]
    code: u8,
}

impl Status {
    /// Outcome of a request that failed.
    pub const ERROR: Self = Self { code: 2 };
}

fn is_unset(code: &u8) -> bool {
    *code == 0
}

/// Writes a 64-bit number as a text, since many readers of JSON have no such numbers.
fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// One message: the body of a request to a collector, or one line of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Message {
    #[serde(rename = "resourceSpans")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ResourceSpans {
    resource: Resource,
    #[serde(rename = "scopeSpans")]
    scope_spans: [ScopeSpans; 1],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Resource {
    attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<TraceSpan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

impl Message {
    /// Adds spans of a resource. Spans of the same resource that follow each other are one list.
    fn push(&mut self, resource: &Attributes, spans: Vec<TraceSpan>) {
        match self.resource_spans.last_mut() {
            Some(last) if last.resource.attributes == *resource => last.scope_spans[0].spans.extend(spans),
            _ => self.resource_spans.push(ResourceSpans {
                resource: Resource { attributes: resource.clone() },
                scope_spans: [ScopeSpans { scope: Scope { name: SCOPE, version: env!("CARGO_PKG_VERSION") }, spans }],
            }),
        }
    }

    fn span_count(&self) -> usize {
        self.resource_spans.iter().map(|of| of.scope_spans[0].spans.len()).sum()
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a message has only texts as keys")
    }
}

/// Messages with all spans of some traces, each with the number of traces that it completes. A trace of many spans
/// takes more than one message.
fn messages(traces: &[RequestTrace]) -> Vec<(Message, u64)> {
    let mut messages = Vec::new();
    let (mut message, mut completed) = (Message::default(), 0);
    for trace in traces {
        for (resource, spans) in &trace.parts {
            let mut rest = &spans[..];
            while !rest.is_empty() {
                if message.span_count() >= SPANS_MAX {
                    messages.push((std::mem::take(&mut message), std::mem::take(&mut completed)));
                }
                let (part, others) = rest.split_at(rest.len().min(SPANS_MAX - message.span_count()));
                message.push(resource, part.to_vec());
                rest = others;
            }
        }
        completed += 1;
    }
    messages.push((message, completed));
    messages.retain(|(message, _)| !message.resource_spans.is_empty());
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(index: u64) -> TraceSpan {
        let trace_id = TraceId::derive(&[1]);
        TraceSpan {
            trace_id,
            span_id: SpanId::derive(trace_id, &[index]),
            parent_span_id: None,
            name: "wait".to_owned(),
            kind: SpanKind::Internal,
            start_ns: index,
            end_ns: index + 1,
            attributes: Attributes::default(),
            status: Status::default(),
        }
    }

    fn trace(service: &str, spans: u64) -> RequestTrace {
        RequestTrace {
            parts: vec![(Attributes::default().with("service.name", service), (0..spans).map(span).collect())],
        }
    }

    #[test]
    fn message_has_the_form_of_otlp_json() {
        let attributes = Attributes::default().with("service.name", "web").with("process.pid", 7_u32);
        let one = TraceSpan {
            trace_id: TraceId::from_bytes([0x5b; 16]).unwrap(),
            span_id: SpanId::from_bytes([0xee; 8]).unwrap(),
            parent_span_id: SpanId::from_bytes([0x0a; 8]),
            name: "request".to_owned(),
            kind: SpanKind::Server,
            start_ns: 1_544_712_660_000_000_000,
            end_ns: 1_544_712_661_000_000_000,
            attributes: Attributes::default().with_known("thread.name", Some("w")).with_known("none", None::<u32>),
            status: Status::ERROR,
        };
        let all = messages(&[RequestTrace { parts: vec![(attributes, vec![one])] }]);
        let text = String::from_utf8(all[0].0.to_json()).unwrap();
        let wanted = concat!(
            r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"web"}},"#,
            r#"{"key":"process.pid","value":{"intValue":"7"}}]},"#,
            r#""scopeSpans":[{"scope":{"name":"sidelane","version":""#,
            env!("CARGO_PKG_VERSION"),
            r#""},"spans":[{"traceId":"5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b","spanId":"eeeeeeeeeeeeeeee","#,
            r#""parentSpanId":"0a0a0a0a0a0a0a0a","name":"request","kind":2,"#,
            r#""startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000","#,
            r#""attributes":[{"key":"thread.name","value":{"stringValue":"w"}}],"status":{"code":2}}]}]}]}"#,
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn long_traces_are_split_and_no_span_is_lost() {
        let all = messages(&[trace("a", 3), trace("a", 2 * SPANS_MAX as u64), trace("b", 1)]);
        let counts: Vec<(usize, u64)> = all.iter().map(|(message, ended)| (message.span_count(), *ended)).collect();
        assert_eq!(counts, [(SPANS_MAX, 1), (SPANS_MAX, 0), (4, 2)]);
        assert_eq!(all[2].0.resource_spans.len(), 2, "one list for each resource");
        assert_eq!(messages(&[]).len(), 0);
    }
}
