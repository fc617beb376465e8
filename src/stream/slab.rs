//! Values at stable indices, with constant-time insert and remove.

/// A vector with free places, used again by later inserts.
pub(super) struct Slab<V> {
    places: Vec<Option<V>>,
    free: Vec<usize>,
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<V> Slab<V> {
    pub(super) fn insert(&mut self, value: V) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(value);
                place
            }
            None => {
                self.places.push(Some(value));
                self.places.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<V> {
        let value = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        if self.free.len() == self.places.len() {
            // Frees the memory of a burst.
            *self = Self::default();
        }
        Some(value)
    }

    pub(super) fn get(&self, place: usize) -> Option<&V> {
        self.places.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut V> {
        self.places.get_mut(place)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// One past the highest place; places below it may be free.
    pub(super) fn end(&self) -> usize {
        self.places.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.places.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.places.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_stable_and_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(b), Some(&'b'));
        assert_eq!((slab.insert('c'), slab.len(), slab.end()), (a, 2, 2));
        assert_eq!(slab.iter().collect::<String>(), "cb");
        assert_eq!((slab.remove(a), slab.remove(b), slab.end()), (Some('c'), Some('b'), 0));
    }
}
