//! Hazards of servers, told to the proxy in front of them. `abi/hazard.h` is the wire format.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// First word of such a page.
pub const HAZARD_MAGIC: u64 = 0x6472_617a_6168_7364;
/// The version of the format.
pub const HAZARD_VERSION: u32 = 1;
/// Servers of one page.
pub const HAZARD_SERVERS: usize = 2;

/// Bits of [`HazardWord::hazards`], by number: `enum sidelane_hazard`. Bits 5 and 6 are of what the proxy itself notices
/// (`unreachable`, `failing`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum HazardBit {
    /// Its JVM collects garbage.
    JvmGc = 0,
    /// Its JVM has stopped all threads.
    Safepoint = 1,
    /// It is stopped or frozen.
    Stopped = 2,
    /// Its group has used up its quota of CPU time.
    Throttled = 3,
    /// It has ended, and its successor does not listen yet.
    Restart = 4,
}

/// The start of the page: `struct sidelane_hazard_head`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HazardHead {
    /// [`HAZARD_MAGIC`].
    pub magic: AtomicU64,
    /// [`HAZARD_VERSION`].
    pub version: AtomicU32,
    /// [`HAZARD_SERVERS`].
    pub servers: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU64; 6],
}

/// The hazards of one server: `struct sidelane_hazard_word`. One watcher writes it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HazardWord {
    /// When the latest hazard began.
    pub since_ns: AtomicU64,
    /// Those that there are now.
    pub hazards: AtomicU32,
    /// How many have begun so far.
    pub began: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU64; 6],
}

/// What a hazard word says at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HazardSnapshot {
    /// Bits by number, of those that there are.
    pub hazards: u32,
    /// When the latest began.
    pub since_ns: u64,
    /// How many have begun so far.
    pub began: u32,
}

impl HazardWord {
    /// The server has these hazards from `now_ns` on. Whether that is news, which the proxy has to be woken for.
    pub fn tell(&self, hazards: u32, now_ns: u64) -> bool {
        let before = self.hazards.load(Ordering::Relaxed);
        let new = hazards & !before;
        if new != 0 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            self.began.store(self.began.load(Ordering::Relaxed).wrapping_add(new.count_ones()), Ordering::Relaxed);
        }
        self.hazards.store(hazards, Ordering::Release);
        hazards != before
    }

    /// What it says now. The time may be that of a later hazard than the bits.
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
    fn only_what_begins_has_a_time_and_is_counted() {
        let word = HazardWord::default();
        assert!(word.tell(0b01, 100));
        assert!(!word.tell(0b01, 150), "it goes on");
        assert!(word.tell(0b11, 200));
        assert_eq!(word.read(), HazardSnapshot { hazards: 0b11, since_ns: 200, began: 2 });
        assert!(word.tell(0b100, 250));
        assert_eq!(word.read(), HazardSnapshot { hazards: 0b100, since_ns: 250, began: 3 }, "another one for two");
        assert!(word.tell(0, 300));
        assert_eq!(word.read(), HazardSnapshot { hazards: 0, since_ns: 250, began: 3 });
    }
}
