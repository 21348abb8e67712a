//! Hazards of servers, in memory shared with the proxy in front of them. `abi/hazard.h` is the wire format.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// First word of a page with hazards.
pub const HAZARD_MAGIC: u64 = 0x6472_617a_6168_7364;
/// Version of the format of hazards.
pub const HAZARD_VERSION: u32 = 1;
/// Number of servers in one page.
pub const HAZARD_SERVERS: usize = 4;

/// Bits of [`HazardWord::hazards`], by number: `enum sidelane_hazard`. Bits 5 and 6 are hazards that the proxy itself
/// notices (`unreachable`, `failing`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum HazardBit {
    /// The server's JVM collects garbage.
    JvmGc = 0,
    /// The server's JVM has stopped all threads.
    Safepoint = 1,
    /// The server's process is stopped or frozen.
    Stopped = 2,
    /// The server's cgroup has used up its quota of CPU time.
    Throttled = 3,
    /// The server's process has ended, and its successor does not listen yet.
    Restart = 4,
}

/// Head of the page with hazards: `struct sidelane_hazard_head`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HazardHead {
    /// [`HAZARD_MAGIC`] of the page.
    pub magic: AtomicU64,
    /// [`HAZARD_VERSION`] of the writer.
    pub version: AtomicU32,
    /// Number of servers: [`HAZARD_SERVERS`].
    pub servers: AtomicU32,
    /// Reserved words, zero.
    pub reserved: [AtomicU64; 6],
}

/// Hazards of one server: `struct sidelane_hazard_word`. One watcher writes it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HazardWord {
    /// Time at which the latest hazard began.
    pub since_ns: AtomicU64,
    /// Present hazards, as bits ([`HazardBit`]).
    pub hazards: AtomicU32,
    /// Number of hazards that have begun; wraps.
    pub began: AtomicU32,
    /// Reserved words, zero.
    pub reserved: [AtomicU64; 6],
}

/// Copy of a hazard word at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HazardSnapshot {
    /// Present hazards, as bits ([`HazardBit`]).
    pub hazards: u32,
    /// Time at which the latest hazard began.
    pub since_ns: u64,
    /// Number of hazards that have begun; wraps.
    pub began: u32,
}

impl HazardWord {
    /// Stores the hazards of the server at `now_ns`. Returns whether they have changed, so that the proxy has to be
    /// woken.
    pub fn store_hazards(&self, hazards: u32, now_ns: u64) -> bool {
        let before = self.hazards.load(Ordering::Relaxed);
        let new = hazards & !before;
        if new != 0 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            self.began.store(self.began.load(Ordering::Relaxed).wrapping_add(new.count_ones()), Ordering::Relaxed);
        }
        self.hazards.store(hazards, Ordering::Release);
        hazards != before
    }

    /// Returns the present hazards. The watcher may write in between, so `since_ns` may belong to a later hazard than
    /// `hazards`.
    pub fn read(&self) -> HazardSnapshot {
        let hazards = self.hazards.load(Ordering::Acquire);
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        HazardSnapshot { hazards, since_ns, began: self.began.load(Ordering::Relaxed) }
    }
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<HazardHead>() == 64 && size_of::<HazardWord>() == 64);
    assert!(offset_of!(HazardWord, hazards) == 8 && offset_of!(HazardWord, began) == 12);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_new_hazards_set_the_time_and_are_counted() {
        let word = HazardWord::default();
        assert!(word.store_hazards(0b01, 100));
        assert!(!word.store_hazards(0b01, 150), "it goes on");
        assert!(word.store_hazards(0b11, 200));
        assert_eq!(word.read(), HazardSnapshot { hazards: 0b11, since_ns: 200, began: 2 });
        assert!(word.store_hazards(0b100, 250));
        assert_eq!(word.read(), HazardSnapshot { hazards: 0b100, since_ns: 250, began: 3 }, "another one for two");
        assert!(word.store_hazards(0, 300));
        assert_eq!(word.read(), HazardSnapshot { hazards: 0, since_ns: 250, began: 3 });
    }
}
