//! Where a command or a reply ends.

/// The longest line: a type, a length, or an inline command.
const LINE_MAX: usize = 64 << 10;
/// The most parts of one frame.
const PARTS_MAX: u64 = 1 << 24;

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// It could be read in two ways, or not at all.
    #[error("not RESP")]
    Malformed,
    /// It has more bytes or parts than are kept.
    #[error("too long")]
    TooLong,
}

/// Finds the end of the frame at the start of a buffer, and goes on where it stopped when more has come.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    limit: usize,
    /// All bytes before this one have been looked at.
    at: usize,
    /// Parts that are still to come.
    parts: u64,
    /// Lines without a type are inline commands.
    allows_inline: bool,
}

impl Scanner {
    /// Of commands, which may be inline, of up to `limit` bytes.
    pub fn of_commands(limit: usize) -> Self {
        Self { limit, at: 0, parts: 1, allows_inline: true }
    }

    /// Of replies.
    pub fn of_replies(limit: usize) -> Self {
        Self { allows_inline: false, ..Self::of_commands(limit) }
    }

    /// The length of the frame at the start of `bytes`, which are those of the last call and more. `None`: it has not
    /// come whole. The next call is about the next frame.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        while self.parts > 0 {
            let Some((from, to)) = self.part(bytes)? else { return Ok(None) };
            self.at = to;
            self.parts = self.parts - 1 + from;
            if self.at > self.limit || self.parts > PARTS_MAX {
                return Err(BadFrame::TooLong);
            }
        }
        let length = self.at;
        (self.at, self.parts) = (0, 1);
        Ok(Some(length))
    }

    /// The part at `at`: how many more follow because of it, and where it ends.
    fn part(&self, bytes: &[u8]) -> Result<Option<(u64, usize)>, BadFrame> {
        let rest = &bytes[self.at..];
        let Some(line) = line(rest)? else {
            return if rest.len() > self.limit { Err(BadFrame::TooLong) } else { Ok(None) };
        };
        let after = self.at + line.len() + 2;
        let (kind, argument) = line.split_first().map_or((b' ', line), |(kind, argument)| (*kind, argument));
        match kind {
            b'$' | b'=' | b'!' => self.text(bytes, argument, after),
            b'*' | b'~' | b'>' => Ok(Some((count(argument)?, after))),
            b'%' => Ok(Some((2 * count(argument)?, after))),
            // An attribute comes before the part that it is about.
            b'|' => Ok(Some((2 * count(argument)? + 1, after))),
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' if !self.allows_inline => Ok(Some((0, after))),
            _ if self.allows_inline && self.at == 0 && is_plain(line) => Ok(Some((0, after))),
            _ => Err(BadFrame::Malformed),
        }
    }

    /// A text of a length that is said before it.
    fn text(&self, bytes: &[u8], length: &[u8], after: usize) -> Result<Option<(u64, usize)>, BadFrame> {
        let Some(length) = signed(length)? else { return Ok(Some((0, after))) };
        let end = usize::try_from(length).ok().and_then(|length| after.checked_add(length)).ok_or(BadFrame::TooLong)?;
        if end > self.limit {
            return Err(BadFrame::TooLong);
        }
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => Ok(Some((0, end + 2))),
            Some(_) => Err(BadFrame::Malformed),
            None => Ok(None),
        }
    }
}

/// Whether servers read the words of an inline command as they stand there: no quotes, which may be in the midst of a
/// name, no blank before the name, and none that only some take for one.
fn is_plain(line: &[u8]) -> bool {
    let is_odd = |byte: &u8| matches!(byte, b'"' | b'\'') || (byte.is_ascii_control() && *byte != b'\t');
    !line.first().is_some_and(u8::is_ascii_whitespace) && !line.iter().any(is_odd)
}

/// The line at the start, without its end.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, BadFrame> {
    let seen = &bytes[..bytes.len().min(LINE_MAX)];
    match seen.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && bytes[end - 1] == b'\r' => Ok(Some(&bytes[..end - 1])),
        Some(_) => Err(BadFrame::Malformed),
        None if seen.len() == LINE_MAX => Err(BadFrame::TooLong),
        None => Ok(None),
    }
}

fn count(digits: &[u8]) -> Result<u64, BadFrame> {
    signed(digits)?.map_or(Ok(0), |count| if count > PARTS_MAX { Err(BadFrame::TooLong) } else { Ok(count) })
}

/// A number of digits alone; `-1` stands for nothing.
fn signed(digits: &[u8]) -> Result<Option<u64>, BadFrame> {
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

    /// The frames' lengths, all at once and one byte at a time.
    fn frames(scanner: Scanner, bytes: &[u8]) -> Result<Vec<usize>, BadFrame> {
        let (mut whole, mut lengths, mut start) = (scanner, Vec::new(), 0);
        while let Some(length) = whole.next(&bytes[start..])? {
            lengths.push(length);
            start += length;
        }
        let (mut slow, mut one_by_one, mut start) = (scanner, Vec::new(), 0);
        for end in 0..=bytes.len() {
            while let Some(length) = slow.next(&bytes[start..end])? {
                one_by_one.push(length);
                start += length;
            }
        }
        assert_eq!(lengths, one_by_one);
        Ok(lengths)
    }

    #[test]
    fn replies_end_where_they_say() {
        let replies =
            b"+OK\r\n$3\r\na\r\n\r\n*2\r\n:1\r\n*1\r\n$-1\r\n%1\r\n+a\r\n#t\r\n|1\r\n+k\r\n+v\r\n:5\r\n*-1\r\n";
        let lengths = frames(Scanner::of_replies(1000), replies).unwrap();
        assert_eq!(lengths, [5, 9, 17, 12, 16, 5]);
    }

    #[test]
    fn commands_may_be_inline() {
        let commands = b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\nx\r\n";
        assert_eq!(frames(Scanner::of_commands(1000), commands).unwrap(), [6, 20]);
    }

    #[test]
    fn what_is_not_resp_or_too_long_is_refused() {
        for wrong in [&b"$5\r\nabc\r\nxx\r\n"[..], b"$-2\r\n", b"*x\r\n", b"hello\r\n", b"+OK\n"] {
            assert_eq!(Scanner::of_replies(1000).next(wrong), Err(BadFrame::Malformed), "{}", wrong.escape_ascii());
        }
        assert_eq!(Scanner::of_replies(1000).next(b"$9999\r\n"), Err(BadFrame::TooLong));
        assert_eq!(Scanner::of_commands(10).next(&[b'x'; 11]), Err(BadFrame::TooLong));
        assert_eq!(Scanner::of_commands(1000).next(b"*99999999\r\n"), Err(BadFrame::TooLong));
    }
}
