//! Parser and writer of HTTP response heads, and the proxy's own error answers.

use std::io::Write;
use std::mem::MaybeUninit;

use super::FIELDS_MAX;
use super::body::Body;
use super::fields::{self, FieldList, ParsedFields};
use super::forwarded::write_via;
use super::number::RequestNumber;

/// Field that tells a client the number of its request, for `/.sidelane/trace/NUMBER`.
const NUMBER: &[u8] = b"Sidelane-Request: ";

/// Parsed head of an HTTP response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Length of the head in bytes.
    pub bytes: usize,
    /// HTTP status of the response.
    pub status: u16,
    /// Body that follows the head.
    pub body: Body,
    /// Whether the server keeps the connection open after the response.
    pub keeps_alive: bool,
    /// Time for which the server keeps the idle connection, in seconds; `None` if the server does not tell.
    pub keep_alive_s: Option<u32>,
}

impl ResponseHead {
    /// Returns whether this is an interim response (status 1xx without a protocol switch), before the final one.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && !self.is_protocol_switch()
    }

    /// Returns whether the connection continues in another protocol.
    pub fn is_protocol_switch(&self) -> bool {
        self.status == 101
    }

    /// Returns whether `Upgrade` names protocols: the one that follows (101), or those that the server asks for (426).
    fn has_upgrade_protocols(&self) -> bool {
        matches!(self.status, 101 | 426)
    }
}

/// Properties of a request that determine the form of its answer.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext {
    /// Number of the request.
    pub number: RequestNumber,
    /// Whether the answer has only a head, without a body.
    pub is_head: bool,
    /// Whether the client speaks HTTP/1.0.
    pub is_old: bool,
    /// Whether the connection to the client is kept, if the answer allows it.
    pub keeps_alive: bool,
    /// Whether the answer gets a `Via` field.
    pub has_via: bool,
}

/// Error: the data from the server is not a valid HTTP response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer of the server is malformed, or its head is too long")]
pub struct BadResponse;

/// Parses the head at the start of `bytes`, and writes the head for the client to `out`. Returns `None` if it is
/// incomplete.
pub fn read_response(
    bytes: &[u8],
    limit: usize,
    context: ResponseContext,
    out: &mut Vec<u8>,
) -> Result<Option<ResponseHead>, BadResponse> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= limit => length,
        Ok(httparse::Status::Partial) if bytes.len() < limit => return Ok(None),
        Ok(_) | Err(_) => return Err(BadResponse),
    };
    let said = fields::parse_fields(response.headers).map_err(|_| BadResponse)?;
    let status = response.code.unwrap_or_default();
    let is_old = response.version == Some(0);
    let keeps_alive = if is_old { said.keeps_alive } else { !said.closes };
    let body = response_body(status, context.is_head, &said);
    let keeps_alive = keeps_alive && body != Body::UntilClose;
    let head = ResponseHead { bytes: length, status, body, keeps_alive, keep_alive_s: said.keep_alive_s };
    write_status(status, response.reason.unwrap_or_default(), context.is_old, out);
    FieldList::new(response.headers).write_forwarded(head.has_upgrade_protocols(), |_| true, out);
    if context.has_via && !head.is_interim() {
        write_via(is_old, out);
    }
    write_final_fields(&head, context, out);
    Ok(Some(head))
}

/// Returns whether the client's connection stays open after this answer.
pub(crate) fn keeps_client_connection(head: &ResponseHead, context: ResponseContext) -> bool {
    context.keeps_alive && head.body != Body::UntilClose
}

fn response_body(status: u16, is_head_request: bool, parsed: &ParsedFields) -> Body {
    match status {
        _ if is_head_request => Body::EMPTY,
        100..=199 | 204 | 304 => Body::EMPTY,
        _ if parsed.is_chunked => Body::CHUNKED,
        _ => parsed.content_length.map_or(Body::UntilClose, Body::Length),
    }
}

fn write_status(status: u16, reason: &str, is_http10: bool, out: &mut Vec<u8>) {
    let hundreds = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
    out.extend_from_slice(if is_http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(&hundreds);
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes the last fields of the head, which the proxy adds, and the empty line.
fn write_final_fields(head: &ResponseHead, context: ResponseContext, out: &mut Vec<u8>) {
    if !head.is_interim() {
        out.extend_from_slice(NUMBER);
        context.number.write(out);
        out.extend_from_slice(b"\r\n");
        if head.has_upgrade_protocols() {
            fields::write_field_line(b"Connection", b"upgrade", out);
        }
        if !head.is_protocol_switch() {
            write_connection_field(keeps_client_connection(head, context), context.is_old, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_connection_field(keeps_alive: bool, is_http10: bool, out: &mut Vec<u8>) {
    match (keeps_alive, is_http10) {
        (true, true) => fields::write_field_line(b"Connection", b"keep-alive", out),
        (false, _) => fields::write_field_line(b"Connection", b"close", out),
        (true, false) => {}
    }
}

/// Writes a complete error answer of the proxy, after which the connection is closed.
pub fn write_error(status: u16, why: &str, out: &mut Vec<u8>) {
    let reason = match status {
        400 => "Bad Request",
        404 => "Not Found",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Error",
    };
    let length = why.len() + 1;
    let head = "Content-Type: text/plain\r\nConnection: close\r\n";
    // Ignore the result: writing to memory cannot fail.
    let _ = write!(out, "HTTP/1.1 {status} {reason}\r\n{head}Content-Length: {length}\r\n\r\n{why}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: ResponseContext = ResponseContext {
        number: RequestNumber { id: 17, mark: 0xfe },
        is_head: false,
        is_old: false,
        keeps_alive: true,
        has_via: false,
    };

    fn parse_response(text: &str, context: ResponseContext) -> Result<Option<(ResponseHead, String)>, BadResponse> {
        let mut out = Vec::new();
        let head = read_response(text.as_bytes(), 200, context, &mut out)?;
        Ok(head.map(|head| (head, String::from_utf8(out).unwrap())))
    }

    #[test]
    fn client_gets_the_head_with_the_request_number() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi";
        let (head, out) = parse_response(text, WANTED).unwrap().unwrap();
        assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSidelane-Request: 17-00000000000000fe\r\n\r\n");
        assert_eq!((head.bytes, head.body, head.keeps_alive), (text.len() - 2, Body::Length(2), true));
    }

    #[test]
    fn upgrade_protocols_of_a_server_are_kept() {
        let text = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n";
        let (head, out) = parse_response(text, WANTED).unwrap().unwrap();
        assert!(out.contains("\r\nUpgrade: websocket\r\n") && out.contains("\r\nConnection: upgrade\r\n"), "{out}");
        assert!(!head.is_protocol_switch() && !out.contains("close"), "{out}");
    }

    #[test]
    fn answer_has_a_via_field() {
        let wanted = ResponseContext { has_via: true, ..WANTED };
        let (_, out) =
            parse_response("HTTP/1.0 200 OK\r\nVia: 1.1 other\r\nContent-Length: 0\r\n\r\n", wanted).unwrap().unwrap();
        assert!(out.contains("\r\nVia: 1.1 other\r\n") && out.contains("\r\nVia: 1.0 sidelane\r\n"), "{out}");
    }

    #[test]
    fn request_number_field_of_the_server_is_replaced() {
        let text =
            "HTTP/1.1 200 OK\r\nsidelane-request: 1-0\r\nKeep-Alive: timeout=5, max=9\r\nContent-Length: 0\r\n\r\n";
        let (head, out) = parse_response(text, WANTED).unwrap().unwrap();
        assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSidelane-Request: 17-00000000000000fe\r\n\r\n");
        assert_eq!(head.keep_alive_s, Some(5));
    }

    #[test]
    fn an_answer_without_a_length_ends_both_connections() {
        let (head, out) = parse_response("HTTP/1.1 200 OK\r\n\r\n", WANTED).unwrap().unwrap();
        assert_eq!((head.body, head.keeps_alive), (Body::UntilClose, false));
        assert!(out.contains("Connection: close\r\n"), "{out}");
    }

    #[test]
    fn some_answers_have_no_body_despite_their_fields() {
        let fields = "Content-Length: 5\r\n\r\n";
        let head = ResponseContext { is_head: true, ..WANTED };
        assert_eq!(parse_response(&format!("HTTP/1.1 200 OK\r\n{fields}"), head).unwrap().unwrap().0.body, Body::EMPTY);
        assert_eq!(
            parse_response(&format!("HTTP/1.1 304 NM\r\n{fields}"), WANTED).unwrap().unwrap().0.body,
            Body::EMPTY
        );
        let (head, out) = parse_response("HTTP/1.1 100 Continue\r\n\r\n", WANTED).unwrap().unwrap();
        assert!(head.is_interim() && head.keeps_alive);
        assert_eq!(out, "HTTP/1.1 100 Continue\r\n\r\n");
    }

    #[test]
    fn ambiguous_answer_is_refused() {
        for fields in ["Content-Length: 1\r\nContent-Length: 2", "Content-Length: 1\r\nTransfer-Encoding: chunked", "X"]
        {
            assert_eq!(parse_response(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n"), WANTED), Err(BadResponse));
        }
        assert_eq!(parse_response("nonsense\r\n", WANTED), Err(BadResponse));
        assert_eq!(parse_response(&"x".repeat(300), WANTED), Err(BadResponse));
    }

    #[test]
    fn a_head_is_refused_if_it_exceeds_the_limit() {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: {}\r\n\r\n", "x".repeat(100));
        let read = |bytes: &str, limit| {
            let head = read_response(bytes.as_bytes(), limit, WANTED, &mut Vec::new());
            head.map(|head| head.map(|head| head.bytes))
        };
        let part = &text[..100];
        assert_eq!((read(&text, text.len()), read(&text, text.len() - 1)), (Ok(Some(text.len())), Err(BadResponse)));
        assert_eq!((read(part, 101), read(part, 100)), (Ok(None), Err(BadResponse)), "the rest would exceed it");
    }

    #[test]
    fn error_answer_has_status_length_and_reason() {
        let mut out = Vec::new();
        write_error(504, "no answer", &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 504 Gateway Timeout\r\n")
                && text.ends_with("Content-Length: 10\r\n\r\nno answer\n")
        );
    }
}
