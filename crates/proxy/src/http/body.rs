//! Where a body ends.

/// The most digits of a chunk's size.
const SIZE_DIGITS_MAX: u8 = 15;
/// The longest extension of a chunk, and the longest line of the trailer.
const LINE_MAX: u16 = 4096;
/// The longest trailer.
const TRAILER_MAX: u16 = 16_384;

/// A body that is not framed as its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not chunked as its head says")]
pub struct BadBody;

/// A body as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Number of bytes left.
    Length(u64),
    /// It comes in chunks.
    Chunked(Chunks),
    /// It ends when the connection does.
    UntilClose,
}

/// Where in a chunk the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In the digits of its size.
    Size {
        /// What the digits say so far.
        value: u64,
        /// How many there were.
        digits: u8,
    },
    /// In an extension, with the number of its bytes so far.
    Extension(u64, u16),
    /// Before the line feed of its size.
    SizeEnd(u64),
    /// In its data, with the number of bytes left.
    Data(u64),
    /// After the data: before its carriage return, or its line feed.
    DataEnd(bool),
    /// In the trailer: bytes of this line, and of all.
    Trailer(u16, u16),
    /// Before a line feed in the trailer; the last one, if the line was empty.
    TrailerEnd(bool, u16),
    /// It has ended.
    Over,
}

impl Body {
    /// No body.
    pub const EMPTY: Self = Self::Length(0);
    /// Chunks, before the first.
    pub const CHUNKED: Self = Self::Chunked(Chunks::Size { value: 0, digits: 0 });

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunks::Over))
    }

    /// How many of these bytes belong to it. They count as come.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, BadBody> {
        match self {
            Self::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok(taken)
            }
            Self::Chunked(chunks) => chunks.take(bytes),
            Self::UntilClose => Ok(bytes.len()),
        }
    }
}

impl Chunks {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, BadBody> {
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
            *self = self.next(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// The state after a byte that is not data.
    fn next(self, byte: u8) -> Result<Self, BadBody> {
        match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < SIZE_DIGITS_MAX => {
                let digit = (byte as char).to_digit(16).expect("a digit");
                Ok(Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
            }
            (Self::Size { value, digits: 1.. }, b'\r') => Ok(Self::SizeEnd(value)),
            (Self::Size { value, digits: 1.. }, b';') => Ok(Self::Extension(value, 0)),
            (Self::Extension(value, _), b'\r') => Ok(Self::SizeEnd(value)),
            (Self::Extension(value, seen), _) if is_text(byte) && seen < LINE_MAX => {
                Ok(Self::Extension(value, seen + 1))
            }
            (Self::SizeEnd(0), b'\n') => Ok(Self::Trailer(0, 0)),
            (Self::SizeEnd(size), b'\n') => Ok(Self::Data(size)),
            (Self::DataEnd(false), b'\r') => Ok(Self::DataEnd(true)),
            (Self::DataEnd(true), b'\n') => Ok(Self::Size { value: 0, digits: 0 }),
            (Self::Trailer(line, all), b'\r') => Ok(Self::TrailerEnd(line == 0, all)),
            (Self::Trailer(line, all), _) if is_text(byte) && line < LINE_MAX && all < TRAILER_MAX => {
                Ok(Self::Trailer(line + 1, all + 1))
            }
            (Self::TrailerEnd(true, _), b'\n') => Ok(Self::Over),
            (Self::TrailerEnd(false, all), b'\n') => Ok(Self::Trailer(0, all)),
            _ => Err(BadBody),
        }
    }
}

/// A byte that may be in a line.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes belong to it, one byte at a time and all at once, and whether it is over.
    fn taken(body: Body, bytes: &[u8]) -> Result<(usize, bool), BadBody> {
        let mut whole = body;
        let at_once = whole.take(bytes);
        let mut slow = body;
        let one_by_one = bytes.iter().try_fold(0, |sum, byte| Ok(sum + slow.take(&[*byte])?));
        assert_eq!(at_once, one_by_one);
        Ok((at_once?, whole.is_over()))
    }

    #[test]
    fn a_length_is_taken_and_no_more() {
        assert_eq!(taken(Body::Length(3), b"abcGET"), Ok((3, true)));
        assert_eq!(taken(Body::Length(3), b"ab"), Ok((2, false)));
        assert_eq!(taken(Body::EMPTY, b"GET"), Ok((0, true)));
        assert_eq!(taken(Body::UntilClose, b"GET"), Ok((3, false)));
    }

    #[test]
    fn chunks_end_after_the_trailer() {
        assert_eq!(taken(Body::CHUNKED, b"3\r\nabc\r\n0\r\n\r\nGET"), Ok((13, true)));
        assert_eq!(taken(Body::CHUNKED, b"a;x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\n\r\n!"), Ok((32, true)));
        assert_eq!(taken(Body::CHUNKED, b"3\r\nab"), Ok((5, false)));
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
            assert_eq!(taken(Body::CHUNKED, bytes), Err(BadBody), "{}", bytes.escape_ascii());
        }
    }
}
