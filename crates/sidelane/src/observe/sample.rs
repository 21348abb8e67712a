//! One sample: what the observer saw in one turn of its loop.

/// Signals in a sample at most: counters first, then tags.
pub const SIGNALS_MAX: usize = 24;

/// What lines 3 to 16 of Figure 3.2 put into the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Cycles before the counters were read (Cs).
    pub start: u64,
    /// Cycles after the counters were read (Ce); the same as `start` if there are none.
    pub end: u64,
    /// Thread of the target that ran on the observed lane, 0 for none or if that is not known.
    pub thread: u64,
    /// The counters, then the tags.
    pub values: [u64; SIGNALS_MAX],
}

/// How a sample's values are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// So many counters come first.
    pub counters: usize,
    /// So many tags follow them.
    pub tags: usize,
}

impl Layout {
    /// Signals in all.
    pub fn signals(&self) -> usize {
        self.counters + self.tags
    }
}

impl Sample {
    /// The tag of that number.
    #[inline(always)]
    pub fn tag(&self, layout: Layout, number: usize) -> u64 {
        self.values[layout.counters + number]
    }
}
