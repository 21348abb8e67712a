//! Table with the time of an event for each recent request. Its size is fixed, for threads that must not allocate.

/// Capacity of the table in requests of all processes. A power of two.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
/// Number of slots of which a request may use any one. If all of them are taken, the oldest entry is replaced.
const PLACES: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    pid: u32,
    id: u64,
    /// Time of the event in nanoseconds; 0 if the slot is empty.
    at_ns: u64,
}

/// Event times of the most recent requests.
#[derive(Debug)]
pub(super) struct RecentEvents {
    slots: Box<[Slot]>,
}

impl Default for RecentEvents {
    fn default() -> Self {
        Self { slots: vec![Slot::default(); SLOTS].into() }
    }
}

impl RecentEvents {
    /// Records that the event happened at `at_ns` to the request `id` of process `pid`.
    pub(super) fn record(&mut self, pid: u32, id: u64, at_ns: u64) {
        let known = candidate_slots(pid, id).find(|place| self.slots[*place].belongs_to(pid, id));
        let oldest = || candidate_slots(pid, id).min_by_key(|place| self.slots[*place].at_ns);
        let Some(place) = known.or_else(oldest) else { return };
        self.slots[place] = Slot { pid, id, at_ns };
    }

    /// Returns the time of the event for a request, or `None` if it is not in the table.
    pub(super) fn event_time_ns(&self, pid: u32, id: u64) -> Option<u64> {
        let slot = candidate_slots(pid, id).map(|place| &self.slots[place]).find(|slot| slot.belongs_to(pid, id))?;
        (slot.at_ns > 0).then_some(slot.at_ns)
    }
}

impl Slot {
    fn belongs_to(&self, pid: u32, id: u64) -> bool {
        self.pid == pid && self.id == id
    }
}

/// Returns the slots that a request may use. Ids are counters or addresses: multiplication by the golden ratio spreads
/// both (Knuth, 6.4).
fn candidate_slots(pid: u32, id: u64) -> impl Iterator<Item = usize> {
    let spread = (id ^ u64::from(pid).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (spread >> (u64::BITS - SLOT_BITS)) as usize;
    (0..PLACES).map(move |step| (first + step) % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_time_counts_for_each_process_and_id() {
        let mut recent = RecentEvents::default();
        recent.record(1, 5, 10);
        recent.record(2, 5, 20);
        recent.record(1, 5, 30);
        assert_eq!(
            (recent.event_time_ns(1, 5), recent.event_time_ns(2, 5), recent.event_time_ns(3, 5)),
            (Some(30), Some(20), None)
        );
    }

    #[test]
    fn thousand_concurrent_ids_are_known_at_any_stride() {
        for step in [1, 64, 4096] {
            let mut recent = RecentEvents::default();
            let ids = || (1..=1000_u64).map(|number| 0x7f00_0000_0000 + number * step);
            ids().for_each(|id| recent.record(1, id, id));
            let known = ids().filter(|id| recent.event_time_ns(1, *id) == Some(*id)).count();
            assert!(known >= 995, "{known} of ids {step} apart");
        }
    }

    #[test]
    fn oldest_event_is_forgotten_first() {
        let mut recent = RecentEvents::default();
        (1..100_000).for_each(|id| recent.record(1, id, id));
        assert_eq!((recent.event_time_ns(1, 99_999), recent.event_time_ns(1, 1)), (Some(99_999), None));
    }
}
