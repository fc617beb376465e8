//! Uncommitted records of a write transaction, by key: a map whose changes can be undone.
//!
//! Owns the journal of one map. Invariant: without a savepoint nothing is recorded; after a
//! rollback the map equals the one at the savepoint.

use std::collections::BTreeMap;
use std::ops::Deref;

/// Records by key. Reads are those of the map.
pub(super) struct PendingMap<K, V> {
    records: BTreeMap<K, V>,
    /// The records that the changes since the savepoint replaced, oldest change first; `None`
    /// without a savepoint.
    replaced: Option<Vec<(K, Option<V>)>>,
}

impl<K, V> Default for PendingMap<K, V> {
    fn default() -> Self {
        Self { records: BTreeMap::new(), replaced: None }
    }
}

impl<K, V> Deref for PendingMap<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.records
    }
}

impl<K: Ord + Clone, V: Clone> PendingMap<K, V> {
    /// Adds or replaces a record.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match &mut self.replaced {
            None => {
                self.records.insert(key, value);
            }
            Some(replaced) => {
                let before = self.records.insert(key.clone(), value);
                replaced.push((key, before));
            }
        }
    }

    /// Removes and returns a record, if it is there.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let before = self.records.remove(key)?;
        if let Some(replaced) = &mut self.replaced {
            replaced.push((key.clone(), Some(before.clone())));
        }
        Some(before)
    }

    /// The records, for their commit.
    pub(super) fn into_records(self) -> BTreeMap<K, V> {
        self.records
    }
}

/// Changes that can be undone from a savepoint on.
pub(super) trait Undoable {
    /// Begins the journal.
    fn set_savepoint(&mut self);

    /// Ends the journal and keeps the changes.
    fn release(&mut self);

    /// Ends the journal and undoes the changes since the savepoint.
    fn roll_back(&mut self);
}

impl<K: Ord, V> Undoable for PendingMap<K, V> {
    fn set_savepoint(&mut self) {
        self.replaced = Some(Vec::new());
    }

    fn release(&mut self) {
        self.replaced = None;
    }

    fn roll_back(&mut self) {
        for (key, before) in self.replaced.take().into_iter().flatten().rev() {
            match before {
                Some(before) => self.records.insert(key, before),
                None => self.records.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_undoes_the_changes_since_the_savepoint() {
        let mut map = PendingMap::default();
        map.insert("kept", 1);
        map.insert("replaced", 1);
        map.insert("removed", 1);
        map.set_savepoint();
        map.insert("replaced", 2);
        map.insert("replaced", 3);
        map.insert("new", 1);
        assert_eq!(map.remove(&"removed"), Some(1));
        assert_eq!(map.remove(&"new"), Some(1));
        map.insert("removed", 2);
        assert_eq!(map.remove(&"absent"), None);
        map.roll_back();
        assert_eq!(*map, BTreeMap::from([("kept", 1), ("replaced", 1), ("removed", 1)]));
        map.set_savepoint();
        map.insert("replaced", 2);
        map.release();
        map.roll_back();
        let released = BTreeMap::from([("kept", 1), ("replaced", 2), ("removed", 1)]);
        assert_eq!(map.into_records(), released, "a released savepoint is gone");
    }
}
