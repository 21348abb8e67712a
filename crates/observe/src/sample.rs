//! One sample: the values that the observer reads in one pass of its loop.

/// Limit of the number of signals in a sample: counters first, then tags.
pub const SIGNALS_MAX: usize = 24;

/// Values of one sample, which lines 3 to 16 of the SHIM thesis's Figure 3.2 put into the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Clock before the counters were read (Cs), in cycles.
    pub start: u64,
    /// Clock after the counters were read (Ce), in cycles; the same as `start` without counters.
    pub end: u64,
    /// Target's thread on the observed lane; 0 if none runs there or it is unknown.
    pub thread: u64,
    /// Values of the counters, then of the tags.
    pub values: [u64; SIGNALS_MAX],
}

/// Numbers of counters and tags in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of counters, which come first in a sample.
    pub counters: usize,
    /// Number of tags, which follow the counters.
    pub tags: usize,
}

impl Layout {
    /// Returns the number of signals in a sample.
    pub fn signal_count(&self) -> usize {
        self.counters + self.tags
    }
}

impl Sample {
    /// Returns the value of the tag with this index among the tags.
    #[inline(always)]
    pub fn tag(&self, layout: Layout, number: usize) -> u64 {
        self.values[layout.counters + number]
    }
}
