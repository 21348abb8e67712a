//! Turns of batch and the service by their own clocks, as evidence that comes neither from Sidelane nor from its kernel
//! program. Both programs are `runtime/c/tests/clocks_itself.c`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest gap between two turns that count as one span: the program has run on in between.
const SAME_STRETCH_NS: u64 = 1_000_000;

/// Start and end of a turn, in nanoseconds.
pub type Turn = (u64, u64);

/// Turns of one program that records them itself.
pub struct OwnClock {
    file: File,
    /// Index of the first turn that is still needed.
    first: u64,
}

impl OwnClock {
    /// Opens the record of a program that was started with this file and has written to it.
    pub fn open(file: &Path) -> Self {
        Self { file: File::open(file).expect("the program has made it"), first: 0 }
    }

    /// Returns the turns that have not ended before `since_ns`.
    pub fn take_turns_since(&mut self, since_ns: u64) -> Vec<Turn> {
        let count = self.read_word(0);
        let turns: Vec<Turn> =
            (self.first..count).map(|turn| (self.read_word(1 + 2 * turn), self.read_word(2 + 2 * turn))).collect();
        let old = turns.iter().take_while(|(_, end)| *end < since_ns).count();
        self.first += old as u64;
        turns[old..].to_vec()
    }

    fn read_word(&self, index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 8 * index).expect("the file is as long as it may become");
        u64::from_ne_bytes(bytes)
    }
}

/// Returns the length of the longest span in which two programs ran at once, between `from_ns` and `to_ns`.
pub fn longest_overlap_ns(one: &[Turn], other: &[Turn], (from_ns, to_ns): Turn) -> u64 {
    let clipped = |(begin, end): Turn| (begin.max(from_ns), end.min(to_ns));
    let (mut one, mut other) =
        (one.iter().copied().map(clipped).peekable(), other.iter().copied().map(clipped).peekable());
    let (mut longest_ns, mut stretch_ns, mut last_ns) = (0, 0, 0);
    while let (Some(a), Some(b)) = (one.peek().copied(), other.peek().copied()) {
        let (begin, end) = (a.0.max(b.0), a.1.min(b.1));
        if begin < end {
            stretch_ns = if begin - last_ns < SAME_STRETCH_NS { stretch_ns } else { 0 } + end - begin;
            last_ns = end;
            longest_ns = longest_ns.max(stretch_ns);
        }
        if a.1 < b.1 {
            one.next()
        } else {
            other.next()
        };
    }
    longest_ns
}
