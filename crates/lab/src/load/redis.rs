//! Redis: GET and SET of random keys, one at a time on each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::plan::REQUESTS_STREAM;
use super::protocol::{Protocol, Reply, excerpt, first_line};
use crate::rng::Rng;

/// Keys in use: a few megabytes in the server, more than its share of the caches holds.
const KEYS: usize = 20_000;

/// Every tenth request on average sets its key; the others get it.
const SET_ONE_IN: usize = 10;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// Keys set at once during preparation: their replies fit into any socket's buffer.
const PREPARE_BATCH: usize = 500;

/// Random GETs and SETs.
#[derive(Debug)]
pub struct Redis {
    rng: Rng,
    request: Vec<u8>,
}

impl Redis {
    /// The request stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Redis { rng: Rng::new(seed, REQUESTS_STREAM), request: Vec::new() }
    }
}

impl Protocol for Redis {
    /// Sets all keys once, so that every GET finds a value.
    fn prepare(&mut self, target: SocketAddr) -> Result<()> {
        let mut stream = TcpStream::connect(target).context("cannot connect; is the service running there?")?;
        let keys: Vec<usize> = (0..KEYS).collect();
        keys.chunks(PREPARE_BATCH).try_for_each(|batch| set_all(&mut stream, batch))
    }

    fn next_request(&mut self) -> &[u8] {
        let key = self.rng.below(KEYS);
        self.request.clear();
        if self.rng.below(SET_ONE_IN) == 0 {
            encode_set(&mut self.request, key);
        } else {
            encode(&mut self.request, &[b"GET", name(key).as_bytes()]);
        }
        &self.request
    }

    fn reply(&self, received: &[u8]) -> Result<Reply> {
        let Some(kind) = received.first() else {
            return Ok(Reply::Partial);
        };
        ensure!(b"+-$".contains(kind), "not a reply of Redis to GET or SET: {}", excerpt(received));
        let Some((line, start)) = first_line(received) else {
            return Ok(Reply::Partial);
        };
        match kind {
            b'+' => Ok(Reply::Whole { length: start }),
            b'-' => Ok(error_reply(&line[1..], start)),
            _ => bulk_reply(&line[1..], start, received.len()),
        }
    }
}

fn error_reply(message: &[u8], length: usize) -> Reply {
    let message = String::from_utf8_lossy(message).into_owned();
    Reply::Error { length, message }
}

/// A bulk string: `digits` is its length; from `start` on follow that many bytes and a line end. A
/// length of −1 means that there is no value.
fn bulk_reply(digits: &[u8], start: usize, received: usize) -> Result<Reply> {
    let size: i64 = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .with_context(|| format!("a reply of Redis has no length: {}", excerpt(digits)))?;
    let length = match usize::try_from(size) {
        Ok(size) => start + size + 2,
        Err(_negative) => start,
    };
    Ok(if received < length { Reply::Partial } else { Reply::Whole { length } })
}

fn name(key: usize) -> String {
    format!("sidelane-lab:{key:08}")
}

fn encode_set(out: &mut Vec<u8>, key: usize) {
    encode(out, &[b"SET", name(key).as_bytes(), &[b'v'; VALUE_BYTES]]);
}

/// A command as an array of bulk strings.
fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn set_all(stream: &mut TcpStream, keys: &[usize]) -> Result<()> {
    const OK: &[u8] = b"+OK\r\n";
    let mut commands = Vec::new();
    keys.iter().for_each(|&key| encode_set(&mut commands, key));
    stream.write_all(&commands).context("cannot send")?;
    let mut replies = vec![0; OK.len() * keys.len()];
    stream.read_exact(&mut replies).context("the service closed the connection, or does not speak Redis")?;
    if replies.chunks(OK.len()).any(|reply| reply != OK) {
        bail!("the service did not accept a SET: {}", excerpt(&replies));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_whole_only_at_end(reply: &[u8]) {
        let redis = Redis::new(1);
        for length in 0..reply.len() {
            assert_eq!(redis.reply(&reply[..length]).unwrap(), Reply::Partial, "{length} bytes");
        }
        assert_eq!(redis.reply(reply).unwrap(), Reply::Whole { length: reply.len() });
    }

    #[test]
    fn replies_in_pieces_are_whole_at_their_last_byte() {
        assert_whole_only_at_end(b"+OK\r\n");
        assert_whole_only_at_end(b"$5\r\na\r\nbc\r\n");
        assert_whole_only_at_end(b"$-1\r\n");
    }

    #[test]
    fn errors_and_nonsense_are_told_apart() {
        let redis = Redis::new(1);
        let expected = Reply::Error { length: 9, message: "ERR no".into() };
        assert_eq!(redis.reply(b"-ERR no\r\n").unwrap(), expected);
        assert!(redis.reply(b"HTTP/1.1 400 Bad Request\r\n").is_err());
        assert!(redis.reply(b"$many\r\n").is_err());
    }

    #[test]
    fn commands_are_encoded() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &[b"GET", b"k"]);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn one_request_in_ten_sets() {
        let mut redis = Redis::new(1);
        let sets = (0..10_000).filter(|_| redis.next_request().starts_with(b"*3")).count();
        assert!((900..1100).contains(&sets), "{sets} SETs");
    }
}
