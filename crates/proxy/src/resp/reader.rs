//! Reader of Redis commands. It parses them as Redis does, and writes them anew as arrays of bulk strings.
//!
//! A server gets only what [`CommandReader`] wrote. So proxy and server cannot disagree about commands and arguments.

use super::frame::BadFrame;

/// Maximum length of a line: a count, a length, or an inline command (`PROTO_INLINE_MAX_SIZE` of Redis).
const LINE_MAX: usize = 64 << 10;
/// Minimum size in bytes of an argument in an array: `$0\r\n\r\n`.
const ARGUMENT_MIN: u64 = 6;
/// Number of bytes after a bulk string. Redis skips them without checking them.
const TEXT_END: usize = 2;

/// Complete command: an array of bulk strings in its shortest form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(Vec<u8>);

impl Command {
    /// Creates a command from its name and arguments.
    pub fn from_arguments<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Self {
        let mut bytes = Vec::new();
        write_count_line(&mut bytes, b'*', arguments.len() as u64);
        for argument in arguments {
            write_count_line(&mut bytes, b'$', argument.len() as u64);
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        Self(bytes)
    }

    /// Returns the command in the form that a server gets.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Converts the command into the form that a server gets.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the name and the arguments of the command, in order.
    pub fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = parse_count_line(&self.0).map_or(&[][..], |(_, rest)| rest);
        std::iter::from_fn(move || {
            let (length, text) = parse_count_line(rest)?;
            rest = &text[length + TEXT_END..];
            Some(&text[..length])
        })
    }

    /// Returns the name of the command, which may be empty.
    pub fn name(&self) -> &[u8] {
        self.arguments().next().unwrap_or_default()
    }
}

/// Writes a type and a number as a line.
fn write_count_line(bytes: &mut Vec<u8>, kind: u8, count: u64) {
    let (mut digits, mut start) = ([0; 20], 20);
    let mut rest = count;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    bytes.push(kind);
    bytes.extend_from_slice(&digits[start..]);
    bytes.extend_from_slice(b"\r\n");
}

/// Parses a line that [`write_count_line`] wrote. Returns its number, and the bytes after it.
fn parse_count_line(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (digits, mut at) = (bytes.get(1..)?, 0);
    let mut count = 0;
    while let Some(digit) = digits[at..].first().filter(|digit| digit.is_ascii_digit()) {
        count = count * 10 + usize::from(digit - b'0');
        at += 1;
    }
    Some((count, &digits[at + TEXT_END..]))
}

/// Kind of the next bytes from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseState {
    /// Begin of a command.
    Command,
    /// Length of an argument.
    Length,
    /// Bytes of an argument, with the number of missing bytes.
    Text(usize),
    /// Bytes that Redis skips after an argument, with the number of missing bytes.
    TextEnd(usize),
}

/// Reader of one client's commands. At the top level it accepts an array (`*`) or an inline command, and inside of
/// arrays only bulk strings (`$`), as Redis does.
#[derive(Debug)]
pub struct CommandReader {
    limit: usize,
    stage: ParseState,
    /// Number of arguments of the present array that are not written yet.
    arguments: u64,
    /// Number of bytes of an incomplete line that were searched for its end.
    searched: usize,
    /// Part of the command that has been read up to now.
    written: Vec<u8>,
}

impl CommandReader {
    /// Creates a reader of commands with up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, stage: ParseState::Command, arguments: 0, searched: 0, written: Vec::new() }
    }

    /// Returns the number of used bytes, and the command that ends there. If there is no command, the next call must
    /// begin with the unused bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(usize, Option<Command>), BadFrame> {
        let mut used = 0;
        loop {
            let Some(count) = self.read_part(&bytes[used..])? else { return Ok((used, None)) };
            used += count;
            if self.written.len() > self.limit {
                return Err(BadFrame::TooLong);
            }
            if self.stage == ParseState::Command && !self.written.is_empty() {
                return Ok((used, Some(Command(std::mem::take(&mut self.written)))));
            }
        }
    }

    /// Returns the number of bytes held of an incomplete command.
    pub fn held_bytes(&self) -> usize {
        self.written.len()
    }

    /// Returns whether the used bytes end between two commands.
    pub fn is_between_commands(&self) -> bool {
        self.stage == ParseState::Command
    }

    /// Reads one part of a command. Returns its length, or `None` if more bytes must come first.
    fn read_part(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        match self.stage {
            _ if bytes.is_empty() => Ok(None),
            ParseState::Command if bytes[0] == b'*' => self.read_array(bytes),
            ParseState::Command => self.read_inline(bytes),
            ParseState::Length => self.read_length(bytes),
            ParseState::Text(left) => {
                let count = left.min(bytes.len());
                self.written.extend_from_slice(&bytes[..count]);
                self.stage = if count == left { ParseState::TextEnd(TEXT_END) } else { ParseState::Text(left - count) };
                Ok(Some(count))
            }
            ParseState::TextEnd(left) => {
                let count = left.min(bytes.len());
                if count < left {
                    self.stage = ParseState::TextEnd(left - count);
                } else {
                    self.written.extend_from_slice(b"\r\n");
                    self.arguments -= 1;
                    self.stage = if self.arguments == 0 { ParseState::Command } else { ParseState::Length };
                }
                Ok(Some(count))
            }
        }
    }

    fn read_array(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        let Some(line) = self.next_line(bytes, b'\r', TEXT_END)? else { return Ok(None) };
        let count =
            parse_integer(&line[1..]).filter(|count| *count <= i64::from(i32::MAX)).ok_or(BadFrame::Malformed)?;
        // An array with a count of zero or less is not a command, and gets no reply.
        if let Ok(count @ 1..) = u64::try_from(count) {
            if count.saturating_mul(ARGUMENT_MIN) > self.limit as u64 {
                return Err(BadFrame::TooLong);
            }
            write_count_line(&mut self.written, b'*', count);
            (self.arguments, self.stage) = (count, ParseState::Length);
        }
        Ok(Some(line.len() + TEXT_END))
    }

    fn read_length(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        if bytes[0] != b'$' {
            return Err(BadFrame::Malformed);
        }
        let Some(line) = self.next_line(bytes, b'\r', TEXT_END)? else { return Ok(None) };
        let length =
            parse_integer(&line[1..]).and_then(|length| u64::try_from(length).ok()).ok_or(BadFrame::Malformed)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= self.limit).ok_or(BadFrame::TooLong)?;
        if self.written.len() + length > self.limit {
            return Err(BadFrame::TooLong);
        }
        write_count_line(&mut self.written, b'$', length as u64);
        self.stage = if length == 0 { ParseState::TextEnd(TEXT_END) } else { ParseState::Text(length) };
        Ok(Some(line.len() + TEXT_END))
    }

    fn read_inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        let Some(line) = self.next_line(bytes, b'\n', 1)? else { return Ok(None) };
        let used = line.len() + 1;
        let arguments = split_inline_command(line.strip_suffix(b"\r").unwrap_or(line)).ok_or(BadFrame::Malformed)?;
        if !arguments.is_empty() {
            self.written = Command::from_arguments(arguments.iter().map(Vec::as_slice)).into_bytes();
        }
        Ok(Some(used))
    }

    /// Returns the line at the start, without its end: `end_bytes` bytes, of which `end` is the first. Refuses a line
    /// with a zero byte, which ends strings in C: versions of Redis differ about it.
    fn next_line<'a>(&mut self, bytes: &'a [u8], end: u8, end_bytes: usize) -> Result<Option<&'a [u8]>, BadFrame> {
        let new = bytes.get(self.searched..).unwrap_or_default();
        match new.iter().position(|byte| *byte == end || *byte == 0) {
            Some(at) if new[at] == 0 => Err(BadFrame::Malformed),
            Some(at) if self.searched + at > LINE_MAX => Err(BadFrame::TooLong),
            Some(at) if self.searched + at + end_bytes > bytes.len() => {
                self.searched += at;
                Ok(None)
            }
            Some(at) => {
                let line = &bytes[..self.searched + at];
                self.searched = 0;
                Ok(Some(line))
            }
            None if bytes.len() > LINE_MAX => Err(BadFrame::TooLong),
            None => {
                self.searched = bytes.len();
                Ok(None)
            }
        }
    }
}

/// Parses a number in the only form that Redis accepts (`string2ll`): no plus sign, no blank, no leading zero.
fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_shortest = text == b"0" || matches!(digits.first(), Some(b'1'..=b'9'));
    if !is_shortest || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Splits an inline command into its arguments (`sdssplitargs` of Redis). Returns `None` if a quote is not closed, or
/// if another byte than a blank follows it.
fn split_inline_command(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut arguments, mut rest) = (Vec::new(), line);
    loop {
        rest = &rest[rest.iter().take_while(|byte| is_blank(**byte)).count()..];
        if rest.is_empty() {
            return Some(arguments);
        }
        let mut argument = Vec::new();
        rest = take_argument(rest, &mut argument)?;
        arguments.push(argument);
    }
}

/// Returns whether C's `isspace` takes the byte as a blank.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Reads one argument, and returns the bytes after it.
fn take_argument<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            // End the argument only at these four blanks. Vertical tab and form feed do not end an argument, although
            // they may separate arguments.
            [b' ' | b'\t' | b'\n' | b'\r', ..] | [] => return Some(rest),
            [b'"', quoted @ ..] => return take_double_quoted(quoted, argument),
            [b'\'', quoted @ ..] => return take_single_quoted(quoted, argument),
            [byte, next @ ..] => {
                argument.push(*byte);
                rest = next;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'"', after @ ..] => return Some(after).filter(|after| after.first().is_none_or(|byte| is_blank(*byte))),
            [b'\\', b'x', high, low, next @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                argument.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = next;
            }
            [b'\\', escaped, next @ ..] => {
                argument.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = next;
            }
            [byte, next @ ..] => {
                argument.push(*byte);
                rest = next;
            }
            [] => return None,
        }
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\'', after @ ..] => return Some(after).filter(|after| after.first().is_none_or(|byte| is_blank(*byte))),
            [b'\\', b'\'', next @ ..] => {
                argument.push(b'\'');
                rest = next;
            }
            [byte, next @ ..] => {
                argument.push(*byte);
                rest = next;
            }
            [] => return None,
        }
    }
}

fn hex_digit(digit: u8) -> u8 {
    (digit as char).to_digit(16).map_or(0, |digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arguments of all commands. Checks that reading byte by byte and all at once agree.
    fn read_all_commands(bytes: &[u8]) -> Result<Vec<Vec<String>>, BadFrame> {
        let read = |step: usize| {
            let (mut reader, mut start, mut end, mut all) = (CommandReader::new(1000), 0, 0, Vec::new());
            while end < bytes.len() {
                end = (end + step).min(bytes.len());
                loop {
                    let (used, command) = reader.read(&bytes[start..end])?;
                    start += used;
                    let Some(command) = command else { break };
                    let words = command.arguments().map(|argument| argument.escape_ascii().to_string());
                    all.push(words.collect::<Vec<_>>());
                }
            }
            Ok(all)
        };
        let at_once = read(bytes.len());
        assert_eq!(read(1), at_once, "{}", bytes.escape_ascii());
        at_once
    }

    #[test]
    fn arrays_and_inline_commands_are_read() {
        let bytes = b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\nx\r\n\r\n*0\r\n*-3\r\n \t\r\nget  y\n*1\r\n$0\r\n\r\n";
        assert_eq!(read_all_commands(bytes).unwrap(), [vec!["PING"], vec!["GET", "x"], vec!["get", "y"], vec![""]]);
    }

    #[test]
    fn quotes_of_inline_commands_are_read_as_redis_does() {
        let bytes = b"a \"b c\" 'd\\'e' \"\\x41\\n\\q\\\"\" \"\" f\"g\" h\x0bi\r\n\x0b\x0cSELECT 1\r\n";
        let words = [vec!["a", "b c", "d\\'e", "A\\nq\\\"", "", "fg", "h\\x0bi"], vec!["SELECT", "1"]];
        assert_eq!(read_all_commands(bytes).unwrap(), words);
        for wrong in ["\"a\r\n", "'a\r\n", "\"a\"b\r\n", "'a'b\r\n", "\"a\\\r\n"] {
            assert_eq!(read_all_commands(wrong.as_bytes()), Err(BadFrame::Malformed), "{wrong}");
        }
    }

    #[test]
    fn other_types_are_inline_commands_at_the_top_level() {
        for kind in ["$", "=", "!", "~", ">", "%", "|", "+", "-", ":", "_", "#", ",", "("] {
            let bytes = format!("{kind}8\r\nSELECT 5\r\n");
            assert_eq!(
                read_all_commands(bytes.as_bytes()).unwrap(),
                [vec![format!("{kind}8")], vec!["SELECT".to_owned(), "5".to_owned()]]
            );
            let nested = format!("*1\r\n{kind}1\r\na\r\n");
            assert_eq!(read_all_commands(nested.as_bytes()).is_ok(), kind == "$", "{kind}");
        }
    }

    #[test]
    fn only_numbers_in_shortest_form_are_accepted() {
        for wrong in ["*x", "*", "*+1", "*01", "*-0", "*1 ", "* 1", "*-", "*2147483648", "*99999999999999999999"] {
            assert_eq!(read_all_commands(format!("{wrong}\r\n").as_bytes()), Err(BadFrame::Malformed), "{wrong}");
        }
        for wrong in ["$-1", "$01", "$x", "$", "$-0"] {
            assert_eq!(read_all_commands(format!("*1\r\n{wrong}\r\n").as_bytes()), Err(BadFrame::Malformed), "{wrong}");
        }
    }

    #[test]
    fn too_long_commands_are_refused_before_all_bytes_arrive() {
        for long in ["*200\r\n", "*1\r\n$1000\r\n", "*2147483647\r\n"] {
            assert_eq!(read_all_commands(long.as_bytes()), Err(BadFrame::TooLong), "{long}");
        }
        assert_eq!(read_all_commands(&[b'x'; LINE_MAX + 2]), Err(BadFrame::TooLong));
        assert_eq!(
            read_all_commands(&[b'x'; 1001].iter().copied().chain(*b"\r\n").collect::<Vec<_>>()),
            Err(BadFrame::TooLong)
        );
    }

    #[test]
    fn bytes_after_cr_and_bulk_strings_are_not_checked() {
        assert_eq!(read_all_commands(b"*1\rX$4\rYPINGzz*1\r\n$1\r\na\r\n").unwrap(), [vec!["PING"], vec!["a"]]);
    }

    #[test]
    fn commands_are_rewritten_in_the_shortest_form() {
        let (used, command) = CommandReader::new(1000).read(b"  get \"\"\r\n").unwrap();
        assert_eq!((used, command.unwrap().bytes()), (10, &b"*2\r\n$3\r\nget\r\n$0\r\n\r\n"[..]));
    }

    #[test]
    fn bytes_of_an_incomplete_command_are_counted() {
        let mut reader = CommandReader::new(1000);
        assert_eq!(reader.held_bytes(), 0);
        let part = b"*2\r\n$3\r\nGET\r\n$5\r\nab";
        let (used, command) = reader.read(part).unwrap();
        assert_eq!((used, command.is_none(), reader.held_bytes()), (part.len(), true, part.len()));
        let (_, command) = reader.read(b"cde\r\n").unwrap();
        assert_eq!((command.is_some(), reader.held_bytes()), (true, 0));
    }
}
