//! Finds the next event: one slot for each source of events, and a tournament between the slots.
//!
//! Problem. A simulator spends its time finding the earliest event. A heap allocates memory, and an event that is
//! postponed (a completion, each time a co-runner starts or stops) has to be found in the heap.
//!
//! Approach. Every source has at most one pending event: the next arrival, the end of the request on a lane, the next
//! check of a keeper. So each source has a slot with its event's time, and a winner tree over the slots has the
//! earliest one at its root. To move an event, the slot's time is written and at most log₂ n matches are repeated;
//! nothing is allocated. Among events at the same time the lower slot always comes first.

use crate::time::{NEVER, Nanos};

/// Times of the next events of all sources.
#[derive(Clone, Debug)]
pub struct Slots {
    times: Vec<Nanos>,
    /// Winner of each match, from the root at index 1; the slots themselves follow as leaves.
    winners: Vec<u32>,
    leaves: usize,
}

impl Slots {
    /// Creates `count` slots without events.
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

    /// Returns the time of `slot`'s event.
    #[inline]
    pub fn time_of(&self, slot: usize) -> Nanos {
        self.times[slot]
    }

    /// Sets the time of `slot`'s event; [`NEVER`] removes it.
    #[inline]
    pub fn set_time(&mut self, slot: usize, time: Nanos) {
        if self.times[slot] == time {
            return;
        }
        self.times[slot] = time;
        let mut node = (self.leaves + slot) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let winner = if self.times[right as usize] < self.times[left as usize] { right } else { left };
            // If another slot won this match before and wins it again, the matches above do not
            // change.
            if self.winners[node] == winner && winner as usize != slot {
                return;
            }
            self.winners[node] = winner;
            node /= 2;
        }
    }

    /// Returns the slot with the earliest event, and its time.
    #[inline]
    pub fn earliest(&self) -> (usize, Nanos) {
        let slot = self.winners[1] as usize;
        (slot, self.times[slot])
    }

    /// Moves `now` to the next event and returns its slot, if there is one by `until`. Otherwise moves `now` to
    /// `until`; if that is [`NEVER`], `now` stays at the last event.
    #[inline]
    pub fn advance_to_next(&self, now: &mut Nanos, until: Nanos) -> Option<usize> {
        let (slot, at) = self.earliest();
        debug_assert!(at >= *now, "time goes back from {now} to {at} (slot {slot})");
        let is_due = at <= until && at < NEVER;
        if is_due || until < NEVER {
            *now = at.min(until);
        }
        is_due.then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn earliest_slot_is_returned_and_ties_go_to_the_lower() {
        let mut slots = Slots::new(5);
        assert_eq!(slots.earliest(), (0, NEVER));
        slots.set_time(3, 10);
        slots.set_time(4, 5);
        slots.set_time(1, 5);
        assert_eq!(slots.earliest(), (1, 5));
        slots.set_time(1, NEVER);
        assert_eq!(slots.earliest(), (4, 5));
        slots.set_time(4, 20);
        assert_eq!(slots.earliest(), (3, 10));
    }

    #[test]
    fn advance_moves_time_to_each_event_then_to_the_end() {
        let mut slots = Slots::new(2);
        slots.set_time(1, 5);
        let mut now = 0;
        assert_eq!((slots.advance_to_next(&mut now, 4), now), (None, 4));
        assert_eq!((slots.advance_to_next(&mut now, 5), now), (Some(1), 5));
        slots.set_time(1, NEVER);
        assert_eq!((slots.advance_to_next(&mut now, 7), now), (None, 7));
        assert_eq!((slots.advance_to_next(&mut now, NEVER), now), (None, 7));
    }

    proptest! {
        #[test]
        fn earliest_slot_agrees_with_a_linear_search(
            count in 1_usize..40,
            moves in prop::collection::vec((0_usize..40, 0_u64..9), 1..200),
        ) {
            let mut slots = Slots::new(count);
            let mut times = vec![NEVER; count];
            for (slot, at) in moves {
                let (slot, at) = (slot % count, if at == 8 { NEVER } else { at });
                slots.set_time(slot, at);
                times[slot] = at;
                let first = (0..count).min_by_key(|slot| times[*slot]).unwrap();
                prop_assert_eq!(slots.earliest(), (first, times[first]));
            }
        }
    }
}
