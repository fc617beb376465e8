//! The space of keys. A key is an element named by its parts. Every prefix of a key that a slash
//! follows is an element, too: a directory.
//!
//! History decides whether a directory existed: one key below it is enough. Such a key is
//! remembered, because a scan for one may have to skip any number of removed keys.

use std::sync::Arc;

use bytes::Bytes;
use quick_cache::sync::Cache;

use super::space::{ElementData, Space, Touched, each};
use headwater_storage::state::{NEWEST, StateReader, Table};
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{EventPublisher, Feed, Kv};
use headwater_types::entity::{key_of, name_of};
use headwater_types::limits::{ENTITY_DEPTH_MAX, ENTITY_KNOWN_KEYS_MAX};
use headwater_types::{ChangeKind, KeyRange, KvEvent, LogIndex};

/// Keys by their parts.
pub(super) struct KvSpace {
    /// Cache from the prefix of a directory to a key below it, recently written or found. If the
    /// key existed at an index, so did the directory, and no scan is needed.
    known_keys: Cache<Bytes, Bytes>,
}

impl Default for KvSpace {
    fn default() -> Self {
        Self { known_keys: Cache::new(ENTITY_KNOWN_KEYS_MAX) }
    }
}

impl KvSpace {
    /// Remembers a key that existed, as a copy: the given one is a slice of a whole proposal.
    fn remember(&self, key: &[u8]) {
        if let Some(end) = key.iter().rposition(|byte| *byte == b'/') {
            let key = Bytes::copy_from_slice(key);
            self.known_keys.insert(key.slice(..=end), key);
        }
    }
}

/// The key of a name. Panics if the name is not valid.
pub(in super::super) fn key(name: &str) -> Vec<u8> {
    key_of(name).expect("invariant: names are checked where they come in, and made by name_of elsewhere")
}

/// The prefix of the keys below `name`; `None` at the greatest depth of names.
pub(in super::super) fn prefix(name: &str) -> Option<Bytes> {
    if name.is_empty() {
        return Some(Bytes::new());
    }
    if name.split('/').count() >= ENTITY_DEPTH_MAX {
        return None;
    }
    let mut prefix = key(name);
    prefix.push(b'/');
    Some(prefix.into())
}

impl Space for KvSpace {
    type Topic = Kv;

    fn feed(events: &EventPublisher) -> &Arc<Feed<Kv>> {
        events.kv()
    }

    /// One interval, from the key itself to the last key below it. Some keys in between are not
    /// below the root: the follower skips them.
    fn subject(&self, root: &str) -> KeyRange {
        match prefix(root) {
            None => KeyRange::One(key(root).into()),
            Some(prefix) if prefix.is_empty() => KeyRange::all(),
            Some(prefix) => match KeyRange::prefix(prefix) {
                // The empty key does not exist.
                KeyRange::Span { start, end } if start.len() > 1 => {
                    KeyRange::Span { start: start.slice(..start.len() - 1), end }
                }
                range => range,
            },
        }
    }

    fn touched(
        &self,
        _: &ReadView<'_>,
        _: LogIndex,
        event: &KvEvent,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError> {
        let kv = &event.kv;
        let touched = match event.kind {
            ChangeKind::Put => {
                self.remember(&kv.key);
                Touched { data: Some(ElementData::Kv(kv.clone())), was_there: Some(kv.version > 1) }
            }
            ChangeKind::Delete | ChangeKind::Expire => Touched { data: None, was_there: Some(true) },
        };
        emit(name_of(&kv.key), touched);
        Ok(())
    }

    fn is_there(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        if name.is_empty() {
            return Ok(true);
        }
        let key = key(name);
        let is_key = !key.is_empty() && view.lookup(Table::Kv, &key, at)?.is_some();
        Ok(is_key || self.has_below(view, name, at)?)
    }

    fn has_below(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        let Some(prefix) = prefix(name) else { return Ok(false) };
        if let Some(known_key) = self.known_keys.get(&prefix)
            && view.lookup(Table::Kv, &known_key, at)?.is_some()
        {
            return Ok(true);
        }
        let mut scan = view.scan(Table::Kv, &KeyRange::prefix(prefix.clone()), at)?;
        let Some((key, _)) = scan.next()? else { return Ok(false) };
        self.known_keys.insert(prefix, key.to_bytes());
        Ok(true)
    }

    fn read(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<Option<ElementData>, StorageError> {
        if name.is_empty() {
            return Ok(Some(ElementData::Empty));
        }
        let key = key(name);
        if key.is_empty() {
            return Ok(None);
        }
        let Some(version) = view.lookup(Table::Kv, &key, at)? else { return Ok(None) };
        Ok(Some(ElementData::Kv(view.load_one(&version)?.kv)))
    }

    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        recursive: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError> {
        if let Some(data) = self.read(view, root, NEWEST)?
            && !emit(root.to_owned(), data)
        {
            return Ok(());
        }
        let Some(prefix) = prefix(root) else { return Ok(()) };
        if recursive {
            return each(view, Table::Kv, &KeyRange::prefix(prefix), NEWEST, |record, _| {
                Ok(emit(name_of(&record.kv.key), ElementData::Kv(record.kv)))
            });
        }
        list_children(view, prefix, emit)
    }
}

/// Lists the children of the directory with this prefix. Skips everything below each child.
fn list_children(
    view: &ReadView<'_>,
    prefix: Bytes,
    emit: &mut dyn FnMut(String, ElementData) -> bool,
) -> Result<(), StorageError> {
    let mut range = KeyRange::prefix(prefix.clone());
    // At the greatest depth of names, a slash separates no further part.
    let has_grandchildren = name_of(&prefix).split('/').count() < ENTITY_DEPTH_MAX;
    loop {
        let mut below = None;
        let mut goes_on = true;
        each(view, Table::Kv, &range, NEWEST, |record, _| {
            let key = &record.kv.key;
            let slash = key[prefix.len()..].iter().position(|byte| *byte == b'/').filter(|_| has_grandchildren);
            match slash {
                Some(slash) => {
                    let child = key.slice(..prefix.len() + slash);
                    // The child's own key sorts before this one, and was listed already.
                    let name = name_of(&child);
                    goes_on = emit(name, ElementData::Empty);
                    below = Some(key.slice(..=prefix.len() + slash));
                    Ok(false)
                }
                None => {
                    goes_on = emit(name_of(key), ElementData::Kv(record.kv));
                    Ok(goes_on)
                }
            }
        })?;
        let KeyRange::Span { end, .. } = range else { return Ok(()) };
        match below.and_then(|below| headwater_types::kv::prefix_end(&below)) {
            Some(start) if goes_on => range = KeyRange::Span { start, end },
            Some(_) | None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_key_keeps_nothing_else_alive() {
        let proposal = Bytes::from(b"put app/a and a long value".to_vec());
        let space = KvSpace::default();
        space.remember(&proposal.slice(4..9));
        assert_eq!(space.known_keys.get(&b"app/"[..]), Some("app/a".into()));
        assert!(proposal.is_unique());
    }
}
