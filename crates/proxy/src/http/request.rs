//! Parser and writer of HTTP request heads.

use std::mem::MaybeUninit;

use sidelane_report::otlp::TraceParent;

use super::FIELDS_MAX;
use super::body::Body;
use super::fields::{self, FieldList, FieldsError, ParsedFields};
use super::forwarded::Peer;
use super::target::Target;

/// Parsed head of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Length of the head in bytes.
    pub bytes: usize,
    /// Start and end of the method within the head.
    pub method: (usize, usize),
    /// Start and end of the target's path and query within the head.
    pub target: (usize, usize),
    /// Whether the request is HTTP/1.0.
    pub is_old: bool,
    /// Body that follows the head.
    pub body: Body,
    /// Whether the client waits for "100 Continue" before it sends the body.
    pub expects_continue: bool,
    /// Whether the client keeps the connection open after the answer.
    pub keeps_alive: bool,
    /// Whether the client asks for another protocol on this connection.
    pub upgrades: bool,
    /// Whether the answer has only a head, without a body.
    pub is_head: bool,
    /// Span of the client that sent the request, from its field `traceparent`.
    pub parent: Option<TraceParent>,
}

/// Reason for which the proxy refuses a request. [`Refused::status`] is the status of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request is not HTTP, or two parsers could read it differently.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// The head is longer than allowed, or has too many fields.
    #[error("the head of the request is too long")]
    TooLarge,
    /// The request needs a function that this proxy does not have.
    #[error("this proxy supports {0}")]
    NotDone(&'static str),
}

impl Refused {
    /// Returns the HTTP status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooLarge => 431,
            Self::NotDone(_) => 501,
        }
    }
}

impl From<FieldsError> for Refused {
    fn from(wrong: FieldsError) -> Self {
        match wrong {
            FieldsError::TwoLengths => Self::Malformed("the length of its body is given twice"),
            FieldsError::NoNumber => Self::Malformed("its Content-Length is not a number"),
            FieldsError::Encoding => Self::NotDone("only `Transfer-Encoding: chunked`"),
            FieldsError::Expectation => Self::NotDone("only `Expect: 100-continue`"),
        }
    }
}

/// Parses the head at the start of `bytes`, which the client `peer` sent. Writes the head for the server to `out`.
///
/// Returns `None` if the head is incomplete. A head of more than `limit` bytes is refused.
pub fn read_request(
    bytes: &[u8],
    limit: usize,
    peer: &Peer,
    out: &mut Vec<u8>,
) -> Result<Option<RequestHead>, Refused> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(length)) if length <= limit => length,
        Ok(httparse::Status::Partial) if bytes.len() < limit => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refused::TooLarge),
        Err(error) => return Err(Refused::Malformed(describe_parse_error(error))),
    };
    let method = request.method.unwrap_or_default();
    let is_old = request.version == Some(0);
    let said = fields::parse_fields(request.headers)?;
    check_request(method, is_old, &said)?;
    let target = Target::read(request.path.unwrap_or_default()).map_err(Refused::Malformed)?;
    let upgrades = said.upgrades && said.has_upgrade && !is_old;
    write_request_start(method, &target, is_old, out);
    let fields = FieldList::new(request.headers);
    // Replace the Host field by the host in the target: parsers differ in which one they use (RFC 9112, 3.2.2).
    let keeps =
        |name: &str| (target.host.is_none() || !name.eq_ignore_ascii_case("Host")) && peer.should_forward_field(name);
    fields.write_forwarded(upgrades, keeps, out);
    let host = target.host.map(str::as_bytes).or_else(|| fields.forwarded_values("Host").next());
    peer.write_forwarding_fields(&fields, host, is_old, out);
    match (upgrades, is_old) {
        (true, _) => fields::write_field_line(b"Connection", b"upgrade", out),
        // Ask to keep the connection to the server: it is reused even if the client's connection closes.
        (false, true) => fields::write_field_line(b"Connection", b"keep-alive", out),
        (false, false) => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(Some(RequestHead {
        bytes: length,
        method: byte_range(bytes, method),
        target: byte_range(bytes, target.path),
        is_old,
        body: request_body(&said),
        expects_continue: said.expects_continue && !is_old,
        keeps_alive: if is_old { said.keeps_alive } else { !said.closes },
        upgrades,
        is_head: method == "HEAD",
        parent: said.parent(),
    }))
}

fn check_request(method: &str, is_http10: bool, parsed: &ParsedFields) -> Result<(), Refused> {
    match () {
        () if method == "CONNECT" => Err(Refused::NotDone("no CONNECT")),
        () if parsed.hosts > 1 || (parsed.hosts == 0 && !is_http10) => Err(Refused::Malformed(
            "it does not have exactly one \
                                                                                        Host",
        )),
        () if is_http10 && parsed.is_chunked => Err(Refused::Malformed("HTTP/1.0 with Transfer-Encoding")),
        () => Ok(()),
    }
}

fn request_body(parsed: &ParsedFields) -> Body {
    if parsed.is_chunked { Body::CHUNKED } else { Body::Length(parsed.content_length.unwrap_or(0)) }
}

/// Writes the first lines of the head. The version stays HTTP/1.0 if the client speaks only HTTP/1.0.
fn write_request_start(method: &str, target: &Target<'_>, is_http10: bool, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    target.write(method, out);
    out.extend_from_slice(if is_http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
    if let Some(host) = target.host {
        fields::write_field_line(b"Host", host.as_bytes(), out);
    }
}

/// Returns start and end of `part` within `bytes`, which contains it.
fn byte_range(bytes: &[u8], part: &str) -> (usize, usize) {
    let start = part.as_ptr().addr() - bytes.as_ptr().addr();
    (start, start + part.len())
}

fn describe_parse_error(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a field has an invalid name",
        httparse::Error::HeaderValue => "a field has an invalid value",
        httparse::Error::NewLine => "a line does not end with CR LF",
        httparse::Error::Status => "its status is not a number",
        httparse::Error::Token => "its first line is not a request line",
        httparse::Error::TooManyHeaders => "it has too many fields",
        httparse::Error::Version => "it is not HTTP/1.0 or HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::super::forwarded::Forwarded;
    use super::*;

    const LIMIT: usize = 200;

    fn parse_request(text: &str) -> Result<Option<(RequestHead, String)>, Refused> {
        parse_request_from("192.0.2.1", Forwarded::Off, text)
    }

    fn parse_request_from(client: &str, mode: Forwarded, text: &str) -> Result<Option<(RequestHead, String)>, Refused> {
        let mut out = Vec::new();
        let head = read_request(text.as_bytes(), LIMIT, &Peer::new(mode, client.parse().unwrap(), false), &mut out)?;
        Ok(head.map(|head| (head, String::from_utf8(out).unwrap())))
    }

    #[test]
    fn hop_by_hop_fields_are_left_out() {
        let text = "GET /a?b HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-One\r\nKeep-Alive: 5\r\nX-One: 1\r\nX-Two:2\r\n\r\nGET";
        let (head, out) = parse_request(text).unwrap().unwrap();
        assert_eq!(out, "GET /a?b HTTP/1.1\r\nHost: h\r\nX-Two: 2\r\n\r\n");
        assert_eq!((head.bytes, head.body, head.keeps_alive), (text.len() - 3, Body::EMPTY, true));
        assert_eq!(&text[head.method.0..head.method.1], "GET");
        assert_eq!(&text[head.target.0..head.target.1], "/a?b");
    }

    #[test]
    fn traceparent_is_read_and_forwarded_unchanged() {
        let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parsed =
            |fields: &str| parse_request(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).unwrap().unwrap();
        let (head, out) = parsed(&format!("TraceParent: {value}\r\n"));
        assert_eq!(head.parent, TraceParent::parse(value.as_bytes()));
        assert!(head.parent.is_some() && out.ends_with(&format!("TraceParent: {value}\r\n\r\n")), "{out}");
        let (head, out) = parsed("traceparent: 00-junk\r\n");
        assert!(head.parent.is_none() && out.ends_with("traceparent: 00-junk\r\n\r\n"), "{out}");
        assert_eq!(parsed(&format!("traceparent: {value}\r\n").repeat(2)).0.parent, None, "they may contradict");
    }

    #[test]
    fn incomplete_head_is_awaited_up_to_the_size_limit() {
        assert_eq!(parse_request("GET / HTTP/1.1\r\nHost: h\r\n"), Ok(None));
        let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(LIMIT));
        assert_eq!(parse_request(&long), Err(Refused::TooLarge));
        let whole = format!("{long}\r\n\r\n");
        assert_eq!(parse_request(&whole), Err(Refused::TooLarge));
        let many = format!("GET / HTTP/1.1\r\n{}", "a:b\r\n".repeat(FIELDS_MAX + 1));
        let peer = Peer::new(Forwarded::Off, [192, 0, 2, 1].into(), false);
        assert_eq!(read_request(many.as_bytes(), 1 << 20, &peer, &mut Vec::new()), Err(Refused::TooLarge));
    }

    #[test]
    fn kind_of_body_follows_from_the_header_fields() {
        let body = |fields: &str| {
            parse_request(&format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).map(|head| head.unwrap().0.body)
        };
        assert_eq!(body("Content-Length: 12\r\n"), Ok(Body::Length(12)));
        assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Ok(Body::CHUNKED));
        let two = Refused::Malformed("the length of its body is given twice");
        assert_eq!(body("Content-Length: 5\r\nContent-Length: 5\r\n"), Err(two));
        assert_eq!(body("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Err(two));
        assert_eq!(body("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), Err(two));
        for wrong in ["+5", "5, 5", "0x5", "", "99999999999999999999"] {
            let refused = body(&format!("Content-Length: {wrong}\r\n"));
            assert_eq!(refused, Err(Refused::Malformed("its Content-Length is not a number")), "{wrong}");
        }
        assert!(matches!(body("Transfer-Encoding: gzip, chunked\r\n"), Err(Refused::NotDone(_))));
    }

    #[test]
    fn ambiguous_request_head_is_refused() {
        let wrong = [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "nonsense\r\n\r\n",
        ];
        for text in wrong {
            assert!(matches!(parse_request(text), Err(Refused::Malformed(_))), "{text:?}: {:?}", parse_request(text));
        }
        assert!(matches!(
            parse_request("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            Err(Refused::NotDone("no CONNECT"))
        ));
    }

    #[test]
    fn upgrade_request_is_forwarded() {
        let text = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let (head, out) = parse_request(text).unwrap().unwrap();
        assert!(head.upgrades);
        assert_eq!(out, "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
        let (head, out) = parse_request("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n").unwrap().unwrap();
        assert!(!head.upgrades && !out.contains("websocket"), "no client asked for it on this connection");
    }

    #[test]
    fn server_connection_stays_open_after_an_http_1_0_request() {
        let sent = |text: &str| parse_request(text).unwrap().unwrap().1;
        let wanted = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        assert_eq!((sent("GET / HTTP/1.0\r\n\r\n").as_str(), sent(wanted).as_str()), (wanted, wanted));
    }

    #[test]
    fn http_1_0_connection_closes_unless_keep_alive_is_asked() {
        let keeps = |text: &str| parse_request(text).unwrap().unwrap().0.keeps_alive;
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    }

    /// Returns the head that the server gets, without its first line.
    fn forwarded_fields(client: &str, mode: Forwarded, fields: &str) -> String {
        let (_, out) = parse_request_from(client, mode, &format!("GET / HTTP/1.1\r\n{fields}\r\n")).unwrap().unwrap();
        out.strip_prefix("GET / HTTP/1.1\r\n").unwrap().to_owned()
    }

    #[test]
    fn forwarded_fields_of_a_client_are_replaced() {
        let spoofed = "Host: h\r\nX-Forwarded-For: 127.0.0.1\r\nX_Forwarded_For: 127.0.0.1\r\nx-real-ip: 127.0.0.1\r\n\
            FORWARDED: for=127.0.0.1\r\nX-Forwarded-Prefix: /a\r\nConnection: X-Real-IP\r\nX-Real: 1\r\n";
        let own = "Via: 1.1 sidelane\r\nX-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1;host=h;proto=http\r\n\
            X-Real-IP: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\n\r\n";
        assert_eq!(forwarded_fields("192.0.2.1", Forwarded::Set, spoofed), format!("Host: h\r\nX-Real: 1\r\n{own}"));
        assert_eq!(forwarded_fields("::ffff:192.0.2.1", Forwarded::Set, "Host: h\r\n"), format!("Host: h\r\n{own}"));
    }

    #[test]
    fn ipv6_address_and_host_with_port_are_quoted() {
        let out = forwarded_fields("2001:db8::1", Forwarded::Set, "Host: h:80\r\n");
        assert!(out.contains("\r\nForwarded: for=\"[2001:db8::1]\";host=\"h:80\";proto=http\r\n"), "{out}");
        assert!(out.contains("\r\nX-Forwarded-For: 2001:db8::1\r\n"), "{out}");
        let out = forwarded_fields("::1", Forwarded::Set, "Host: a\"b\\\r\n");
        assert!(out.contains(r#";host="a\"b\\";"#), "{out}");
    }

    #[test]
    fn forwarded_fields_of_a_trusted_proxy_are_extended() {
        let said = "Host: h\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\nX-Forwarded-Proto: https\r\n";
        let out = forwarded_fields("3.3.3.3", Forwarded::Add, said);
        assert!(out.contains("\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3\r\n"), "{out}");
        assert!(out.contains("\r\nForwarded: for=3.3.3.3;host=h;proto=http\r\n"), "{out}");
        assert_eq!((out.matches("X-Forwarded-For").count(), out.matches("X-Forwarded-Proto: https").count()), (1, 1));
        assert!(!out.contains("X-Forwarded-Proto: http\r"), "{out}");
        assert_eq!(forwarded_fields("3.3.3.3", Forwarded::Off, said), format!("{said}\r\n"));
    }

    #[test]
    fn host_in_the_target_replaces_the_host_field() {
        let sent = |target: &str| {
            let text = format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n");
            parse_request(&text).map(|head| head.unwrap().1)
        };
        let wanted = |path: &str, host: &str| Ok(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(sent("/"), wanted("/", "other"));
        assert_eq!(sent("http://a/b?c"), wanted("/b?c", "a"));
        assert_eq!(sent("HTTP://a:80?c"), wanted("/?c", "a:80"));
        assert_eq!(sent("https://[::1]:8080"), wanted("/", "[::1]:8080"));
        for wrong in ["http://", "http:///a", "http://user@a/", "ftp://a/", "a", "a:80", "http:/a", "http://a\"b/"] {
            assert!(matches!(sent(wrong), Err(Refused::Malformed(_))), "{wrong}: {:?}", sent(wrong));
        }
        let text = "OPTIONS http://a HTTP/1.1\r\nHost: b\r\n\r\n";
        let (head, out) = parse_request_from("::1", Forwarded::Set, text).unwrap().unwrap();
        assert!(
            out.starts_with("OPTIONS * HTTP/1.1\r\nHost: a\r\nVia: ") && out.contains("X-Forwarded-Host: a\r\n"),
            "{out}"
        );
        assert_eq!(&text[head.method.0..head.target.1], "OPTIONS http://a");
    }
}
