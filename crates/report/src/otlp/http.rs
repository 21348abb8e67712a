//! Client of a collector's OTLP/HTTP receiver: one POST for each connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Maximum time to connect.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Maximum time from the connect to the end of the answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Maximum size of an answer in bytes.
const ANSWER_BYTES: usize = 64 << 10;
const FIELDS_MAX: usize = 64;
const PATH: &str = "/v1/traces";

/// Address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Host as in a URL: an IPv6 address has brackets.
    host: String,
    port: u16,
    path: String,
}

/// Answer of a collector.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Collector {
    /// Parses what follows `http://` in a URL. As for OpenTelemetry's own exporters, the path of traces is appended.
    pub(super) fn parse(rest: &str) -> Option<Self> {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = authority.rsplit_once(':')?;
        let is_name = |host: &str| {
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let is_v6 = |host: &str| {
            host.strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
        };
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        let port = port.parse().ok().filter(|port| *port > 0)?;
        if !(is_name(host) || is_v6(host)) || !is_path {
            return None;
        }
        let path = path.trim_end_matches('/');
        let path = if path.ends_with(PATH) { path.to_owned() } else { format!("{path}{PATH}") };
        Some(Self { host: host.to_owned(), port, path })
    }

    /// Sends a message, and waits for the answer.
    pub(super) fn post(&self, message: &[u8]) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        let end = Instant::now() + ANSWER_TIME;
        let Self { host, port, path } = self;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: sidelane/{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            env!("CARGO_PKG_VERSION"),
            message.len()
        );
        // A collector that refuses a message may answer and close before it has read all of it.
        let written =
            write_until(&mut stream, head.as_bytes(), end).and_then(|()| write_until(&mut stream, message, end));
        let answer = read_answer(&mut stream, end);
        match (written, answer) {
            (_, Ok(answer)) => Ok(answer),
            (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(name_timeout(error)),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in (host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Replaces the operating system's words for a time limit of a socket, which say "temporarily unavailable".
fn name_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {ANSWER_TIME:?}"))
        }
        _ => error,
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        write!(f, "http://{host}:{port}{path}")
    }
}

/// Returns the time that is left until `end`, and an error if it is over. A socket takes no time limit of zero.
fn time_left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Writes all bytes, however slowly the collector reads them, until `end`.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(end)?))?;
        let count = stream.write(bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

fn read_answer(stream: &mut TcpStream, end: Instant) -> io::Result<Answer> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        stream.set_read_timeout(Some(time_left(end)?))?;
        let count = stream.read(&mut chunk)?;
        bytes.extend_from_slice(&chunk[..count]);
        if let Some(answer) = parse_answer(&bytes, count == 0)? {
            return Ok(answer);
        }
        if bytes.len() > ANSWER_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
        }
    }
}

/// Parses an answer. Returns `None` while it is incomplete.
fn parse_answer(bytes: &[u8], is_end: bool) -> io::Result<Option<Answer>> {
    let no_http = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("its answer is not HTTP: {why}"));
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(bytes).map_err(|error| no_http(&error.to_string()))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial if is_end => return Err(no_http("it ends within the head")),
        httparse::Status::Partial => return Ok(None),
    };
    let field = |name: &str| {
        let found = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.and_then(|field| std::str::from_utf8(field.value).ok())
    };
    let body = &bytes[length..];
    let is_chunked = field("Transfer-Encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let content_length = field("Content-Length").and_then(|length| length.parse::<usize>().ok());
    let body = match content_length {
        _ if is_chunked && is_end => join_chunks(body),
        Some(length) if !is_chunked && body.len() >= length => body[..length].to_vec(),
        _ if is_end => body.to_vec(),
        _ => return Ok(None),
    };
    Ok(Some(Answer { status: head.code.unwrap_or(0), body }))
}

/// Returns the data of a chunked body, up to the first chunk that is not complete.
fn join_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(httparse::Status::Complete((start, length))) = httparse::parse_chunk_size(rest) {
        let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        let Some(data) = rest.get(start..end).filter(|data| !data.is_empty()) else { break };
        body.extend_from_slice(data);
        rest = rest[end..].strip_prefix(b"\r\n").unwrap_or_default();
    }
    body
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn collector(listener: &TcpListener) -> Collector {
        Collector::parse(&format!("127.0.0.1:{}", listener.local_addr().unwrap().port())).unwrap()
    }

    /// Answers one request with these bytes, and returns the request.
    fn answer_with(bytes: &'static [u8]) -> (io::Result<Answer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = collector(&listener);
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut chunk = [0; 1024];
            while !request.ends_with(b"{\"a\":1}") {
                let count = stream.read(&mut chunk).unwrap();
                request.extend_from_slice(&chunk[..count]);
            }
            stream.write_all(bytes).unwrap();
            String::from_utf8(request).unwrap()
        });
        let answer = collector.post(b"{\"a\":1}");
        (answer, serving.join().unwrap())
    }

    #[test]
    fn message_is_posted_as_json() {
        let (answer, request) = answer_with(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let answer = answer.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"{}"[..]));
        assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(request.contains("\r\nContent-Type: application/json\r\nContent-Length: 7\r\n"), "{request}");
    }

    #[test]
    fn chunked_and_closed_answers_are_read() {
        let (answer, _) =
            answer_with(b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
        assert_eq!(answer.unwrap().body, b"{}");
        let (answer, _) = answer_with(b"HTTP/1.0 503 Full\r\n\r\nlater");
        assert_eq!(answer.unwrap().body, b"later");
        assert!(answer_with(b"+PONG\r\n").0.unwrap_err().to_string().contains("not HTTP"));
        assert!(answer_with(b"HTTP/1.1 2").0.unwrap_err().to_string().contains("ends within the head"));
    }

    #[test]
    fn closed_port_is_an_error_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = collector(&listener);
        drop(listener);
        assert_eq!(collector.post(b"{}").unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn fuzzed_answers_are_read_or_refused() {
        sidelane_testing::fuzz("collector-answer", |bytes| {
            if let Ok(Some(answer)) = parse_answer(bytes, true) {
                assert!(answer.body.len() <= bytes.len());
            }
        });
    }
}
