//! The part of Redis' protocol (RESP 2) that the lab uses: commands are arrays of bulk strings, and a reply is a line,
//! a bulk string or an array.

use anyhow::{Context, Result, bail, ensure};

/// Largest accepted number of array elements or string bytes; more counts as a protocol error.
const SIZE_MAX: i64 = 64 << 20;

/// Appends an array of bulk strings: a command, or a reply of several values.
pub fn encode_array(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| encode_bulk(out, word));
}

/// Appends one bulk string.
pub fn encode_bulk(out: &mut Vec<u8>, word: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Returns the length in bytes of the first value in `received`; `None` if its end has not arrived.
pub fn first_value_length(received: &[u8]) -> Result<Option<usize>> {
    let Some(kind) = received.first() else {
        return Ok(None);
    };
    ensure!(b"+-:$*".contains(kind), "not a value of the protocol of Redis: {}", excerpt(received));
    let Some((line, start)) = first_line(received) else {
        return Ok(None);
    };
    match kind {
        b'$' => Ok(bulk_end(parse_size(line)?, start).filter(|end| *end <= received.len())),
        b'*' => array_end(received, parse_size(line)?, start),
        _ => Ok(Some(start)),
    }
}

/// Command of Redis that a client sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Name and arguments of the command.
    pub words: Vec<&'a [u8]>,
    /// Length of the encoded command in bytes.
    pub length: usize,
}

/// Returns the first command in `received`; `None` if its end has not arrived.
pub fn parse_command(received: &[u8]) -> Result<Option<Command<'_>>> {
    ensure!(received.first().is_none_or(|first| *first == b'*'), "not a command: {}", excerpt(received));
    let Some(length) = first_value_length(received)? else {
        return Ok(None);
    };
    let (line, mut at) = first_line(received).context("an array has a first line")?;
    let mut words = Vec::new();
    for _ in 0..parse_size(line)?.max(0) {
        let Some((line, start)) = first_line(&received[at..length]).filter(|(line, _)| line.starts_with(b"$")) else {
            bail!("not a command, which is an array of strings: {}", excerpt(received));
        };
        let bytes = usize::try_from(parse_size(line)?).context("a word of a command has no length")?;
        words.push(&received[at + start..at + start + bytes]);
        at += start + bytes + 2;
    }
    Ok(Some(Command { words, length }))
}

/// Returns the first line of `received`, and the offset of the bytes after it.
pub fn first_line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = received.windows(2).position(|bytes| bytes == b"\r\n")?;
    Some((&received[..end], end + 2))
}

/// Returns the beginning of a message, shortened and escaped for an error text.
pub fn excerpt(received: &[u8]) -> String {
    let start = &received[..received.len().min(80)];
    format!("{:?}", String::from_utf8_lossy(start))
}

/// Parses the number after the first byte of a line. −1 means that there is no value.
fn parse_size(line: &[u8]) -> Result<i64> {
    let digits = line.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
    let size = digits.and_then(|digits| digits.parse().ok());
    size.filter(|size| (-1..=SIZE_MAX).contains(size))
        .with_context(|| format!("a value of Redis has no length: {}", excerpt(line)))
}

fn bulk_end(size: i64, start: usize) -> Option<usize> {
    Some(usize::try_from(size).map_or(start, |size| start + size + 2))
}

fn array_end(received: &[u8], size: i64, start: usize) -> Result<Option<usize>> {
    let mut end = start;
    for _ in 0..size.max(0) {
        match first_value_length(&received[end..])? {
            Some(length) => end += length,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_whole_only_at_end(value: &[u8]) {
        for length in 0..value.len() {
            assert_eq!(first_value_length(&value[..length]).unwrap(), None, "{length} bytes");
        }
        assert_eq!(first_value_length(value).unwrap(), Some(value.len()));
    }

    #[test]
    fn partial_value_is_complete_at_its_last_byte() {
        for value in [&b"+OK\r\n"[..], b"$5\r\na\r\nbc\r\n", b"$-1\r\n", b":12\r\n", b"*0\r\n", b"*-1\r\n"] {
            assert_whole_only_at_end(value);
        }
        assert_whole_only_at_end(b"*3\r\n$1\r\na\r\n:7\r\n*1\r\n$2\r\n\r\n\r\n");
    }

    #[test]
    fn malformed_resp_is_refused() {
        for nonsense in [&b"HTTP/1.1 400\r\n"[..], b"$many\r\n", b"*99999999999\r\n", b"$-2\r\n"] {
            assert!(first_value_length(nonsense).is_err(), "{}", excerpt(nonsense));
        }
        for nonsense in [&b"+OK\r\n"[..], b"*1\r\n:1\r\n", b"*1\r\n$-1\r\n"] {
            assert!(parse_command(nonsense).is_err(), "{}", excerpt(nonsense));
        }
    }

    #[test]
    fn encoded_command_is_parsed_back() {
        let words: [&[u8]; 3] = [b"SET", b"k\r\n", b""];
        let mut bytes = Vec::new();
        encode_array(&mut bytes, &words);
        let length = bytes.len();
        bytes.extend_from_slice(b"*1\r\n");
        assert_eq!(parse_command(&bytes).unwrap(), Some(Command { words: words.to_vec(), length }));
        assert_eq!(parse_command(&bytes[..length - 1]).unwrap(), None);
        assert_eq!(parse_command(b"").unwrap(), None);
    }
}
