//! Numbered places for connections, each of which a thread may take out for a while.

/// Places.
#[derive(Debug)]
pub struct Slots<T> {
    places: Vec<Option<T>>,
    /// Free places. One whose owner was taken out for a time is not among them.
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Reserves a place for an owner that is put there next.
    pub fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        })
    }

    /// Takes out the owner at this place.
    pub fn take(&mut self, place: usize) -> Option<T> {
        self.places[place].take()
    }

    /// Puts an owner into its place.
    pub fn put_back(&mut self, place: usize, owner: T) {
        self.places[place] = Some(owner);
    }

    /// Frees the place of an owner that was taken out for good.
    pub fn leave(&mut self, place: usize) {
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_belongs_to_its_owner_until_it_leaves() {
        let mut slots = Slots::default();
        let (a, b) = (slots.reserve(), slots.reserve());
        slots.put_back(a, "a");
        slots.put_back(b, "b");
        assert_eq!((slots.take(a), slots.take(a)), (Some("a"), None));
        assert_eq!(slots.reserve(), 2, "the place of one who is out is not free");
        slots.put_back(a, "a");
        assert_eq!(slots.take(b), Some("b"));
        slots.leave(b);
        assert_eq!((slots.reserve(), slots.take(a)), (b, Some("a")));
    }
}
