//! Mutation of kept inputs to new ones.

use fastrand::Rng;

/// Longest input, unless kept inputs are longer.
const LENGTH_MAX: usize = 1 << 14;
/// Most changes of one input.
const CHANGES_MAX: usize = 8;
/// Most bytes that one change removes, repeats or copies from elsewhere.
const PIECE_MAX: usize = 64;

/// Words that parsers often handle wrongly: ends, brackets, signs, and numbers at the edges of types.
const WORDS: [&[u8]; 40] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b":",
    b";",
    b",",
    b".",
    b"=",
    b"-",
    b"+",
    b"/",
    b"\\",
    b"_",
    b"\"",
    b"'",
    b"(",
    b")",
    b") ",
    b"[",
    b"]",
    b"{",
    b"}",
    b"#",
    b"\xff",
    b"\xf0\x9f\x98\x80",
    b"\xc3",
    b"-1",
    b"0",
    b"00000000000000000000001",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e308",
    b"0x7fffffffffffffff",
    b"nan",
];
/// Binary numbers at the edges of types.
const NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// Generator of inputs, which always uses the same memory.
pub struct Mutator<'a> {
    /// Random generator: the same seed gives the same numbers.
    random: Rng,
    corpus: &'a [Vec<u8>],
    length_max: usize,
    input: Vec<u8>,
}

impl<'a> Mutator<'a> {
    pub fn new(seed: u64, corpus: &'a [Vec<u8>]) -> Self {
        let longest = corpus.iter().map(Vec::len).max().unwrap_or(0);
        Self { random: Rng::with_seed(seed), corpus, length_max: LENGTH_MAX.max(2 * longest), input: Vec::new() }
    }

    /// Returns the next input: a kept one with some changes.
    pub fn next(&mut self) -> &[u8] {
        let base = self.any(self.corpus);
        self.input.clear();
        self.input.extend_from_slice(base);
        for _ in 0..=self.random.usize(..CHANGES_MAX) {
            self.change();
        }
        self.input.truncate(self.length_max);
        &self.input
    }

    fn any<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.random.usize(..all.len())]
    }

    fn change(&mut self) {
        let at = self.random.usize(..=self.input.len());
        let rest = self.input.len() - at;
        match self.random.usize(..10) {
            0 if rest > 0 => self.input[at] = self.random.usize(..256) as u8,
            1 if rest > 0 => self.input[at] ^= 1 << self.random.usize(..8),
            2 => drop(self.input.drain(at..at + self.random.usize(..PIECE_MAX).min(rest))),
            3 => self.repeat(at),
            4 => self.insert_word(at),
            5 => self.overwrite_number(at),
            6 => self.insert_of_another(at),
            7 => self.go_on_as_another(at),
            8 => self.count_otherwise(at),
            _ if self.random.usize(..8) == 0 => self.input.truncate(at),
            _ => {}
        }
    }

    fn insert(&mut self, at: usize, piece: &[u8]) {
        self.input.splice(at..at, piece.iter().copied());
    }

    fn repeat(&mut self, at: usize) {
        let end = (at + self.random.usize(..PIECE_MAX)).min(self.input.len());
        let piece = self.input[at..end].to_vec();
        self.insert(at, &piece);
    }

    fn insert_word(&mut self, at: usize) {
        let word = *self.any(&WORDS);
        self.insert(at, word);
    }

    /// Overwrites 1, 2, 4 or 8 bytes with a number near the edge of a type.
    fn overwrite_number(&mut self, at: usize) {
        let number = self.any(&NUMBERS).wrapping_add(self.random.usize(..5) as u64).wrapping_sub(2);
        let bytes = number.to_le_bytes();
        let end = (at + (1 << self.random.usize(..4))).min(self.input.len());
        self.input[at..end].copy_from_slice(&bytes[..end - at]);
    }

    fn insert_of_another(&mut self, at: usize) {
        let other = self.any(self.corpus);
        let start = self.random.usize(..=other.len());
        let end = (start + self.random.usize(..PIECE_MAX)).min(other.len());
        self.insert(at, &other[start..end]);
    }

    fn go_on_as_another(&mut self, at: usize) {
        let other = self.any(self.corpus);
        let start = self.random.usize(..=other.len());
        self.input.truncate(at);
        self.input.extend_from_slice(&other[start..]);
    }

    /// Replaces a digit by another one, so that a text keeps its form.
    fn count_otherwise(&mut self, at: usize) {
        let digit = self.input[at..].iter().position(u8::is_ascii_digit);
        if let Some(place) = digit {
            self.input[at + place] = b'0' + self.random.usize(..10) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(count: usize, seed: u64) -> Vec<Vec<u8>> {
        let corpus = [b"hello 17 (a) b".to_vec(), vec![], vec![7; 400]];
        let mut mutator = Mutator::new(seed, &corpus);
        (0..count).map(|_| mutator.next().to_vec()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_another_others() {
        assert_eq!(first(1000, 1), first(1000, 1));
        assert_ne!(first(1000, 1), first(1000, 9));
    }

    #[test]
    fn inputs_are_of_many_kinds_and_no_longer_than_the_bound() {
        let mut inputs = first(10_000, 3);
        assert!(inputs.iter().all(|input| input.len() <= LENGTH_MAX));
        inputs.sort();
        inputs.dedup();
        assert!(inputs.len() > 5_000, "{} different ones", inputs.len());
    }
}
