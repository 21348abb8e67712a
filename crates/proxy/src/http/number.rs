//! The number by which a client asks what became of its request.

/// A request's number. A client could guess the count alone; only the client that made the request knows the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number {
    /// Which request it is.
    pub id: u64,
    /// A keyed hash of `id`, which cannot be guessed.
    pub mark: u64,
}

const MARK_DIGITS: usize = 16;

impl Number {
    /// Writes it: `ID-MARK`.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let mut digits = [0; 20];
        out.extend_from_slice(decimal(self.id, &mut digits));
        out.push(b'-');
        let hex = |place: usize| b"0123456789abcdef"[(self.mark >> (4 * place)) as usize & 15];
        out.extend((0..MARK_DIGITS).rev().map(hex));
    }

    /// The number as it was written.
    pub fn read(text: &[u8]) -> Option<Self> {
        let (id, mark) = std::str::from_utf8(text).ok()?.split_once('-')?;
        let is_whole = mark.len() == MARK_DIGITS;
        is_whole.then(|| Some(Self { id: id.parse().ok()?, mark: u64::from_str_radix(mark, 16).ok()? }))?
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
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
    fn numbers_are_read_as_written() {
        for number in
            [Number { id: 0, mark: 0 }, Number { id: 17, mark: 0xabc }, Number { id: u64::MAX, mark: u64::MAX }]
        {
            let mut out = Vec::new();
            number.write(&mut out);
            assert_eq!(Number::read(&out), Some(number), "{}", out.escape_ascii());
        }
        for wrong in ["", "17", "17-", "17-abc", "-0000000000000abc", "x-0000000000000abc", "1-00000000000000000"] {
            assert_eq!(Number::read(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
