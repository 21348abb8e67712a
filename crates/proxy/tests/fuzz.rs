//! Fuzz tests of the parsers with mutated bytes. They must not panic, and must not depend on how the bytes are split.
//!
//! The seed inputs are in `tests/fuzz/http` and `tests/fuzz/resp` at the root of the repository.

use sidelane_proxy::http::{Body, Forwarded, Number, Peer, ResponseContext, read_request, read_response};
use sidelane_proxy::resp::{CommandReader, Scanner};

#[path = "redis_model/mod.rs"]
mod redis_model;

const LIMIT: usize = 4096;

fn peer(mode: Forwarded) -> Peer {
    Peer::new(mode, [192, 0, 2, 1].into())
}

/// Parses a message all at once. Returns how many bytes belong to it, and whether it is complete.
fn message(bytes: &[u8], is_request: bool, out: &mut Vec<u8>) -> Option<(usize, bool)> {
    out.clear();
    let (head, mut body) = if is_request {
        let head = read_request(bytes, LIMIT, &peer(Forwarded::Set), out).ok()??;
        // Check that the head for the server is parsed in the same way.
        let mut again = Vec::new();
        let second = read_request(out, 2 * LIMIT, &peer(Forwarded::Off), &mut again)
            .expect("what we write is right")
            .expect("and whole");
        assert_eq!((second.body, second.is_old, &again), (head.body, head.is_old, &*out));
        (head.bytes, head.body)
    } else {
        let wanted = ResponseContext {
            number: Number { id: 1, mark: 2 },
            is_head: false,
            is_old: false,
            keeps_alive: true,
            has_via: true,
        };
        let head = read_response(bytes, LIMIT, wanted, out).ok()??;
        (head.bytes, head.body)
    };
    let taken = body.take(&bytes[head..]).ok()?;
    assert_eq!(
        split(&bytes[head..], if is_request { body_of(bytes, out) } else { None }),
        Some(taken).filter(|_| is_request)
    );
    Some((head + taken, body.is_over()))
}

fn body_of(bytes: &[u8], out: &mut Vec<u8>) -> Option<Body> {
    out.clear();
    Some(read_request(bytes, LIMIT, &peer(Forwarded::Add), out).ok()??.body)
}

/// Takes in a body as [`Body::take`] does, but byte by byte.
fn split(bytes: &[u8], body: Option<Body>) -> Option<usize> {
    let mut body = body?;
    bytes.iter().try_fold(0, |sum, byte| Some(sum + body.take(&[*byte]).ok()?))
}

/// Checks that replies end at the same places for different splits of the bytes.
fn replies(bytes: &[u8]) {
    assert_eq!(ends(bytes, 1), ends(bytes, bytes.len().max(1)), "{}", bytes.escape_ascii());
}

fn ends(bytes: &[u8], step: usize) -> Vec<usize> {
    let (mut scanner, mut start, mut came, mut ends) = (Scanner::default(), 0, 0, Vec::new());
    while came < bytes.len() {
        came = (came + step).min(bytes.len());
        loop {
            let Ok((count, is_whole)) = scanner.next(&bytes[start..came]) else { return ends };
            scanner.take();
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
        let whole = message(bytes, true, &mut out);
        inputs += 1;
        accepted += usize::from(whole.is_some());
        if let Some((length, true)) = whole {
            // Bytes after a complete message must not change its length.
            let followed = [&bytes[..length], b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
            assert_eq!(message(&followed, true, &mut out), Some((length, true)));
        }
        message(bytes, false, &mut out);
    });
    // Skip the check if the fuzzer runs another parser.
    assert!(inputs == 0 || accepted > inputs / 50, "the inputs get past the first line: {accepted} of {inputs}");
}

#[test]
fn fuzzed_commands_are_read_as_redis_reads_them() {
    let (mut inputs, mut commands) = (0, 0);
    sidelane_testing::fuzz("resp", |bytes| {
        commands += redis_model::judge(bytes, || CommandReader::new(LIMIT));
        replies(bytes);
        inputs += 1;
    });
    // Skip the check if the fuzzer runs another parser.
    assert!(inputs == 0 || commands > inputs / 10, "the inputs are commands: {commands} of {inputs}");
}
