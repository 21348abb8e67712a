//! The protocol of Redis, for Redis and the lab's key-value server: one request at a time on each connection.
//!
//! Records that are to be scanned are members `KEY:VALUE` of one sorted set whose scores are equal; Redis keeps such
//! members in the order of their bytes. Other records are strings.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::mix::Mix;
use super::protocol::{Kind, Protocol, Reply};
use crate::resp::{encode_array, excerpt, first_line, first_value_length};

/// Number of records sent at once when the store is filled; the replies to this many fit into any socket's buffer.
const PREPARE_BATCH: usize = 500;

/// Name of the sorted set with the records.
const SET: &[u8] = b"records";

/// Requests of a mix, in the protocol of Redis.
#[derive(Debug)]
pub struct Redis {
    mix: Mix,
    request: Vec<u8>,
}

impl Redis {
    /// Returns the requests of `mix` in the protocol of Redis.
    pub fn new(mix: Mix) -> Self {
        Redis { mix, request: Vec::new() }
    }

    /// Appends the command that stores a record.
    fn encode_store_command(&mut self, record: u64) {
        let key = self.mix.key(record);
        if self.mix.name().has_scans() {
            let member = [key.as_bytes(), self.mix.value()].join(&b':');
            encode_array(&mut self.request, &[b"ZADD", SET, b"0", &member]);
        } else {
            encode_array(&mut self.request, &[b"SET", key.as_bytes(), self.mix.value()]);
        }
    }

    fn encode_scan(&mut self, record: u64, count: usize) {
        let (start, count) = (format!("[{}", self.mix.key(record)), count.to_string());
        let command: [&[u8]; 7] = [b"ZRANGEBYLEX", SET, start.as_bytes(), b"+", b"LIMIT", b"0", count.as_bytes()];
        encode_array(&mut self.request, &command);
    }

    fn store_all(&mut self, stream: &mut TcpStream, records: std::ops::Range<u64>) -> Result<()> {
        self.request.clear();
        let expected = if self.mix.name().has_scans() { ":1\r\n".len() } else { "+OK\r\n".len() };
        let count = (records.end - records.start) as usize;
        records.for_each(|record| self.encode_store_command(record));
        stream.write_all(&self.request).context("cannot send")?;
        let mut replies = vec![0; expected * count];
        stream.read_exact(&mut replies).context("the service closed the connection, or does not speak Redis")?;
        if replies.chunks(expected).any(|reply| !b"+:".contains(&reply[0])) {
            bail!("the service did not accept a record: {}", excerpt(&replies));
        }
        Ok(())
    }
}

impl Protocol for Redis {
    /// Stores all records once, so that every read finds its record.
    fn prepare_service(&mut self, target: SocketAddr) -> Result<()> {
        let mut stream = TcpStream::connect(target).context("cannot connect; is the service running there?")?;
        let records = self.mix.records();
        (0..records)
            .step_by(PREPARE_BATCH)
            .try_for_each(|first| self.store_all(&mut stream, first..records.min(first + PREPARE_BATCH as u64)))
    }

    fn next_request(&mut self) -> (Kind, &[u8]) {
        let operation = self.mix.next_operation();
        self.request.clear();
        match operation.kind {
            Kind::Update | Kind::Insert => self.encode_store_command(operation.record),
            Kind::Scan => self.encode_scan(operation.record, operation.count),
            Kind::Read | Kind::Search => {
                encode_array(&mut self.request, &[b"GET", self.mix.key(operation.record).as_bytes()]);
            }
        }
        (operation.kind, &self.request)
    }

    fn parse_reply(&self, received: &[u8]) -> Result<Reply> {
        let Some(length) = first_value_length(received).context("cannot parse the reply; is the service Redis?")?
        else {
            return Ok(Reply::Partial);
        };
        let Some(message) = received.strip_prefix(b"-") else {
            return Ok(Reply::Whole { length });
        };
        let (line, _) = first_line(message).context("the error reply has no line end; is the service Redis?")?;
        ensure!(
            length == line.len() + 3,
            "the error reply {} is not one line; is the service Redis?",
            excerpt(received)
        );
        Ok(Reply::Error { length, message: String::from_utf8_lossy(line).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::mix::MixName;
    use crate::resp::{Command, parse_command};

    fn redis_with_mix(name: MixName) -> Redis {
        Redis::new(Mix::new(name, 1000, 1000.0, 1))
    }

    #[test]
    fn error_replies_differ_from_malformed_replies() {
        let redis = redis_with_mix(MixName::Plain);
        let expected = Reply::Error { length: 9, message: "ERR no".into() };
        assert_eq!(redis.parse_reply(b"-ERR no\r\n").unwrap(), expected);
        assert_eq!(redis.parse_reply(b"-ERR no\r").unwrap(), Reply::Partial);
        assert_eq!(redis.parse_reply(b"*1\r\n$1\r\na\r\n").unwrap(), Reply::Whole { length: 11 });
        assert!(redis.parse_reply(b"HTTP/1.1 400 Bad Request\r\n").is_err());
        assert!(redis.parse_reply(b"$many\r\n").is_err());
    }

    #[test]
    fn each_kind_of_request_is_a_command() {
        for (name, commands) in [(MixName::Plain, ["GET", "SET"]), (MixName::E, ["ZADD", "ZRANGEBYLEX"])] {
            let mut redis = redis_with_mix(name);
            let mut seen: Vec<String> = Vec::new();
            for _ in 0..500 {
                let (_, request) = redis.next_request();
                let Command { words, length } = parse_command(request).unwrap().unwrap();
                assert_eq!(length, request.len());
                seen.push(String::from_utf8_lossy(words[0]).into_owned());
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, commands);
        }
    }

    #[test]
    fn sorted_set_member_holds_key_and_value() {
        let mut redis = redis_with_mix(MixName::E);
        redis.encode_store_command(7);
        let Command { words, .. } = parse_command(&redis.request).unwrap().unwrap();
        let key = redis.mix.key(7);
        assert_eq!(&words[..3], [b"ZADD", SET, b"0"]);
        assert_eq!(
            (&words[3][..key.len()], words[3][key.len()], words[3].len()),
            (key.as_bytes(), b':', key.len() + 1001)
        );
    }
}
