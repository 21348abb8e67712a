//! Mutation of the corpus's inputs to new ones.

use fastrand::Rng;

/// Longest input in bytes, unless an input of the corpus is longer.
const LENGTH_MAX: usize = 1 << 14;
/// Most changes of one input.
const CHANGES_MAX: usize = 8;
/// Most bytes that one change removes, repeats or copies from another input.
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

    /// Returns the next input: an input of the corpus with some changes.
    pub fn next_input(&mut self) -> &[u8] {
        let base = self.pick(self.corpus);
        self.input.clear();
        self.input.extend_from_slice(base);
        for _ in 0..=self.random.usize(..CHANGES_MAX) {
            self.mutate_once();
        }
        self.input.truncate(self.length_max);
        &self.input
    }

    fn pick<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.random.usize(..all.len())]
    }

    fn mutate_once(&mut self) {
        let at = self.random.usize(..=self.input.len());
        let rest = self.input.len() - at;
        match self.random.usize(..10) {
            0 if rest > 0 => self.input[at] = self.random.usize(..256) as u8,
            1 if rest > 0 => self.input[at] ^= 1 << self.random.usize(..8),
            2 => drop(self.input.drain(at..at + self.random.usize(..PIECE_MAX).min(rest))),
            3 => self.repeat_piece(at),
            4 => self.insert_word(at),
            5 => self.overwrite_number(at),
            6 => self.insert_from_other_input(at),
            7 => self.continue_with_other_input(at),
            8 => self.replace_digit(at),
            _ if self.random.usize(..8) == 0 => self.input.truncate(at),
            _ => {}
        }
    }

    fn insert(&mut self, offset: usize, piece: &[u8]) {
        self.input.splice(offset..offset, piece.iter().copied());
    }

    fn repeat_piece(&mut self, offset: usize) {
        let end = (offset + self.random.usize(..PIECE_MAX)).min(self.input.len());
        let piece = self.input[offset..end].to_vec();
        self.insert(offset, &piece);
    }

    fn insert_word(&mut self, offset: usize) {
        let word = *self.pick(&WORDS);
        self.insert(offset, word);
    }

    /// Overwrites 1, 2, 4 or 8 bytes with a number near the edge of a type.
    fn overwrite_number(&mut self, offset: usize) {
        let number = self.pick(&NUMBERS).wrapping_add(self.random.usize(..5) as u64).wrapping_sub(2);
        let bytes = number.to_le_bytes();
        let end = (offset + (1 << self.random.usize(..4))).min(self.input.len());
        self.input[offset..end].copy_from_slice(&bytes[..end - offset]);
    }

    fn insert_from_other_input(&mut self, offset: usize) {
        let other = self.pick(self.corpus);
        let start = self.random.usize(..=other.len());
        let end = (start + self.random.usize(..PIECE_MAX)).min(other.len());
        self.insert(offset, &other[start..end]);
    }

    fn continue_with_other_input(&mut self, offset: usize) {
        let other = self.pick(self.corpus);
        let start = self.random.usize(..=other.len());
        self.input.truncate(offset);
        self.input.extend_from_slice(&other[start..]);
    }

    /// Replaces a digit by another one, so that a text keeps its form.
    fn replace_digit(&mut self, offset: usize) {
        let digit = self.input[offset..].iter().position(u8::is_ascii_digit);
        if let Some(place) = digit {
            self.input[offset + place] = b'0' + self.random.usize(..10) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_inputs(count: usize, seed: u64) -> Vec<Vec<u8>> {
        let corpus = [b"hello 17 (a) b".to_vec(), vec![], vec![7; 400]];
        let mut mutator = Mutator::new(seed, &corpus);
        (0..count).map(|_| mutator.next_input().to_vec()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_another_others() {
        assert_eq!(first_inputs(1000, 1), first_inputs(1000, 1));
        assert_ne!(first_inputs(1000, 1), first_inputs(1000, 9));
    }

    #[test]
    fn inputs_are_of_many_kinds_and_no_longer_than_the_bound() {
        let mut inputs = first_inputs(10_000, 3);
        assert!(inputs.iter().all(|input| input.len() <= LENGTH_MAX));
        inputs.sort();
        inputs.dedup();
        assert!(inputs.len() > 5_000, "{} different ones", inputs.len());
    }
}
