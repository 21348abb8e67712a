//! Memcached, text protocol: gets and sets of random keys, one at a time on each connection.

use anyhow::{Context, Result, bail};

use super::plan::REQUESTS_STREAM;
use super::protocol::{Protocol, Reply, excerpt, first_line};
use crate::rng::Rng;

/// Keys in use.
const KEYS: usize = 20_000;
/// Every tenth request on average sets its key; the others get their key, if it is set.
const SET_ONE_IN: usize = 10;
/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// The end of the reply to a get.
const END: &[u8] = b"END\r\n";

/// Random gets and sets.
#[derive(Debug)]
pub struct Memcached {
    rng: Rng,
    request: Vec<u8>,
}

impl Memcached {
    /// The request stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Memcached { rng: Rng::new(seed, REQUESTS_STREAM), request: Vec::new() }
    }
}

impl Protocol for Memcached {
    fn next_request(&mut self) -> &[u8] {
        let key = self.rng.below(KEYS);
        self.request = if self.rng.below(SET_ONE_IN) == 0 {
            format!("set sidelane-lab:{key:08} 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)).into_bytes()
        } else {
            format!("get sidelane-lab:{key:08}\r\n").into_bytes()
        };
        &self.request
    }

    fn reply(&self, received: &[u8]) -> Result<Reply> {
        let Some((line, start)) = first_line(received) else {
            return Ok(Reply::Partial);
        };
        match line.split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"STORED" | b"END" => Ok(Reply::Whole { length: start }),
            b"VALUE" => value_reply(line, start, received),
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
                Ok(Reply::Error { length: start, message: String::from_utf8_lossy(line).into_owned() })
            }
            _ => bail!("not a reply of memcached to get or set: {}", excerpt(received)),
        }
    }
}

/// A value: `line` ends with its length; from `start` on follow that many bytes, a line end and the
/// end of the reply.
fn value_reply(line: &[u8], start: usize, received: &[u8]) -> Result<Reply> {
    let size = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let size: usize = std::str::from_utf8(size)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .with_context(|| format!("a value of memcached has no length: {}", excerpt(line)))?;
    let length = start + size + 2 + END.len();
    Ok(if received.len() < length { Reply::Partial } else { Reply::Whole { length } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_in_pieces_are_whole_at_their_last_byte() {
        let memcached = Memcached::new(1);
        for reply in [&b"STORED\r\n"[..], b"END\r\n", b"VALUE k 0 5\r\na\r\nbc\r\nEND\r\n"] {
            for length in 0..reply.len() {
                assert_eq!(memcached.reply(&reply[..length]).unwrap(), Reply::Partial, "{length} bytes");
            }
            assert_eq!(memcached.reply(reply).unwrap(), Reply::Whole { length: reply.len() });
        }
    }

    #[test]
    fn errors_and_nonsense_are_told_apart() {
        let memcached = Memcached::new(1);
        let expected = Reply::Error { length: 7, message: "ERROR".into() };
        assert_eq!(memcached.reply(b"ERROR\r\n").unwrap(), expected);
        assert!(memcached.reply(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    }
}
