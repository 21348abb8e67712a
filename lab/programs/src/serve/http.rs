//! The part of HTTP/1.1 that the service implements: GET requests without bodies, JSON replies.

/// Longest accepted head of a request, so that a client cannot fill the memory.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Head of a request; there is no body.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Path and query, as the client sent them.
    pub target: &'a str,
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
    /// Length of the head in bytes.
    pub length: usize,
}

/// Parses the first request in `received`; returns `None` if its end has not arrived.
pub fn parse_request_head(received: &[u8]) -> Result<Option<Head<'_>>, &'static str> {
    let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return if received.len() < HEAD_BYTES_MAX { Ok(None) } else { Err("the request's head is too long") };
    };
    let text = std::str::from_utf8(&received[..end]).map_err(|_error| "the request's head is not text")?;
    let mut lines = text.split("\r\n");
    let (target, keep_alive_default) = parse_request_line(lines.next().unwrap_or_default())?;
    Ok(Some(Head { target, keep_alive: parse_keep_alive(lines).unwrap_or(keep_alive_default), length: end + 4 }))
}

/// Returns the target of a request line, and whether connections of its HTTP version stay open by default.
fn parse_request_line(line: &str) -> Result<(&str, bool), &'static str> {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some("GET"), Some(target), Some("HTTP/1.1"), None) => Ok((target, true)),
        (Some("GET"), Some(target), Some("HTTP/1.0"), None) => Ok((target, false)),
        _ => Err("only GET requests of HTTP/1.1 are understood"),
    }
}

/// Returns whether a Connection header keeps the connection open; `None` without such a header.
fn parse_keep_alive<'a>(headers: impl Iterator<Item = &'a str>) -> Option<bool> {
    headers
        .filter_map(|header| header.split_once(':'))
        .find(|(name, _value)| name.eq_ignore_ascii_case("connection"))
        .map(|(_name, value)| !value.trim().eq_ignore_ascii_case("close"))
}

/// Returns the decoded `q` of `/search?q=...`; `None` for other targets.
pub fn search_query_from_target(target: &str) -> Option<String> {
    let parameters = target.strip_prefix("/search?")?;
    let encoded = parameters.split('&').find_map(|pair| pair.strip_prefix("q="))?;
    percent_decode(encoded)
}

/// Decodes `+` and `%XX`; returns `None` if the text is not validly encoded.
fn percent_decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex_digit(rest.next()?)? << 4 | hex_digit(rest.next()?)?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Reply of the service: an HTTP status and a JSON body.
#[derive(Debug)]
pub struct Response {
    status: &'static str,
    body: String,
}

impl Response {
    /// Returns the reply to a search.
    pub fn json(value: &serde_json::Value) -> Self {
        let body = value.to_string();
        Response { status: "200 OK", body }
    }

    /// Returns the reply to an invalid request.
    pub fn bad_request(problem: &str) -> Self {
        Response::error("400 Bad Request", problem)
    }

    /// Returns the reply to a request for an unknown target.
    pub fn not_found() -> Self {
        Response::error("404 Not Found", "ask for /search?q=and+some+words")
    }

    /// Returns the reply to a request that the service failed to handle.
    pub fn failure(problem: &str) -> Self {
        Response::error("500 Internal Server Error", problem)
    }

    fn error(status: &'static str, problem: &str) -> Self {
        let body = serde_json::json!({ "error": problem }).to_string();
        Response { status, body }
    }

    /// Returns the encoded reply, head and body.
    pub fn to_bytes(&self) -> Vec<u8> {
        format!(
            "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
            self.status,
            self.body.len(),
            self.body
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"GET /search?q=and+a HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn a_request_in_pieces_is_parsed_when_complete() {
        for length in 0..REQUEST.len() {
            assert_eq!(parse_request_head(&REQUEST[..length]), Ok(None), "{length} bytes");
        }
        let head = parse_request_head(REQUEST).unwrap().unwrap();
        assert_eq!(head, Head { target: "/search?q=and+a", keep_alive: true, length: REQUEST.len() });
    }

    #[test]
    fn bytes_of_the_next_request_are_not_parsed() {
        let two = [REQUEST, REQUEST].concat();
        assert_eq!(parse_request_head(&two).unwrap().unwrap().length, REQUEST.len());
    }

    #[test]
    fn connection_header_decides_keep_alive() {
        let head = |text: &'static str| parse_request_head(text.as_bytes()).unwrap().unwrap().keep_alive;
        assert!(!head("GET / HTTP/1.1\r\nconnection: Close\r\n\r\n"));
        assert!(!head("GET / HTTP/1.0\r\n\r\n"));
        assert!(head("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn unsupported_requests_are_refused() {
        assert!(parse_request_head(b"POST / HTTP/1.1\r\n\r\n").is_err());
        assert!(parse_request_head(b"GET /\r\n\r\n").is_err());
        assert!(parse_request_head(&vec![b'x'; HEAD_BYTES_MAX]).is_err());
    }

    #[test]
    fn queries_are_decoded() {
        assert_eq!(search_query_from_target("/search?q=and+a%20b").as_deref(), Some("and a b"));
        assert_eq!(search_query_from_target("/search?x=1&q=or+%C3%A9").as_deref(), Some("or é"));
        assert_eq!(search_query_from_target("/search?q=%4"), None);
        assert_eq!(search_query_from_target("/search?q=%+f"), None);
        assert_eq!(search_query_from_target("/"), None);
    }
}
