//! A table of slots: a freed slot is reused only after the next observation.

/// Table of values in slots. A policy refers to a value by the number of its slot.
#[derive(Debug)]
pub struct SlotTable<T> {
    slots: Vec<Slot<T>>,
}

#[derive(Debug)]
enum Slot<T> {
    Free,
    /// Slot whose value was removed after the last observation.
    Vacated,
    Taken(T),
}

impl<T> SlotTable<T> {
    /// Makes a table of `count` free slots.
    pub fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| Slot::Free).collect() }
    }

    /// Puts the value into the lowest free slot. If there is none, the error is the value.
    pub fn add(&mut self, value: T) -> Result<usize, T> {
        match self.slots.iter().position(|slot| matches!(slot, Slot::Free)) {
            Some(place) => {
                self.slots[place] = Slot::Taken(value);
                Ok(place)
            }
            None => Err(value),
        }
    }

    /// Returns whether a slot is free.
    pub fn has_room(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Free))
    }

    /// Removes the value of a slot.
    pub fn remove(&mut self, slot_index: usize) -> Option<T> {
        let slot = self.slots.get_mut(slot_index).filter(|slot| matches!(slot, Slot::Taken(_)))?;
        match std::mem::replace(slot, Slot::Vacated) {
            Slot::Taken(value) => Some(value),
            Slot::Free | Slot::Vacated => None,
        }
    }

    /// Frees the slots whose values were removed before this observation.
    pub fn free_vacated_slots(&mut self) {
        self.slots.iter_mut().filter(|slot| matches!(slot, Slot::Vacated)).for_each(|slot| *slot = Slot::Free);
    }

    /// Returns the value of a slot; `None` if it is empty.
    pub fn get(&self, slot_index: usize) -> Option<&T> {
        match self.slots.get(slot_index) {
            Some(Slot::Taken(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a slot; `None` if it is empty.
    pub fn get_mut(&mut self, slot_index: usize) -> Option<&mut T> {
        match self.slots.get_mut(slot_index) {
            Some(Slot::Taken(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns all values with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (0..self.slots.len()).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// Returns all values with their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(place, slot)| match slot {
            Slot::Taken(value) => Some((place, value)),
            _ => None,
        })
    }

    /// Returns the slot of the first value for which `is_wanted` is true.
    pub fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<usize> {
        self.iter().find(|(_, value)| is_wanted(value)).map(|(place, _)| place)
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_reused_only_after_the_next_observation() {
        let mut places = SlotTable::new(2);
        assert_eq!((places.add('a'), places.add('b'), places.add('c')), (Ok(0), Ok(1), Err('c')));
        assert_eq!(places.remove(0), Some('a'));
        assert_eq!((places.remove(0), places.add('c')), (None, Err('c')));
        places.free_vacated_slots();
        assert_eq!((places.add('c'), places.find(|value| *value == 'c')), (Ok(0), Some(0)));
        assert_eq!(places.iter().map(|(_, value)| *value).collect::<String>(), "cb");
    }
}
