//! End of HTTP bodies: by length, by chunks, or by the end of the connection.

/// Maximum number of digits of a chunk size.
const SIZE_DIGITS_MAX: u8 = 15;
/// Maximum length of a chunk extension, and of a line of the trailer.
const LINE_MAX: u16 = 4096;
/// Maximum length of a trailer.
const TRAILER_MAX: u16 = 16_384;

/// Error: the framing of a body does not match its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not chunked, although its head says so")]
pub struct BadBody;

/// Body of a message, as far as it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Body of known length, with the number of bytes that are still missing.
    Length(u64),
    /// Body in chunks.
    Chunked(ChunkPosition),
    /// Body that ends with the connection.
    UntilClose,
}

/// Position of the next byte in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPosition {
    /// The next byte is a digit of a chunk size, or ends the digits.
    Size {
        /// Value of the digits up to now.
        value: u64,
        /// Number of digits up to now.
        digits: u8,
    },
    /// The next byte is in a chunk extension. The numbers are the chunk size, and the length of the extension so far.
    Extension(u64, u16),
    /// The next byte is the line feed after a chunk size.
    SizeEnd(u64),
    /// The next byte is chunk data. The number counts the data bytes that are still missing.
    Data(u64),
    /// The next byte follows chunk data: it is the carriage return (false) or the line feed (true).
    DataEnd(bool),
    /// The next byte is in the trailer. The numbers are the lengths of the present line and of the trailer up to now.
    Trailer(u16, u16),
    /// The next byte is a line feed in the trailer. The flag is true if the line is empty, which ends the trailer.
    TrailerEnd(bool, u16),
    /// The body has ended.
    Over,
}

impl Body {
    /// Body of length zero.
    pub const EMPTY: Self = Self::Length(0);
    /// Chunked body before its first chunk.
    pub const CHUNKED: Self = Self::Chunked(ChunkPosition::Size { value: 0, digits: 0 });

    /// Returns whether the whole body has arrived.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(ChunkPosition::Over))
    }

    /// Takes in bytes, and returns how many of them belong to the body.
    pub fn consume(&mut self, bytes: &[u8]) -> Result<usize, BadBody> {
        match self {
            Self::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok(taken)
            }
            Self::Chunked(chunks) => chunks.consume(bytes),
            Self::UntilClose => Ok(bytes.len()),
        }
    }
}

impl ChunkPosition {
    fn consume(&mut self, bytes: &[u8]) -> Result<usize, BadBody> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::Over {
            if let Self::Data(left) = self {
                let taken = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                at += taken;
                if *left == 0 {
                    *self = Self::DataEnd(false);
                }
                continue;
            }
            *self = self.after_byte(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// Returns the position after a byte that is not data.
    fn after_byte(self, byte: u8) -> Result<Self, BadBody> {
        match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < SIZE_DIGITS_MAX => {
                let digit = (byte as char).to_digit(16).expect("a digit");
                Ok(Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
            }
            (Self::Size { value, digits: 1.. }, b'\r') => Ok(Self::SizeEnd(value)),
            (Self::Size { value, digits: 1.. }, b';') => Ok(Self::Extension(value, 0)),
            (Self::Extension(value, _), b'\r') => Ok(Self::SizeEnd(value)),
            (Self::Extension(value, seen), _) if is_allowed_in_line(byte) && seen < LINE_MAX => {
                Ok(Self::Extension(value, seen + 1))
            }
            (Self::SizeEnd(0), b'\n') => Ok(Self::Trailer(0, 0)),
            (Self::SizeEnd(size), b'\n') => Ok(Self::Data(size)),
            (Self::DataEnd(false), b'\r') => Ok(Self::DataEnd(true)),
            (Self::DataEnd(true), b'\n') => Ok(Self::Size { value: 0, digits: 0 }),
            (Self::Trailer(line, all), b'\r') => Ok(Self::TrailerEnd(line == 0, all)),
            (Self::Trailer(line, all), _) if is_allowed_in_line(byte) && line < LINE_MAX && all < TRAILER_MAX => {
                Ok(Self::Trailer(line + 1, all + 1))
            }
            (Self::TrailerEnd(true, _), b'\n') => Ok(Self::Over),
            (Self::TrailerEnd(false, all), b'\n') => Ok(Self::Trailer(0, all)),
            _ => Err(BadBody),
        }
    }
}

/// Returns whether a byte is allowed in a line of the trailer or in a chunk extension: no control character but a tab.
fn is_allowed_in_line(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes all at once, and one by one. Returns how many belong to the body, and whether it is complete.
    fn consume_whole_and_bytewise(body: Body, bytes: &[u8]) -> Result<(usize, bool), BadBody> {
        let mut whole = body;
        let at_once = whole.consume(bytes);
        let mut slow = body;
        let one_by_one = bytes.iter().try_fold(0, |sum, byte| Ok(sum + slow.consume(&[*byte])?));
        assert_eq!(at_once, one_by_one);
        Ok((at_once?, whole.is_complete()))
    }

    #[test]
    fn body_of_known_length_ends_after_its_length() {
        assert_eq!(consume_whole_and_bytewise(Body::Length(3), b"abcGET"), Ok((3, true)));
        assert_eq!(consume_whole_and_bytewise(Body::Length(3), b"ab"), Ok((2, false)));
        assert_eq!(consume_whole_and_bytewise(Body::EMPTY, b"GET"), Ok((0, true)));
        assert_eq!(consume_whole_and_bytewise(Body::UntilClose, b"GET"), Ok((3, false)));
    }

    #[test]
    fn chunked_body_ends_after_its_trailer() {
        assert_eq!(consume_whole_and_bytewise(Body::CHUNKED, b"3\r\nabc\r\n0\r\n\r\nGET"), Ok((13, true)));
        assert_eq!(
            consume_whole_and_bytewise(Body::CHUNKED, b"a;x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\n\r\n!"),
            Ok((32, true))
        );
        assert_eq!(consume_whole_and_bytewise(Body::CHUNKED, b"3\r\nab"), Ok((5, false)));
    }

    #[test]
    fn ambiguous_chunks_are_refused() {
        let wrong: [&[u8]; 9] = [
            b"\r\n",
            b"3\nabc",
            b" 3\r\n",
            b"0x3\r\n",
            b"-1\r\n",
            b"3\r\nabcd\r\n",
            b"ffffffffffffffff\r\n",
            b"3;\n\r\n",
            b"0\r\nA: b\n\r\n",
        ];
        for bytes in wrong {
            assert_eq!(consume_whole_and_bytewise(Body::CHUNKED, bytes), Err(BadBody), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn chunk_extensions_trailer_lines_and_trailers_are_bounded() {
        let extension = |length| format!("0;{}\r\n\r\n", "x".repeat(length));
        let trailer = |lines, length| format!("0\r\n{}\r\n", format!("{}\r\n", "x".repeat(length)).repeat(lines));
        let (line, whole) = (usize::from(LINE_MAX), usize::from(TRAILER_MAX));
        for (longest, too_long) in [
            (extension(line), extension(line + 1)),
            (trailer(1, line), trailer(1, line + 1)),
            (trailer(whole / 128, 128), trailer(whole / 128 + 1, 128)),
        ] {
            assert_eq!(consume_whole_and_bytewise(Body::CHUNKED, longest.as_bytes()), Ok((longest.len(), true)));
            assert_eq!(consume_whole_and_bytewise(Body::CHUNKED, too_long.as_bytes()), Err(BadBody));
        }
    }
}
