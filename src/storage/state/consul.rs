//! State of Consul's KV API: side records of keys, sessions, and deadlines (`docs/consul-kv.md`).
//!
//! Owns the records and their index entries. Knows no rule of a command. Invariants: a path has a
//! side record only if its key exists and Consul's API wrote it last; `index` names for each
//! session its paths, its node and its checks; each deadline is a lease, and `index` maps each to
//! the other.

use bytes::Bytes;

use super::db::{corrupt, unread};
use super::keys::{self, Table};
use super::options::{HISTORY, INDEX};
use super::reader::{NEWEST, StateReader};
use super::record::Version;
use super::txn::WriteTxn;
use crate::StorageError;
use headwater_proto::codec;
use headwater_types::catalog::{
    CatalogBody, CatalogEvent, CatalogOp, CatalogTable, CatalogTopic, QueryIndexSubject, canonical,
};
use headwater_types::consul::{CONSUL_PREFIX, Deadline, KvEntry, KvSide, Session, consul_key, consul_path};
use headwater_types::{ChangeKind, KeyRange, KeyValue, Lease, LeaseId, LogIndex, Revision};

/// Reads of Consul's keys and sessions from any state.
pub trait ConsulReader: StateReader + Sized {
    /// The side record of a path; `None` if the key does not exist, or if an etcd client wrote it
    /// last.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn side(&self, path: &[u8]) -> Result<Option<KvSide>, StorageError> {
        let Some(version) = self.lookup(Table::ConsulSide, path, NEWEST)? else { return Ok(None) };
        let record = self.load_one(&version)?;
        decode_side(&record.kv).map(Some)
    }

    /// A key as Consul's clients see it, with its version in the KV table. `None` if the key does
    /// not exist.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn consul_entry(&self, path: &Bytes) -> Result<Option<(Version, KvEntry)>, StorageError> {
        let Some(version) = self.lookup(Table::Kv, &consul_key(path), NEWEST)? else { return Ok(None) };
        let value = self.load_one(&version)?.kv.value;
        let side = match self.side(path)? {
            Some(side) => side,
            None => self.foreign_side(&version)?,
        };
        Ok(Some((version, KvEntry { path: path.clone(), value, side, modified: version.index })))
    }

    /// The side record shown for a key that an etcd client wrote: without flags or a session.
    /// `created` is the log index of the key's creation, or of the compaction point if the creation
    /// lies before it.
    ///
    /// # Errors
    ///
    /// As [`index_of`](StateReader::index_of).
    fn foreign_side(&self, version: &Version) -> Result<KvSide, StorageError> {
        let compacted = self.head().compaction;
        let created = if version.create_revision == version.mod_revision {
            version.index
        } else {
            match compacted {
                Some(point) if version.create_revision <= point.revision => point.index,
                _ => self.index_of(version.create_revision)?,
            }
        };
        Ok(KvSide { created: created.min(version.index), ..KvSide::default() })
    }

    /// A session by its id. `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn session(&self, id: &str) -> Result<Option<Session>, StorageError> {
        let Some(version) = self.lookup(Table::Session, id.as_bytes(), NEWEST)? else { return Ok(None) };
        decode_session(&version, &self.load_one(&version)?.kv).map(Some)
    }

    /// The paths that a session holds, in order.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    fn session_paths(&self, session: &str) -> Result<Vec<Bytes>, StorageError> {
        self.index_keys(&keys::session_paths_prefix(session), &[], usize::MAX)
    }

    /// The ids of the sessions of a node, in order. The node's name is compared without letter
    /// case.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn node_sessions(&self, node: &str) -> Result<Vec<String>, StorageError> {
        texts(self.index_keys(&keys::node_sessions_prefix(&canonical(node)), &[], usize::MAX)?)
    }

    /// The ids of the sessions that depend on a check of a node, in order. The node's name is
    /// compared without letter case.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn check_sessions(&self, node: &str, check: &str) -> Result<Vec<String>, StorageError> {
        texts(self.index_keys(&keys::check_sessions_prefix(&canonical(node), check), &[], usize::MAX)?)
    }

    /// The lease of the running deadline of a subject. `None` if none runs.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn deadline(&self, about: &Deadline) -> Result<Option<LeaseId>, StorageError> {
        let prefix = keys::deadline_prefix(about);
        let Some(id) = self.index_keys(&prefix, &[], usize::MAX)?.pop() else { return Ok(None) };
        match <[u8; 8]>::try_from(&*id) {
            Ok(id) => Ok(Some(LeaseId(i64::from_be_bytes(id)))),
            Err(_) => Err(corrupt(INDEX, &prefix, "not the id of a deadline")),
        }
    }

    /// The subject of a deadline; `None` for a client's lease.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn about_deadline(&self, id: LeaseId) -> Result<Option<Deadline>, StorageError> {
        let prefix = keys::deadline_about_prefix(id);
        let Some(about) = self.index_keys(&prefix, &[], usize::MAX)?.pop() else { return Ok(None) };
        let about = keys::parse_about_deadline(&about);
        about.map(Some).ok_or_else(|| corrupt(INDEX, &prefix, "not what a deadline is about"))
    }
}

impl<T: StateReader> ConsulReader for T {}

/// The live keys below a prefix of paths, and the newest change there.
pub struct ConsulTree {
    /// The paths of the keys with their versions, in order of the paths.
    pub versions: Vec<(Bytes, Version)>,
    /// Log index of the newest change below the prefix, including removals with a stored tombstone;
    /// zero if there is none.
    pub newest: LogIndex,
}

/// Reads the tree below a prefix of paths, in the newest state of the view. The empty path is left
/// out.
///
/// # Errors
///
/// If the disk failed, or a record cannot be decoded.
pub fn consul_tree(view: &super::ReadView<'_>, prefix: &[u8]) -> Result<ConsulTree, StorageError> {
    let range = KeyRange::prefix([CONSUL_PREFIX, prefix].concat().into());
    let mut tree = ConsulTree { versions: Vec::new(), newest: LogIndex::ZERO };
    let mut scan = view.scan(Table::Kv, &range, NEWEST)?.with_tombstones();
    while let Some((key, version)) = scan.next()? {
        tree.newest = tree.newest.max(version.index);
        if !version.deleted
            && let Some(path) = consul_path(&key.to_bytes())
            && !path.is_empty()
        {
            tree.versions.push((path, version));
        }
    }
    Ok(tree)
}

/// Log index of the newest change of a path, including a removal with a stored tombstone; zero if
/// there is none.
///
/// # Errors
///
/// If the disk failed, or a record cannot be decoded.
pub fn consul_newest(view: &super::ReadView<'_>, path: &[u8]) -> Result<LogIndex, StorageError> {
    let mut scan = view.scan(Table::Kv, &KeyRange::One(consul_key(path)), NEWEST)?.with_tombstones();
    Ok(scan.next()?.map_or(LogIndex::ZERO, |(_, version)| version.index))
}

/// The keys with these paths and versions as Consul's clients see them, in this order.
///
/// # Errors
///
/// If the disk failed, or a record cannot be decoded.
pub fn consul_entries(state: &impl StateReader, versions: &[(Bytes, Version)]) -> Result<Vec<KvEntry>, StorageError> {
    let mut sides = Vec::with_capacity(versions.len());
    for (path, _) in versions {
        sides.push(state.lookup(Table::ConsulSide, path, NEWEST)?);
    }
    let stored: Vec<Version> = sides.iter().flatten().copied().collect();
    let mut stored = state.load(&stored)?.into_iter();
    let live: Vec<Version> = versions.iter().map(|(_, version)| *version).collect();
    let records = state.load(&live)?;
    let mut entries = Vec::with_capacity(versions.len());
    for (((path, version), side), record) in versions.iter().zip(&sides).zip(records) {
        let side = match side {
            Some(_) => decode_side(&stored.next().expect("invariant: one record per version").kv)?,
            None => state.foreign_side(version)?,
        };
        entries.push(KvEntry { path: path.clone(), value: record.kv.value, side, modified: version.index });
    }
    Ok(entries)
}

/// Every session, by id.
///
/// # Errors
///
/// If the disk failed, or a record cannot be decoded.
pub fn sessions(view: &super::ReadView<'_>) -> Result<Vec<Session>, StorageError> {
    let mut value = Vec::new();
    let mut versions = Vec::new();
    let mut scan = view.scan(Table::Session, &KeyRange::all(), NEWEST)?;
    while let Some((_, version)) = scan.next()? {
        versions.push(version);
    }
    for (version, record) in versions.iter().zip(view.load(&versions)?) {
        value.push(decode_session(version, &record.kv)?);
    }
    Ok(value)
}

impl WriteTxn<'_> {
    /// Writes (or with `None` removes) the side record of a path, and updates the index of the
    /// session that holds it.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn set_side(&mut self, path: &Bytes, side: Option<&KvSide>) -> Result<(), StorageError> {
        let previous = self.lookup(Table::ConsulSide, path, NEWEST)?;
        let held = match &previous {
            Some(version) => decode_side(&self.load_one(version)?.kv)?.session,
            None => String::new(),
        };
        let holds = side.map_or("", |side| side.session.as_str());
        if held != holds {
            for (session, present) in [(held.as_str(), false), (holds, true)] {
                if !session.is_empty() {
                    let entry = [&keys::session_paths_prefix(session)[..], path].concat();
                    self.index.insert(entry, present);
                }
            }
        }
        match (side, previous) {
            (Some(side), previous) => {
                self.put_record(Table::ConsulSide, path.clone(), codec::encode_side(side), previous.as_ref());
            }
            (None, Some(previous)) => self.delete_record(Table::ConsulSide, path.clone(), &previous),
            (None, None) => {}
        }
        Ok(())
    }

    /// Stores a new session.
    pub fn put_session(&mut self, session: &Session) {
        let id = Bytes::copy_from_slice(session.id.as_bytes());
        self.put_record(Table::Session, id, codec::encode_session(session), None);
        self.index_session(session, true);
    }

    /// Removes a session, if it exists. Its paths and its deadline are not touched.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn delete_session(&mut self, session: &Session) -> Result<(), StorageError> {
        let id = Bytes::copy_from_slice(session.id.as_bytes());
        if let Some(version) = self.lookup(Table::Session, &id, NEWEST)? {
            self.delete_record(Table::Session, id, &version);
            self.index_session(session, false);
        }
        Ok(())
    }

    /// Sets the query index of sessions to the current command, and adds the event that wakes
    /// blocking queries. Only the first call in a command has an effect.
    pub fn mark_sessions_changed(&mut self) {
        if !self.note_sessions_changed() {
            return;
        }
        let table = CatalogTable::Sessions;
        self.set_query_index(&QueryIndexSubject::Table(table), Some(self.command_index()));
        self.add_catalog_events(vec![CatalogEvent {
            topic: CatalogTopic::Table,
            op: CatalogOp::Register,
            key: "".into(),
            body: CatalogBody::Table(table),
        }]);
    }

    fn index_session(&mut self, session: &Session, present: bool) {
        let (id, node) = (session.id.as_bytes(), canonical(&session.node));
        self.index.insert([&keys::node_sessions_prefix(&node)[..], id].concat(), present);
        for check in session.checks() {
            self.index.insert([&keys::check_sessions_prefix(&node, check)[..], id].concat(), present);
        }
    }

    fn put_record(&mut self, table: Table, key: Bytes, value: Bytes, previous: Option<&Version>) {
        let version = previous.map_or(1, |previous| previous.version + 1);
        self.put(table, KeyValue { key, value, version, ..KeyValue::default() }, previous);
    }

    fn delete_record(&mut self, table: Table, key: Bytes, previous: &Version) {
        self.delete(table, key, ChangeKind::Delete, Revision::default(), previous);
    }

    /// Begins a deadline. It replaces a running one of the same subject. `ttl_seconds` below 1
    /// counts as 1.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn begin_deadline(&mut self, about: &Deadline, ttl_seconds: i64) -> Result<(), StorageError> {
        self.end_deadline(about)?;
        let id = loop {
            let (index, nth) = self.next_deadline();
            let id = LeaseId::of_deadline(index, nth);
            if self.lease(id)?.is_none() {
                break id;
            }
        };
        let granted = self.command_index();
        self.set_lease(id, Some(Lease { granted, ttl_seconds: ttl_seconds.max(1), due_ms: None }));
        self.index_deadline(about, id, true);
        Ok(())
    }

    /// Ends the running deadline of a subject, if there is one.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn end_deadline(&mut self, about: &Deadline) -> Result<(), StorageError> {
        if let Some(id) = self.deadline(about)? {
            self.set_lease(id, None);
            self.index_deadline(about, id, false);
        }
        Ok(())
    }

    fn index_deadline(&mut self, about: &Deadline, id: LeaseId, present: bool) {
        self.index.insert([&keys::deadline_prefix(about)[..], &id.get().to_be_bytes()].concat(), present);
        self.index.insert([&keys::deadline_about_prefix(id)[..], &keys::about_deadline(about)].concat(), present);
    }
}

fn decode_side(kv: &KeyValue) -> Result<KvSide, StorageError> {
    codec::decode_side(kv.value.clone()).map_err(|error| unread(HISTORY, &kv.key, error))
}

fn decode_session(version: &Version, kv: &KeyValue) -> Result<Session, StorageError> {
    codec::decode_session(kv.value.clone(), version.index).map_err(|error| unread(HISTORY, &kv.key, error))
}

fn texts(entries: Vec<Bytes>) -> Result<Vec<String>, StorageError> {
    let text = |entry: Bytes| {
        String::from_utf8(entry.to_vec()).map_err(|error| corrupt(INDEX, error.as_bytes(), "not the id of a session"))
    };
    entries.into_iter().map(text).collect()
}
