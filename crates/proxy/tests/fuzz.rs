//! Mutated bytes at the edge of the parsers: no panic, and the same reading however the bytes are split.
//!
//! `make fuzz` runs ten million inputs; the ordinary test runs some thousands.

use sidelane_proxy::http::{Body, Number, Wanted, read_request, read_response};
use sidelane_proxy::resp::Scanner;

const LIMIT: usize = 4096;

const SEEDS: [&[u8]; 14] = [
    b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET / HTTP/1.0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: x\r\n\r\nhi",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    b"HTTP/1.0 200\r\n\r\nuntil the end",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n",
    b"PING\r\n*1\r\n$4\r\nPING\r\n",
    b"*2\r\n:1\r\n%1\r\n+a\r\n|1\r\n+k\r\n_\r\n#t\r\n",
    b"$-1\r\n-ERR x\r\n",
];
const TOKENS: [&[u8]; 14] = [
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b" ",
    b"\0",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"chunked",
    b"0\r\n\r\n",
    b"ffffffffffffffff",
    b"-1",
    b"*9999999999\r\n",
    b"$18446744073709551615\r\n",
];

/// Random numbers (xorshift), the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(5) {
        0 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        1 if at < bytes.len() => drop(bytes.remove(at)),
        2 => drop(bytes.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
        3 => {
            let other = SEEDS[random.below(SEEDS.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len())..]);
        }
        _ => bytes.truncate(at),
    }
}

/// How many bytes of a message belong to it, as far as it has come, read all at once.
fn message(bytes: &[u8], is_request: bool, out: &mut Vec<u8>) -> Option<(usize, bool)> {
    out.clear();
    let (head, mut body) = if is_request {
        let head = read_request(bytes, LIMIT, out).ok()??;
        // What goes to a server is read by it as it was meant.
        let mut again = Vec::new();
        let second = read_request(out, 2 * LIMIT, &mut again).expect("what we write is right").expect("and whole");
        assert_eq!((second.body, second.is_old, &again), (head.body, head.is_old, &*out));
        (head.bytes, head.body)
    } else {
        let wanted = Wanted { number: Number { id: 1, mark: 2 }, is_head: false, is_old: false, keeps_alive: true };
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
    Some(read_request(bytes, LIMIT, out).ok()??.body)
}

/// As [`Body::take`], a byte at a time.
fn split(bytes: &[u8], body: Option<Body>) -> Option<usize> {
    let mut body = body?;
    bytes.iter().try_fold(0, |sum, byte| Some(sum + body.take(&[*byte]).ok()?))
}

fn frames(bytes: &[u8], mut scanner: Scanner) {
    let mut start = 0;
    while let Ok(Some(length)) = scanner.next(&bytes[start..]) {
        assert!(length > 0 && start + length <= bytes.len());
        start += length;
    }
}

fn run(inputs: usize, seed: u64) {
    let (mut random, mut out, mut accepted) = (Random(seed), Vec::new(), 0);
    for _ in 0..inputs {
        let mut bytes = SEEDS[random.below(SEEDS.len())].to_vec();
        (0..random.below(6)).for_each(|_| mutate(&mut bytes, &mut random));
        let whole = message(&bytes, true, &mut out);
        accepted += usize::from(whole.is_some());
        if let Some((length, true)) = whole {
            // A message that is over is not changed by what follows it.
            bytes.truncate(length);
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            assert_eq!(message(&bytes, true, &mut out), Some((length, true)), "{}", bytes.escape_ascii());
        }
        message(&bytes, false, &mut out);
        frames(&bytes, Scanner::of_commands(LIMIT));
        frames(&bytes, Scanner::of_replies(LIMIT));
    }
    assert!(accepted > inputs / 20, "the inputs get past the first line: {accepted} of {inputs}");
}

#[test]
fn mutated_bytes_are_read_or_refused_and_never_in_two_ways() {
    run(20_000, 0x5eed_5eed);
}

#[test]
#[ignore = "takes minutes: make fuzz"]
fn ten_million_mutated_inputs_are_read_or_refused_and_never_in_two_ways() {
    run(10_000_000, 0x0dd5_eed5);
}
