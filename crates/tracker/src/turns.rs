//! Turns of threads on a lane, recorded by the kernel program for requests that the service emits. The kernel program
//! does not learn when such a request starts or finishes. So its lane, and the batch beside it, are looked up
//! afterwards.

use std::sync::atomic::{Ordering, fence};

use sidelane_formats::LaneClass;

use crate::kernel_types::LaneTurns;

const TURNS: usize = 1024;

/// Turn of a thread: its time on a lane from one context switch to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Time at which the thread was switched in, in ns.
    pub began_ns: u64,
    /// Time at which the thread was switched out, in ns.
    pub ended_ns: u64,
    /// Id of the thread that ran.
    pub pid: u32,
    /// Class of the thread: service, batch or other, as the number of a lane class.
    pub class: u32,
}

impl LaneTurns {
    /// Returns how long batch has run on this lane since `from_ns`, up to the end of its last turn. Allocates nothing.
    pub fn batch_ns_since(&self, from_ns: u64) -> u64 {
        let count = self.count.load(Ordering::Acquire);
        let newest_first = (oldest_complete_turn(count)..count).rev().map(|number| self.turn(number));
        let recent = newest_first.take_while(|turn| turn.ended_ns > from_ns);
        let batch = recent.filter(|turn| turn.class == LaneClass::Batch as u32);
        batch.map(|turn| turn.ended_ns.saturating_sub(turn.began_ns.max(from_ns))).sum()
    }

    /// Returns the turns that are not overwritten, oldest first, and the time from which they are complete.
    pub fn copy_turns(&self) -> (Vec<Turn>, u64) {
        let count = self.count.load(Ordering::Acquire);
        let copied: Vec<(u64, Turn)> =
            (oldest_complete_turn(count)..count).map(|number| (number, self.turn(number))).collect();
        fence(Ordering::Acquire);
        let oldest = oldest_complete_turn(self.count.load(Ordering::Relaxed));
        let turns: Vec<Turn> =
            copied.into_iter().filter(|(number, _)| *number >= oldest).map(|(_, turn)| turn).collect();
        let whole_since_ns = if oldest == 0 { 0 } else { turns.first().map_or(u64::MAX, |turn| turn.began_ns) };
        (turns, whole_since_ns)
    }

    fn turn(&self, number: u64) -> Turn {
        let slot = &self.turns[(number % TURNS as u64) as usize];
        let (began_ns, ended_ns) = (slot.began_ns.load(Ordering::Relaxed), slot.ended_ns.load(Ordering::Relaxed));
        let (pid, class) = (slot.pid.load(Ordering::Relaxed), slot.class.load(Ordering::Relaxed));
        Turn { began_ns, ended_ns, pid, class }
    }
}

/// Returns the number of the oldest turn that is not being overwritten when `count` turns have ended.
fn oldest_complete_turn(ended_turns: u64) -> u64 {
    ended_turns.saturating_sub(TURNS as u64 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_types::zeroed;

    #[test]
    fn copy_of_a_wrapped_ring_lacks_the_oldest_turn() {
        let ring = zeroed::<LaneTurns>();
        let write = |number: u64| {
            let slot = &ring.turns[(number % TURNS as u64) as usize];
            slot.began_ns.store(10 * number, Ordering::Relaxed);
            slot.ended_ns.store(10 * number + 5, Ordering::Relaxed);
            slot.class.store(LaneClass::Batch as u32, Ordering::Relaxed);
            ring.count.store(number + 1, Ordering::Relaxed);
        };
        (0..3).for_each(write);
        assert_eq!(ring.copy_turns().0.len(), 3);
        assert_eq!((ring.batch_ns_since(0), ring.batch_ns_since(12), ring.batch_ns_since(30)), (15, 8, 0));
        assert_eq!(ring.copy_turns().1, 0);
        (3..TURNS as u64 + 10).for_each(write);
        let (turns, whole_since_ns) = ring.copy_turns();
        assert_eq!((turns.len(), whole_since_ns), (TURNS - 1, 110));
        assert!(turns.is_sorted_by_key(|turn| turn.began_ns));
    }
}
