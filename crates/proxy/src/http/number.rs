//! Number with which a client can later request details of its request.

use std::fmt;

/// Number of a request. A client could guess the id, but the mark is known only to the client that made the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestNumber {
    /// Sequence number of the request.
    pub id: u64,
    /// Keyed hash of `id`, which cannot be guessed.
    pub mark: u64,
}

const MARK_DIGITS: usize = 16;

impl fmt::Display for RequestNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.id, self.mark)
    }
}

impl RequestNumber {
    /// Writes the number in the form `ID-MARK`.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let mut digits = [0; 20];
        out.extend_from_slice(format_decimal(self.id, &mut digits));
        out.push(b'-');
        let hex = |place: usize| b"0123456789abcdef"[(self.mark >> (4 * place)) as usize & 15];
        out.extend((0..MARK_DIGITS).rev().map(hex));
    }

    /// Parses a number in the form `ID-MARK`. Returns `None` if it is malformed.
    pub fn read(text: &[u8]) -> Option<Self> {
        let (id, mark) = std::str::from_utf8(text).ok()?.split_once('-')?;
        let is_whole = mark.len() == MARK_DIGITS;
        is_whole.then(|| Some(Self { id: id.parse().ok()?, mark: u64::from_str_radix(mark, 16).ok()? }))?
    }
}

fn format_decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_numbers_are_parsed_as_written() {
        for number in [
            RequestNumber { id: 0, mark: 0 },
            RequestNumber { id: 17, mark: 0xabc },
            RequestNumber { id: u64::MAX, mark: u64::MAX },
        ] {
            let mut out = Vec::new();
            number.write(&mut out);
            assert_eq!(RequestNumber::read(&out), Some(number), "{}", out.escape_ascii());
            assert_eq!(out, number.to_string().as_bytes());
        }
        for wrong in ["", "17", "17-", "17-abc", "-0000000000000abc", "x-0000000000000abc", "1-00000000000000000"] {
            assert_eq!(RequestNumber::read(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
