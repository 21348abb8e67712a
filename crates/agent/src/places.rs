//! Places: what comes is given one, which nobody else has for one look after it went.

/// As many places as a policy knows.
#[derive(Debug)]
pub struct Places<T> {
    slots: Vec<Slot<T>>,
}

#[derive(Debug)]
enum Slot<T> {
    Free,
    /// It went, and no look has seen that yet.
    Left,
    Taken(T),
}

impl<T> Places<T> {
    /// So many, all free.
    pub fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| Slot::Free).collect() }
    }

    /// Puts it in the lowest free place; gives it back if there is none.
    pub fn add(&mut self, value: T) -> Result<usize, T> {
        match self.slots.iter().position(|slot| matches!(slot, Slot::Free)) {
            Some(place) => {
                self.slots[place] = Slot::Taken(value);
                Ok(place)
            }
            None => Err(value),
        }
    }

    /// Whether a place is free.
    pub fn has_room(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Free))
    }

    /// Takes it out.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        let slot = self.slots.get_mut(place).filter(|slot| matches!(slot, Slot::Taken(_)))?;
        match std::mem::replace(slot, Slot::Left) {
            Slot::Taken(value) => Some(value),
            Slot::Free | Slot::Left => None,
        }
    }

    /// A look has seen who is there.
    pub fn were_seen(&mut self) {
        self.slots.iter_mut().filter(|slot| matches!(slot, Slot::Left)).for_each(|slot| *slot = Slot::Free);
    }

    /// Who has the place.
    pub fn get(&self, place: usize) -> Option<&T> {
        match self.slots.get(place) {
            Some(Slot::Taken(value)) => Some(value),
            _ => None,
        }
    }

    /// Who has the place.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        match self.slots.get_mut(place) {
            Some(Slot::Taken(value)) => Some(value),
            _ => None,
        }
    }

    /// All that are there, with their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (0..self.slots.len()).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// All that are there, with their places.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(place, slot)| match slot {
            Slot::Taken(value) => Some((place, value)),
            _ => None,
        })
    }

    /// The place of the first that is so.
    pub fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<usize> {
        self.iter().find(|(_, value)| is_it(value)).map(|(place, _)| place)
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_again_after_a_look_has_seen_it_empty() {
        let mut places = Places::new(2);
        assert_eq!((places.add('a'), places.add('b'), places.add('c')), (Ok(0), Ok(1), Err('c')));
        assert_eq!(places.remove(0), Some('a'));
        assert_eq!((places.remove(0), places.add('c')), (None, Err('c')));
        places.were_seen();
        assert_eq!((places.add('c'), places.find(|value| *value == 'c')), (Ok(0), Some(0)));
        assert_eq!(places.iter().map(|(_, value)| *value).collect::<String>(), "cb");
    }
}
