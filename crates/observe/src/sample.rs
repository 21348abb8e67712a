//! One sample: the values that the observer read in one turn of its loop.

/// The most signals in a sample: counters first, then tags.
pub const SIGNALS_MAX: usize = 24;

/// The values that lines 3 to 16 of Figure 3.2 put into the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Cycles before the counters were read (Cs).
    pub start: u64,
    /// Cycles after the counters were read (Ce); the same as `start` without counters.
    pub end: u64,
    /// The target's thread on the observed lane, 0 for none or if it is unknown.
    pub thread: u64,
    /// The counters, then the tags.
    pub values: [u64; SIGNALS_MAX],
}

/// Which of a sample's values are counters and which are tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of counters, which come first.
    pub counters: usize,
    /// Number of tags after them.
    pub tags: usize,
}

impl Layout {
    /// Number of signals.
    pub fn signals(&self) -> usize {
        self.counters + self.tags
    }
}

impl Sample {
    /// The tag with that index.
    #[inline(always)]
    pub fn tag(&self, layout: Layout, number: usize) -> u64 {
        self.values[layout.counters + number]
    }
}
