//! Numbered slots for connections. A thread may take a connection out of its slot temporarily.

/// Slot table, indexed by slot number.
#[derive(Debug)]
pub struct Slots<T> {
    places: Vec<Option<T>>,
    /// Numbers of the free slots. A slot whose connection is taken out temporarily is not free.
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Reserves a slot for a connection that is stored next.
    pub fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        })
    }

    /// Takes out the connection of this slot.
    pub fn take(&mut self, slot: usize) -> Option<T> {
        self.places[slot].take()
    }

    /// Stores a connection in its slot.
    pub fn put_back(&mut self, slot: usize, value: T) {
        self.places[slot] = Some(value);
    }

    /// Frees the slot of a connection that is closed.
    pub fn release_slot(&mut self, slot: usize) {
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_reused_only_after_its_release() {
        let mut slots = Slots::default();
        let (a, b) = (slots.reserve(), slots.reserve());
        slots.put_back(a, "a");
        slots.put_back(b, "b");
        assert_eq!((slots.take(a), slots.take(a)), (Some("a"), None));
        assert_eq!(slots.reserve(), 2, "the place of one who is out is not free");
        slots.put_back(a, "a");
        assert_eq!(slots.take(b), Some("b"));
        slots.release_slot(b);
        assert_eq!((slots.reserve(), slots.take(a)), (b, Some("a")));
    }
}
