//! Searches over HTTP/1.1, as `sidelane-lab serve` answers them.

use anyhow::{Context, Result, bail};

use super::plan::REQUESTS_STREAM;
use super::protocol::{Kind, Protocol, Reply};
use crate::resp::excerpt;
use crate::rng::Rng;
use crate::search::SearchQuery;

/// Longest head of a reply; the lab's own service sends shorter ones.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Random search requests from a list of queries.
#[derive(Debug)]
pub struct Search {
    requests: Vec<Vec<u8>>,
    rng: Rng,
}

impl Search {
    /// Returns requests drawn from `queries`, all equally likely; `queries` must not be empty.
    pub fn new(queries: &[SearchQuery], seed: u64) -> Self {
        Search { requests: queries.iter().map(encode_request).collect(), rng: Rng::new(seed, REQUESTS_STREAM) }
    }
}

impl Protocol for Search {
    fn next_request(&mut self) -> (Kind, &[u8]) {
        let chosen = self.rng.below(self.requests.len());
        (Kind::Search, &self.requests[chosen])
    }

    fn parse_reply(&self, received: &[u8]) -> Result<Reply> {
        let Some(head_end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            if received.len() > HEAD_BYTES_MAX || !could_be_http(received) {
                bail!("not an HTTP reply: {}", excerpt(received));
            }
            return Ok(Reply::Partial);
        };
        let head = std::str::from_utf8(&received[..head_end]).context("the head of an HTTP reply is not text")?;
        let length = head_end + 4 + content_length(head)?;
        if received.len() < length {
            return Ok(Reply::Partial);
        }
        parse_status(head, length)
    }
}

fn encode_request(query: &SearchQuery) -> Vec<u8> {
    format!("GET /search?q={} HTTP/1.1\r\nHost: sidelane-lab\r\n\r\n", percent_encode(&query.to_string())).into_bytes()
}

/// Percent-encodes everything but ASCII letters and digits; a space becomes `+`.
fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b' ' => "+".to_owned(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn could_be_http(received: &[u8]) -> bool {
    received.iter().zip(b"HTTP/1.").all(|(got, wanted)| got == wanted)
}

fn content_length(head: &str) -> Result<usize> {
    head.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _value)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_name, value)| value.trim().parse().ok())
        .with_context(|| format!("an HTTP reply does not say how long it is: {}", excerpt(head.as_bytes())))
}

/// Returns the outcome of a complete reply: a result for the HTTP status 200, an error for any other status.
fn parse_status(head: &str, length: usize) -> Result<Reply> {
    let status_line = head.split("\r\n").next().unwrap_or_default();
    match status_line.strip_prefix("HTTP/1.1 ").or(status_line.strip_prefix("HTTP/1.0 ")) {
        Some(status) if status.starts_with("200") => Ok(Reply::Whole { length }),
        Some(status) => Ok(Reply::Error { length, message: status.to_owned() }),
        None => bail!("not an HTTP reply: {}", excerpt(head.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search_with_two_queries() -> Search {
        let queries: Vec<SearchQuery> = ["and a b", "or c"].iter().map(|line| line.parse().unwrap()).collect();
        Search::new(&queries, 3)
    }

    #[test]
    fn partial_reply_is_complete_at_its_last_byte() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
        let search = search_with_two_queries();
        for length in 0..reply.len() {
            assert_eq!(search.parse_reply(&reply[..length]).unwrap(), Reply::Partial, "{length} bytes");
        }
        assert_eq!(search.parse_reply(reply).unwrap(), Reply::Whole { length: reply.len() });
    }

    #[test]
    fn status_404_is_an_error_reply() {
        let reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let expected = Reply::Error { length: reply.len(), message: "404 Not Found".into() };
        assert_eq!(search_with_two_queries().parse_reply(reply).unwrap(), expected);
    }

    #[test]
    fn replies_that_are_not_http_are_refused_at_once() {
        assert!(search_with_two_queries().parse_reply(b"+PONG\r\n").is_err());
        assert!(search_with_two_queries().parse_reply(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn requests_are_encoded_and_fixed_by_the_seed() {
        assert_eq!(percent_encode("phrase é b"), "phrase+%C3%A9+b");
        let (mut one, mut two) = (search_with_two_queries(), search_with_two_queries());
        for _ in 0..20 {
            assert_eq!(one.next_request(), two.next_request());
        }
    }
}
