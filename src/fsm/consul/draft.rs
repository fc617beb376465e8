//! Staged changes of a command to Consul's keys and sessions: later operations see earlier ones,
//! and nothing is written before all operations have succeeded.
//!
//! Invariant: each path is written at most once in a command, however many of its operations
//! changed it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use crate::error::FsmError;
use crate::read_budget::ReadBudget;
use crate::writer::KvWriter;
use headwater_storage::StorageError;
use headwater_storage::state::{ConsulReader, NEWEST, StateReader, Table, Version, consul_entries};
use headwater_types::consul::{CONSUL_PREFIX, Deadline, KvEntry, Session, SessionBehavior, consul_key, consul_path};
use headwater_types::{ChangeKind, KeyRange, LeaseId, LogIndex};

/// A state with the staged changes of the operations so far.
pub(super) struct Draft<'a, S> {
    state: &'a S,
    pub(super) index: LogIndex,
    slots: BTreeMap<Bytes, Slot>,
    /// Paths that operations have locked, by session. A session can hold these and the paths in the
    /// stored index, and no others.
    taken: BTreeMap<String, BTreeSet<Bytes>>,
    ended: BTreeMap<String, Session>,
    delayed: BTreeMap<Bytes, u64>,
}

/// The staged state of one path.
#[derive(Clone, Debug)]
struct Slot {
    /// The live version before the command; `None` if there was none.
    before: Option<Version>,
    entry: Option<KvEntry>,
    changed: bool,
}

/// The staged changes of a draft, without the state that they are for. They can be written, or a
/// new draft can begin with them ([`Draft::resume`]).
#[derive(Default)]
pub(super) struct Changes {
    slots: BTreeMap<Bytes, Slot>,
    taken: BTreeMap<String, BTreeSet<Bytes>>,
    ended: BTreeMap<String, Session>,
    delayed: BTreeMap<Bytes, u64>,
}

impl<'a, S: StateReader> Draft<'a, S> {
    /// A draft without changes, for the command at `index`.
    pub(super) fn new(state: &'a S, index: LogIndex) -> Self {
        Self::resume(Changes::default(), state, index)
    }

    fn slot(&mut self, path: &Bytes) -> Result<&mut Slot, StorageError> {
        // Two look-ups: the borrow checker refuses a returned reference on one path and an
        // insertion on the other.
        if !self.slots.contains_key(path) {
            let slot = match self.state.consul_entry(path)? {
                Some((version, entry)) => Slot { before: Some(version), entry: Some(entry), changed: false },
                None => Slot { before: None, entry: None, changed: false },
            };
            self.slots.insert(path.clone(), slot);
        }
        Ok(self.slots.get_mut(path).expect("invariant: it was put there"))
    }

    /// A draft with the changes of earlier operations on the same state.
    pub(super) fn resume(changes: Changes, state: &'a S, index: LogIndex) -> Self {
        let Changes { slots, taken, ended, delayed } = changes;
        Self { state, index, slots, taken, ended, delayed }
    }

    /// The key at a path, with staged changes.
    pub(super) fn entry(&mut self, path: &Bytes) -> Result<Option<KvEntry>, StorageError> {
        Ok(self.slot(path)?.entry.clone())
    }

    /// All keys that begin with `prefix`, in order; `None` if they do not fit `budget`. Stored keys
    /// are not added to the draft. If the results are not wanted, no values are read and the list
    /// is empty.
    pub(super) fn read_tree(
        &self,
        prefix: &[u8],
        budget: &mut ReadBudget,
    ) -> Result<Option<Vec<KvEntry>>, StorageError> {
        let (mut stored, mut entries) = (Vec::new(), Vec::new());
        let mut scan = self.state.scan(Table::Kv, &below(prefix), NEWEST)?;
        while let Some((key, version)) = scan.next()? {
            let Some(path) = path_of(&key.to_bytes()) else { continue };
            let slot = self.slots.get(&path);
            let fits = match slot {
                None => budget.take_result(path.len() + version.value_len as usize),
                Some(slot) if slot.entry.is_none() => budget.take_read(0),
                // It is added below.
                Some(_) => continue,
            };
            if !fits {
                return Ok(None);
            }
            if slot.is_none() && budget.is_wanted() {
                stored.push((path, version));
            }
        }
        for (_, slot) in touched(&self.slots, prefix) {
            let Some(entry) = &slot.entry else { continue };
            if !budget.take_result(entry.path.len() + entry.value.len()) {
                return Ok(None);
            }
            if budget.is_wanted() {
                entries.push(entry.clone());
            }
        }
        entries.extend(consul_entries(self.state, &stored)?);
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Some(entries))
    }

    /// Stages the removal of all keys that begin with `prefix`, without reading their values.
    pub(super) fn remove_tree(&mut self, prefix: &[u8]) -> Result<(), StorageError> {
        let mut scan = self.state.scan(Table::Kv, &below(prefix), NEWEST)?;
        while let Some((key, version)) = scan.next()? {
            let Some(path) = path_of(&key.to_bytes()) else { continue };
            // Keys that operations have touched are removed below.
            if let Entry::Vacant(vacant) = self.slots.entry(path) {
                vacant.insert(Slot { before: Some(version), entry: None, changed: true });
            }
        }
        let paths: Vec<Bytes> = touched(&self.slots, prefix)
            .filter(|(_, slot)| slot.entry.is_some())
            .map(|(path, _)| path.clone())
            .collect();
        paths.iter().try_for_each(|path| self.remove(path))
    }

    /// Stages a key, and returns it with the log indexes of its creation and of its last change.
    pub(super) fn write(&mut self, mut entry: KvEntry) -> Result<KvEntry, StorageError> {
        let index = self.index;
        let slot = self.slot(&entry.path)?;
        entry.modified = index;
        entry.side.created = slot.entry.as_ref().map_or(index, |before| before.side.created);
        slot.entry = Some(entry.clone());
        slot.changed = true;
        if !entry.side.session.is_empty() {
            self.taken.entry(entry.side.session.clone()).or_default().insert(entry.path.clone());
        }
        Ok(entry)
    }

    /// Stages the removal of a key, if it exists.
    pub(super) fn remove(&mut self, path: &Bytes) -> Result<(), StorageError> {
        let slot = self.slot(path)?;
        slot.changed |= slot.entry.take().is_some();
        Ok(())
    }

    /// A session, unless an operation has ended it.
    pub(super) fn session(&self, id: &str) -> Result<Option<Session>, StorageError> {
        if self.ended.contains_key(id) { Ok(None) } else { self.state.session(id) }
    }

    /// Whether a session that held the lock of the path has ended, and its lock delay has not.
    pub(super) fn is_delayed(&self, path: &Bytes) -> Result<bool, StorageError> {
        Ok(self.delayed.contains_key(path) || self.state.deadline(&Deadline::LockDelay(path.clone()))?.is_some())
    }

    /// Stages the end of a session, if there is one: the keys that it holds are released or
    /// removed. Returns the paths that it held before the command, or has locked in it.
    pub(super) fn end_session(&mut self, id: &str) -> Result<BTreeSet<Bytes>, StorageError> {
        let Some(session) = self.session(id)? else { return Ok(BTreeSet::new()) };
        let mut paths: BTreeSet<Bytes> = self.state.session_paths(id)?.into_iter().collect();
        paths.extend(self.taken.remove(id).unwrap_or_default());
        for path in &paths {
            let Some(mut entry) = self.entry(path)? else { continue };
            // An earlier operation may have released the lock, or given it to another session.
            if entry.side.session != id {
                continue;
            }
            match session.behavior {
                SessionBehavior::Release => {
                    entry.side.session.clear();
                    self.write(entry)?;
                }
                SessionBehavior::Delete => self.remove(path)?,
            }
            if session.lock_delay_ms > 0 {
                self.delayed.insert(path.clone(), session.lock_delay_ms);
            }
        }
        self.ended.insert(session.id.clone(), session);
        Ok(paths)
    }

    /// The staged changes, to be written or resumed.
    pub(super) fn into_changes(self) -> Changes {
        Changes { slots: self.slots, taken: self.taken, ended: self.ended, delayed: self.delayed }
    }
}

impl Changes {
    /// Writes everything, in order of paths and ids. Returns the number of removed keys.
    pub(super) fn write(self, writer: &mut KvWriter<'_, '_>) -> Result<u64, FsmError> {
        let mut removed = 0;
        for (path, slot) in self.slots {
            if !slot.changed {
                continue;
            }
            let key = consul_key(&path);
            match (slot.entry, slot.before) {
                (Some(entry), before) => {
                    writer.put_with_side(key, entry.value, LeaseId::NONE, before.as_ref(), Some(&entry.side))?;
                }
                (None, Some(before)) => {
                    removed += 1;
                    writer.txn.count(|done| done.deletes += 1);
                    writer.delete(key, ChangeKind::Delete, &before)?;
                }
                // Created and removed within the command.
                (None, None) => {}
            }
        }
        if !self.ended.is_empty() {
            writer.txn.mark_sessions_changed();
        }
        for (id, session) in self.ended {
            writer.txn.delete_session(&session)?;
            writer.txn.end_deadline(&Deadline::Session(id))?;
        }
        for (path, delay_ms) in self.delayed {
            writer.txn.begin_deadline(&Deadline::LockDelay(path), whole_seconds(delay_ms))?;
        }
        Ok(removed)
    }
}

/// The interval of KV keys that hold the paths with this prefix.
fn below(prefix: &[u8]) -> KeyRange {
    KeyRange::prefix([CONSUL_PREFIX, prefix].concat().into())
}

/// The path at a key that is [`below`] a prefix. `None` for a key that is only [`CONSUL_PREFIX`]:
/// an etcd client may have made it.
fn path_of(key: &Bytes) -> Option<Bytes> {
    consul_path(key).filter(|path| !path.is_empty())
}

/// The slots of paths that begin with `prefix`, in order.
fn touched<'a>(slots: &'a BTreeMap<Bytes, Slot>, prefix: &'a [u8]) -> impl Iterator<Item = (&'a Bytes, &'a Slot)> {
    let from = slots.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
    from.take_while(move |(path, _)| path.starts_with(prefix))
}

/// Milliseconds as whole seconds, rounded up: no deadline expires early.
pub(super) fn whole_seconds(ms: u64) -> i64 {
    i64::try_from(ms.div_ceil(1000)).unwrap_or(i64::MAX)
}
