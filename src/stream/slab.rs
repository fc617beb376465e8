//! Values with stable indexes, with constant-time insert and remove. Wraps the crate `slab`, which
//! keeps its memory; here removing the last value frees it.

/// A vector with free slots that later inserts reuse.
pub(super) struct Slab<V>(slab::Slab<V>);

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self(slab::Slab::new())
    }
}

impl<V> Slab<V> {
    pub(super) fn insert(&mut self, value: V) -> usize {
        self.0.insert(value)
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<V> {
        let value = self.0.try_remove(slot)?;
        if self.0.is_empty() {
            *self = Self::default();
        }
        Some(value)
    }

    pub(super) fn get(&self, slot: usize) -> Option<&V> {
        self.0.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut V> {
        self.0.get_mut(slot)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Exclusive upper bound of the used slots. Slots below it may be free.
    pub(super) fn end(&self) -> usize {
        self.0.capacity()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_stable_used_again_and_freed_with_the_last() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(b), Some(&'b'));
        assert_eq!((slab.insert('c'), slab.len()), (a, 2));
        assert!(slab.end() > b);
        assert_eq!(slab.iter().collect::<String>(), "cb");
        assert_eq!((slab.remove(a), slab.remove(b), slab.end()), (Some('c'), Some('b'), 0));
    }
}
