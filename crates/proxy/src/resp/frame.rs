//! Scanner for the end of a server's reply.

/// Maximum length of a line: a type, a length, or a text without a length.
const LINE_MAX: usize = 64 << 10;
/// Maximum number of parts of one frame.
const PARTS_MAX: u64 = 1 << 24;
/// Number of bytes of a line end.
const LINE_END: usize = 2;

/// Error: a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The frame is not RESP, or is ambiguous.
    #[error("not RESP")]
    Malformed,
    /// The frame has more bytes or parts than allowed.
    #[error("too long")]
    TooLong,
}

/// Scanner that finds the end of the reply at the start of a buffer. It continues where it stopped when more data
/// comes.
#[derive(Clone, Copy, Debug)]
pub struct ReplyScanner {
    /// Number of bytes at the start that have been scanned.
    at: usize,
    /// Number of parts of the reply that are not completely scanned.
    parts: u64,
    /// Number of missing bytes of the present bulk string; `None` outside of a bulk string.
    text: Option<u64>,
}

impl Default for ReplyScanner {
    fn default() -> Self {
        Self { at: 0, parts: 1, text: None }
    }
}

impl ReplyScanner {
    /// Returns the number of bytes at the start that belong to the reply, and whether the reply is complete. `bytes`
    /// must begin with the bytes of the last call, unless they were [taken](Self::consume_scanned).
    pub fn scan(&mut self, bytes: &[u8]) -> Result<(usize, bool), BadFrame> {
        while self.parts > 0 {
            let is_over = match self.text {
                Some(left) => self.scan_bulk_string(left, bytes)?,
                None => self.scan_line(bytes)?,
            };
            if !is_over {
                return Ok((self.at, false));
            }
            if self.parts > PARTS_MAX {
                return Err(BadFrame::TooLong);
            }
        }
        Ok((self.at, true))
    }

    /// Removes the bytes that [`Self::scan`] returned. The next call must begin after them.
    pub fn consume_scanned(&mut self) {
        self.at = 0;
        if self.parts == 0 {
            *self = Self::default();
        }
    }

    /// Scans a bulk string. Returns whether it is complete.
    fn scan_bulk_string(&mut self, missing_bytes: u64, bytes: &[u8]) -> Result<bool, BadFrame> {
        let came = bytes.len() - self.at;
        let count = usize::try_from(missing_bytes).map_or(came, |left| left.min(came));
        let end = &bytes[self.at + count..];
        match end.get(..LINE_END) {
            Some(b"\r\n") => {
                self.at += count + LINE_END;
                (self.parts, self.text) = (self.parts - 1, None);
                Ok(true)
            }
            Some(_) => Err(BadFrame::Malformed),
            None => {
                self.at += count;
                self.text = Some(missing_bytes - count as u64);
                Ok(false)
            }
        }
    }

    /// Scans a line. Returns whether it is complete.
    fn scan_line(&mut self, bytes: &[u8]) -> Result<bool, BadFrame> {
        let Some(line) = first_line(&bytes[self.at..])? else { return Ok(false) };
        self.at += line.len() + LINE_END;
        let (kind, argument) = line.split_first().ok_or(BadFrame::Malformed)?;
        let more = match kind {
            b'$' | b'=' | b'!' => {
                self.text = parse_optional_number(argument)?;
                // The line with the length and the bulk string count as one part. A length of -1 means no bulk string,
                // so the part is complete.
                u64::from(self.text.is_some())
            }
            b'*' | b'~' | b'>' => parse_count(argument)?,
            b'%' => 2 * parse_count(argument)?,
            // Count the attribute's keys and values, and the part after the attribute that it belongs to.
            b'|' => 2 * parse_count(argument)? + 1,
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
            _ => return Err(BadFrame::Malformed),
        };
        self.parts = self.parts - 1 + more;
        Ok(true)
    }
}

/// Returns the line at the start, without its line end; `None` if it is incomplete.
fn first_line(bytes: &[u8]) -> Result<Option<&[u8]>, BadFrame> {
    let seen = &bytes[..bytes.len().min(LINE_MAX)];
    match seen.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && bytes[end - 1] == b'\r' => Ok(Some(&bytes[..end - 1])),
        Some(_) => Err(BadFrame::Malformed),
        None if seen.len() == LINE_MAX => Err(BadFrame::TooLong),
        None => Ok(None),
    }
}

fn parse_count(digits: &[u8]) -> Result<u64, BadFrame> {
    parse_optional_number(digits)?
        .map_or(Ok(0), |count| if count > PARTS_MAX { Err(BadFrame::TooLong) } else { Ok(count) })
}

/// Parses a number that consists of digits only. `-1` stands for no value.
fn parse_optional_number(digits: &[u8]) -> Result<Option<u64>, BadFrame> {
    if digits == b"-1" {
        return Ok(None);
    }
    let is_number = !digits.is_empty() && digits.len() < 19 && digits.iter().all(u8::is_ascii_digit);
    if !is_number {
        return Err(BadFrame::Malformed);
    }
    Ok(Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of all frames. Checks that scanning all at once, growing input, and byte by byte agree.
    fn frame_lengths(bytes: &[u8]) -> Result<Vec<usize>, BadFrame> {
        let (mut whole, mut lengths, mut start) = (ReplyScanner::default(), Vec::new(), 0);
        while start < bytes.len() {
            let (length, is_whole) = whole.scan(&bytes[start..])?;
            if !is_whole {
                break;
            }
            whole.consume_scanned();
            lengths.push(length);
            start += length;
        }
        for takes_parts in [false, true] {
            assert_eq!(frame_lengths_bytewise(bytes, takes_parts).as_ref(), Ok(&lengths));
        }
        Ok(lengths)
    }

    fn frame_lengths_bytewise(bytes: &[u8], consumes_partial_replies: bool) -> Result<Vec<usize>, BadFrame> {
        let (mut scanner, mut lengths, mut start, mut length) = (ReplyScanner::default(), Vec::new(), 0, 0);
        for end in 1..=bytes.len() {
            let (count, is_whole) = scanner.scan(&bytes[start..end])?;
            if consumes_partial_replies || is_whole {
                scanner.consume_scanned();
                (start, length) = (start + count, length + count);
            }
            if is_whole {
                lengths.push(std::mem::take(&mut length));
            }
        }
        Ok(lengths)
    }

    #[test]
    fn end_of_each_kind_of_reply_is_found() {
        let replies =
            b"+OK\r\n$3\r\na\r\n\r\n*2\r\n:1\r\n*1\r\n$-1\r\n%1\r\n+a\r\n#t\r\n|1\r\n+k\r\n+v\r\n:5\r\n*-1\r\n$0\r\n\r\n*0\r\n";
        assert_eq!(frame_lengths(replies).unwrap(), [5, 9, 17, 12, 16, 5, 6, 4]);
    }

    #[test]
    fn malformed_or_too_long_resp_is_refused() {
        for wrong in [&b"$5\r\nabc\r\nxx\r\n"[..], b"$-2\r\n", b"*x\r\n", b"hello\r\n", b"+OK\n", b"\r\n"] {
            assert_eq!(ReplyScanner::default().scan(wrong), Err(BadFrame::Malformed), "{}", wrong.escape_ascii());
        }
        assert_eq!(ReplyScanner::default().scan(b"*99999999\r\n"), Err(BadFrame::TooLong));
        assert_eq!(ReplyScanner::default().scan(&[b'+'; LINE_MAX]), Err(BadFrame::TooLong));
    }

    #[test]
    fn count_of_elements_is_bounded() {
        let read = |parts: u64| parse_count(parts.to_string().as_bytes());
        assert_eq!((read(PARTS_MAX), read(PARTS_MAX + 1)), (Ok(PARTS_MAX), Err(BadFrame::TooLong)));
    }
}
