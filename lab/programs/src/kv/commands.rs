//! The commands of Redis that the lab's key-value server understands.
//!
//! `GET`, `SET`, `SAVE` and `PING` do the same as in Redis. Scans use sorted sets, since Redis orders the members of a
//! sorted set with equal scores. Records for scans are therefore members `KEY:VALUE` of a sorted set. `ZADD` and
//! `ZRANGEBYLEX` with `LIMIT` do the same as in Redis.

use anyhow::{Context, Result, bail, ensure};

use super::store::Store;
use crate::resp;
use crate::server::{AnswerOutcome, ConnectionAction, RequestHandler};

/// Separator of key and value in a sorted-set member. No key contains it.
const SEPARATOR: u8 = b':';
/// Largest number of records in one scan.
const SCAN_MAX: usize = 100_000;

/// Key-value store behind the commands of Redis.
pub struct Commands(Box<dyn Store>);

impl Commands {
    /// Returns a command interpreter for `store`.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self(store)
    }

    fn execute(&mut self, words: &[&[u8]], reply: &mut Vec<u8>) -> Result<()> {
        match words {
            [b"PING"] => reply.extend_from_slice(b"+PONG\r\n"),
            [b"GET", key] => match self.0.get(key)? {
                Some(value) => resp::encode_bulk(reply, &value),
                None => reply.extend_from_slice(b"$-1\r\n"),
            },
            [b"SET", key, value] => {
                self.0.put(key, value)?;
                reply.extend_from_slice(b"+OK\r\n");
            }
            [b"SAVE"] => {
                self.0.save()?;
                reply.extend_from_slice(b"+OK\r\n");
            }
            [b"ZADD", _, b"0", member] => {
                let (key, value) = split_member(member)?;
                self.0.put(key, value)?;
                reply.extend_from_slice(b":1\r\n");
            }
            [b"ZRANGEBYLEX", _, start, b"+", b"LIMIT", b"0", count] => self.scan_range(start, count, reply)?,
            _ => bail!("unknown command {}", resp::excerpt(&words.join(&b" "[..]))),
        }
        Ok(())
    }

    fn scan_range(&mut self, start: &[u8], count: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        let start =
            start.strip_prefix(b"[").context("ZRANGEBYLEX needs a start of `[KEY`; no other range is supported")?;
        let count: usize = std::str::from_utf8(count)?.parse().context("ZRANGEBYLEX needs a number after LIMIT 0")?;
        ensure!(count <= SCAN_MAX, "ZRANGEBYLEX returns at most {SCAN_MAX} records");
        let mut members = Vec::new();
        self.0.scan(start, count, &mut |key, value| members.push([key, value].join(&SEPARATOR)))?;
        resp::encode_array(reply, &members.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Ok(())
    }
}

impl RequestHandler for Commands {
    fn answer_first_request(&mut self, received: &[u8], reply: &mut Vec<u8>) -> AnswerOutcome {
        match resp::parse_command(received) {
            Ok(None) => AnswerOutcome::Partial,
            Ok(Some(resp::Command { words, length })) => {
                if let Err(error) = self.execute(&words, reply) {
                    write_error_reply(reply, &error);
                }
                AnswerOutcome::Whole { length, fate: ConnectionAction::Keep }
            }
            Err(error) => {
                write_error_reply(reply, &error);
                AnswerOutcome::Whole { length: received.len(), fate: ConnectionAction::Close }
            }
        }
    }
}

fn split_member(member: &[u8]) -> Result<(&[u8], &[u8])> {
    let at = member.iter().position(|byte| *byte == SEPARATOR);
    let at = at.context("a member is a key, a colon and a value")?;
    Ok((&member[..at], &member[at + 1..]))
}

/// Replaces the reply with an error, which must be one line.
fn write_error_reply(reply: &mut Vec<u8>, error: &anyhow::Error) {
    reply.clear();
    let message = format!("{error:#}").replace(['\r', '\n'], " ");
    reply.extend_from_slice(format!("-ERR {message}\r\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct InMemory(BTreeMap<Vec<u8>, Vec<u8>>);

    impl Store for InMemory {
        fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
            Ok(self.0.get(key).cloned())
        }

        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.insert(key.to_vec(), value.to_vec());
            Ok(())
        }

        fn scan(&mut self, start: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
            self.0.range(start.to_vec()..).take(count).for_each(|(key, value)| each(key, value));
            Ok(())
        }

        fn save(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[track_caller]
    fn execute_words(commands: &mut Commands, words: &[&str]) -> String {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        resp::encode_array(&mut request, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        let whole = AnswerOutcome::Whole { length: request.len(), fate: ConnectionAction::Keep };
        assert_eq!(commands.answer_first_request(&request, &mut reply), whole);
        assert_eq!(
            commands.answer_first_request(&request[..request.len() - 1], &mut Vec::new()),
            AnswerOutcome::Partial
        );
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn commands_behave_as_in_redis() {
        let mut commands = Commands::new(Box::new(InMemory(BTreeMap::new())));
        assert_eq!(execute_words(&mut commands, &["GET", "a"]), "$-1\r\n");
        assert_eq!(execute_words(&mut commands, &["SET", "a", "1"]), "+OK\r\n");
        assert_eq!(execute_words(&mut commands, &["ZADD", "records", "0", "b:2:3"]), ":1\r\n");
        assert_eq!(execute_words(&mut commands, &["GET", "b"]), "$3\r\n2:3\r\n");
        let range = |start, count| ["ZRANGEBYLEX", "records", start, "+", "LIMIT", "0", count];
        assert_eq!(execute_words(&mut commands, &range("[a", "5")), "*2\r\n$3\r\na:1\r\n$5\r\nb:2:3\r\n");
        assert_eq!(execute_words(&mut commands, &range("[aa", "5")), "*1\r\n$5\r\nb:2:3\r\n");
        assert_eq!(execute_words(&mut commands, &range("[c", "5")), "*0\r\n");
    }

    #[test]
    fn unknown_commands_are_errors() {
        let mut commands = Commands::new(Box::new(InMemory(BTreeMap::new())));
        assert!(execute_words(&mut commands, &["FLUSHALL"]).starts_with("-ERR unknown command \"FLUSHALL\""));
        assert!(execute_words(&mut commands, &["ZADD", "records", "0", "none"]).starts_with("-ERR a member is"));
        let mut reply = Vec::new();
        assert_eq!(
            commands.answer_first_request(b"GET a\r\n", &mut reply),
            AnswerOutcome::Whole { length: 7, fate: ConnectionAction::Close }
        );
        assert!(reply.starts_with(b"-ERR not a command"));
    }
}
