//! Fuzz tests of the parsers with mutated bytes. They must not panic, and must not depend on how the bytes are split.
//!
//! The seed inputs are in `tests/fuzz/http` and `tests/fuzz/resp` at the root of the repository.

use sidelane_proxy::http::{Body, Forwarded, Peer, RequestNumber, ResponseContext, read_request, read_response};
use sidelane_proxy::resp::{CommandReader, ReplyScanner};

#[path = "redis_model/mod.rs"]
mod redis_model;

const LIMIT: usize = 4096;

fn peer_in_mode(mode: Forwarded) -> Peer {
    Peer::new(mode, [192, 0, 2, 1].into(), false)
}

/// Parses a message all at once. Returns how many bytes belong to it, and whether it is complete.
fn parse_message(bytes: &[u8], is_request: bool, out: &mut Vec<u8>) -> Option<(usize, bool)> {
    out.clear();
    let (head, mut body) = if is_request {
        let head = read_request(bytes, LIMIT, &peer_in_mode(Forwarded::Set), out).ok()??;
        // The head that was written for the server must be parsed in the same way.
        let mut again = Vec::new();
        let second = read_request(out, 2 * LIMIT, &peer_in_mode(Forwarded::Off), &mut again)
            .expect("what we write is right")
            .expect("and whole");
        assert_eq!((second.body, second.is_old, &again), (head.body, head.is_old, &*out));
        (head.bytes, head.body)
    } else {
        let wanted = ResponseContext {
            number: RequestNumber { id: 1, mark: 2 },
            is_head: false,
            is_old: false,
            keeps_alive: true,
            has_via: true,
        };
        let head = read_response(bytes, LIMIT, wanted, out).ok()??;
        (head.bytes, head.body)
    };
    let taken = body.consume(&bytes[head..]).ok()?;
    assert_eq!(
        consume_bytewise(&bytes[head..], if is_request { parsed_request_body(bytes, out) } else { None }),
        Some(taken).filter(|_| is_request)
    );
    Some((head + taken, body.is_complete()))
}

fn parsed_request_body(bytes: &[u8], out: &mut Vec<u8>) -> Option<Body> {
    out.clear();
    Some(read_request(bytes, LIMIT, &peer_in_mode(Forwarded::Add), out).ok()??.body)
}

/// Takes in a body as [`Body::consume`] does, but byte by byte.
fn consume_bytewise(bytes: &[u8], body: Option<Body>) -> Option<usize> {
    let mut body = body?;
    bytes.iter().try_fold(0, |sum, byte| Some(sum + body.consume(&[*byte]).ok()?))
}

/// Checks that replies end at the same places for different splits of the bytes.
fn check_reply_splits(bytes: &[u8]) {
    assert_eq!(reply_ends(bytes, 1), reply_ends(bytes, bytes.len().max(1)), "{}", bytes.escape_ascii());
}

fn reply_ends(bytes: &[u8], step_bytes: usize) -> Vec<usize> {
    let (mut scanner, mut start, mut came, mut ends) = (ReplyScanner::default(), 0, 0, Vec::new());
    while came < bytes.len() {
        came = (came + step_bytes).min(bytes.len());
        loop {
            let Ok((count, is_whole)) = scanner.scan(&bytes[start..came]) else { return ends };
            scanner.consume_scanned();
            start += count;
            if !is_whole {
                break;
            }
            ends.push(start);
        }
    }
    ends
}

#[test]
fn fuzzed_messages_are_read_or_refused_and_never_in_two_ways() {
    let mut out = Vec::new();
    let (mut inputs, mut accepted) = (0, 0);
    sidelane_testing::fuzz("http", |bytes| {
        let whole = parse_message(bytes, true, &mut out);
        inputs += 1;
        accepted += usize::from(whole.is_some());
        if let Some((length, true)) = whole {
            // Bytes after a complete message must not change its length.
            let followed = [&bytes[..length], b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
            assert_eq!(parse_message(&followed, true, &mut out), Some((length, true)));
        }
        parse_message(bytes, false, &mut out);
    });
    // Skip the check if the fuzzer runs another parser.
    assert!(inputs == 0 || accepted > inputs / 50, "the inputs get past the first line: {accepted} of {inputs}");
}

#[test]
fn fuzzed_commands_are_read_as_redis_reads_them() {
    let (mut inputs, mut commands) = (0, 0);
    sidelane_testing::fuzz("resp", |bytes| {
        commands += redis_model::check_reader(bytes, || CommandReader::new(LIMIT));
        check_reply_splits(bytes);
        inputs += 1;
    });
    // Skip the check if the fuzzer runs another parser.
    assert!(inputs == 0 || commands > inputs / 10, "the inputs are commands: {commands} of {inputs}");
}
