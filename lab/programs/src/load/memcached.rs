//! The text protocol of memcached: one request at a time on each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::mix::Mix;
use super::protocol::{Kind, Protocol, Reply};
use crate::resp::{excerpt, first_line};

/// End marker of memcached's reply to a get.
const END: &[u8] = b"END\r\n";
/// Reply of memcached to a successful set.
const STORED: &[u8] = b"STORED\r\n";
/// Number of records sent at once when the store is filled; the replies to this many fit into any socket's buffer.
const PREPARE_BATCH: usize = 500;

/// Requests of a mix, in the protocol of memcached.
#[derive(Debug)]
pub struct Memcached {
    mix: Mix,
    request: Vec<u8>,
}

impl Memcached {
    /// Returns the requests of `mix`. Fails for a mix with scans, which memcached lacks.
    pub fn new(mix: Mix) -> Result<Self> {
        ensure!(!mix.name().has_scans(), "memcached has no scans, so it has no mix `e`; use `a` or `b`");
        Ok(Memcached { mix, request: Vec::new() })
    }

    fn encode_set(&mut self, record: u64) {
        let key = self.mix.key(record);
        let value = self.mix.value();
        self.request.extend_from_slice(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
        self.request.extend_from_slice(value);
        self.request.extend_from_slice(b"\r\n");
    }

    fn set_all(&mut self, stream: &mut TcpStream, records: std::ops::Range<u64>) -> Result<()> {
        self.request.clear();
        let mut replies = vec![0; STORED.len() * (records.end - records.start) as usize];
        records.for_each(|record| self.encode_set(record));
        stream.write_all(&self.request).context("cannot send")?;
        stream.read_exact(&mut replies).context("the service closed the connection, or is not memcached")?;
        if replies.chunks(STORED.len()).any(|reply| reply != STORED) {
            bail!("the service did not accept a record: {}", excerpt(&replies));
        }
        Ok(())
    }
}

impl Protocol for Memcached {
    /// Stores all records once, so that every get finds its record.
    fn prepare_service(&mut self, target: SocketAddr) -> Result<()> {
        let mut stream = TcpStream::connect(target).context("cannot connect; is the service running there?")?;
        let records = self.mix.records();
        (0..records)
            .step_by(PREPARE_BATCH)
            .try_for_each(|first| self.set_all(&mut stream, first..records.min(first + PREPARE_BATCH as u64)))
    }

    fn next_request(&mut self) -> (Kind, &[u8]) {
        let operation = self.mix.next_operation();
        self.request.clear();
        if operation.kind == Kind::Update {
            self.encode_set(operation.record);
        } else {
            self.request.extend_from_slice(format!("get {}\r\n", self.mix.key(operation.record)).as_bytes());
        }
        (operation.kind, &self.request)
    }

    fn parse_reply(&self, received: &[u8]) -> Result<Reply> {
        let Some((line, start)) = first_line(received) else {
            return Ok(Reply::Partial);
        };
        match line.split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"STORED" | b"END" => Ok(Reply::Whole { length: start }),
            b"VALUE" => parse_value_reply(line, start, received),
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
                Ok(Reply::Error { length: start, message: String::from_utf8_lossy(line).into_owned() })
            }
            _ => bail!("not a reply of memcached to get or set: {}", excerpt(received)),
        }
    }
}

/// Parses the reply to a get that found a value. `line` ends with the length of the value. The value starts at `start`;
/// a line end and `END` follow it.
fn parse_value_reply(line: &[u8], start: usize, received: &[u8]) -> Result<Reply> {
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
    use crate::load::mix::MixName;

    fn memcached_with_plain_mix() -> Memcached {
        Memcached::new(Mix::new(MixName::Plain, 1000, 0.0, 1)).unwrap()
    }

    #[test]
    fn partial_reply_is_complete_at_its_last_byte() {
        let memcached = memcached_with_plain_mix();
        for reply in [&b"STORED\r\n"[..], b"END\r\n", b"VALUE k 0 5\r\na\r\nbc\r\nEND\r\n"] {
            for length in 0..reply.len() {
                assert_eq!(memcached.parse_reply(&reply[..length]).unwrap(), Reply::Partial, "{length} bytes");
            }
            assert_eq!(memcached.parse_reply(reply).unwrap(), Reply::Whole { length: reply.len() });
        }
    }

    #[test]
    fn error_replies_differ_from_malformed_replies() {
        let memcached = memcached_with_plain_mix();
        let expected = Reply::Error { length: 7, message: "ERROR".into() };
        assert_eq!(memcached.parse_reply(b"ERROR\r\n").unwrap(), expected);
        assert!(memcached.parse_reply(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    }

    #[test]
    fn scans_are_refused() {
        let refused = Memcached::new(Mix::new(MixName::E, 10, 0.0, 1)).unwrap_err().to_string();
        assert!(refused.contains("no scans"), "{refused}");
    }
}
