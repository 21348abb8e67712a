//! What happens next: one slot for each source of events, and a tournament between them.
//!
//! Problem. A simulator spends its time finding the earliest event. A heap allocates, and an event
//! that is put off (a completion, each time a co-runner comes or goes) has to be found in it.
//!
//! Approach. Every source has at most one event outstanding: the next arrival, the end of the request
//! on a lane, the next look of a keeper. So each has a slot that holds its time, and a winner tree over
//! the slots keeps the earliest at its root. To move an event is to write its time and play at most
//! log₂ n matches; nothing is allocated. Of events at the same time the lower slot comes first, always.

use crate::time::{NEVER, Nanos};

/// The times of all sources of events.
#[derive(Clone, Debug)]
pub struct Slots {
    times: Vec<Nanos>,
    /// The winner of each match, from the root at 1; the leaves follow and are the slots themselves.
    winners: Vec<u32>,
    leaves: usize,
}

impl Slots {
    /// So many slots, none of which has anything coming.
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two().max(2);
        let mut slots = Self { times: vec![NEVER; leaves], winners: vec![0; 2 * leaves], leaves };
        for leaf in 0..leaves {
            slots.winners[leaves + leaf] = leaf as u32;
        }
        for node in (1..leaves).rev() {
            slots.winners[node] = slots.winners[2 * node];
        }
        slots
    }

    /// When `slot` is next.
    #[inline]
    pub fn at(&self, slot: usize) -> Nanos {
        self.times[slot]
    }

    /// `slot` is next at `at`; [`NEVER`] takes it out.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Nanos) {
        if self.times[slot] == at {
            return;
        }
        self.times[slot] = at;
        let mut node = (self.leaves + slot) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let winner = if self.times[right as usize] < self.times[left as usize] { right } else { left };
            // A match that somebody else won before and wins again changes nothing further up.
            if self.winners[node] == winner && winner as usize != slot {
                return;
            }
            self.winners[node] = winner;
            node /= 2;
        }
    }

    /// The earliest, and when.
    #[inline]
    pub fn first(&self) -> (usize, Nanos) {
        let slot = self.winners[1] as usize;
        (slot, self.times[slot])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_earliest_wins_and_of_equals_the_lower() {
        let mut slots = Slots::new(5);
        assert_eq!(slots.first(), (0, NEVER));
        slots.set(3, 10);
        slots.set(4, 5);
        slots.set(1, 5);
        assert_eq!(slots.first(), (1, 5));
        slots.set(1, NEVER);
        assert_eq!(slots.first(), (4, 5));
        slots.set(4, 20);
        assert_eq!(slots.first(), (3, 10));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_search(count in 1_usize..40, moves in prop::collection::vec((0_usize..40, 0_u64..9), 1..200)) {
            let mut slots = Slots::new(count);
            let mut times = vec![NEVER; count];
            for (slot, at) in moves {
                let (slot, at) = (slot % count, if at == 8 { NEVER } else { at });
                slots.set(slot, at);
                times[slot] = at;
                let first = (0..count).min_by_key(|slot| times[*slot]).unwrap();
                prop_assert_eq!(slots.first(), (first, times[first]));
            }
        }
    }
}
