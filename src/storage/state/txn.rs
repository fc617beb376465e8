//! The write transaction: a run of commands that becomes visible, and later durable, all at once or
//! not at all.
//!
//! Owns the batch, the uncommitted writes of the run, and the counters that follow from them. Knows
//! no rule of a command. Invariant: each command sees the ones before it; no reader sees any of
//! them before [`WriteTxn::commit`]; a key has at most one version per command.

mod reader;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rocksdb::{ReadOptions, WriteBatch};

use super::catalog::PendingCatalog;
use super::command_events::command_events;
use super::command_history::CommandHistory;
use super::commits::PendingCommits;
use super::db::{AppliedState, Families, StateDb};
use super::head::{CompactionPoint, StateHead};
use super::index::{entries_start, stored_entries};
use super::invitations;
use super::keys::{self, Table};
use super::op_counts::OpCounts;
use super::options::write_options;
use super::outline::Outline;
use super::overlay::{EventValue, Overlay};
use super::pending::PendingMap;
use super::programs;
use super::record::{
    HistoryHead, PREVIOUS_MAX, PreviousVersion, PreviousVersions, Version, encode_alarms, encode_lease,
    encode_lease_clock,
};
use super::resources::PendingResources;
use super::revisions;
use super::savepoint::Savepoint;
use super::seek::Seeker;
use super::view::{read_lease, read_lease_clock};
use crate::StorageError;
use headwater_types::auth::TokenChange;
use headwater_types::{
    Alarm, Authorship, ChangeKind, ClusterEvent, CommandEvents, Feature, Invitation, InvitationId, KeyValue, Lease,
    LeaseChange, LeaseId, LogIndex, MemberProgram, NodeId, Revision, StoreEpoch,
};

/// Most memory of the batch that a transaction begins with, bytes.
const RESERVED_BYTES_MAX: usize = 1 << 20;
/// Most changes for which a transaction begins with memory, count.
const RESERVED_CHANGES_MAX: usize = 1 << 10;

/// Result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The head after the commit.
    pub head: StateHead,
    /// The events of each command, in log order. A command without a changed record and without an
    /// event is left out.
    pub events: Vec<CommandEvents>,
    /// The changed leases as they are after the commit, in the order of their ids.
    pub leases: Vec<LeaseChange>,
    /// The changes of the simple tokens of etcd's Auth, in order.
    pub tokens: Vec<TokenChange>,
    /// Whether [`StateHead::rights_changed`] or [`StateHead::acl_changed`] moved: a change of
    /// etcd's Auth or of Consul's ACLs.
    pub rights_changed: bool,
    /// Counts of operations, for metrics.
    pub operations: OpCounts,
}

/// The largest sizes of recent commits; each smaller commit lowers them by a sixteenth. The next
/// transaction begins with memory of these sizes.
#[derive(Clone, Copy, Default)]
pub(super) struct RecentCommits {
    batch_bytes: usize,
    changes: usize,
}

impl RecentCommits {
    fn note(&mut self, batch: &WriteBatch, overlay: &Overlay) {
        let recent = |size: usize, last: usize, max| size.max(last - last / 16).min(max);
        self.batch_bytes = recent(batch.size_in_bytes(), self.batch_bytes, RESERVED_BYTES_MAX);
        self.changes = recent(overlay.changes.len(), self.changes, RESERVED_CHANGES_MAX);
    }
}

/// The command that is being applied.
#[derive(Clone)]
pub(super) struct Command {
    pub(super) index: LogIndex,
    unix_ms: u64,
    /// Number of records that the command has written so far.
    pub(super) count: u32,
    /// The KV revision before the command.
    revision: Revision,
    /// Number of deadlines that the command has begun.
    deadlines: u64,
    authorship: Authorship,
    /// See [`HistoryHead::previous`].
    previous: PreviousVersions,
    /// Whether the command has set the query index of sessions and added their event. Both happen
    /// once a command.
    sessions_changed: bool,
}

/// A write transaction; see [`StateDb::begin`]. Dropped without [`commit`](Self::commit) it leaves
/// nothing.
pub struct WriteTxn<'db> {
    pub(super) db: &'db StateDb,
    pub(super) families: Families<'db>,
    /// The head of the last commit before this transaction. Newer versions are in the overlay.
    pub(super) base: StateHead,
    pub(super) head: StateHead,
    /// The highest version that the cluster had in this transaction: a command may have lowered it
    /// since, and others may have written in its formats before.
    pub(super) highest_version: headwater_types::Version,
    batch: WriteBatch,
    pub(super) overlay: Overlay,
    /// Each uncommitted revision with its log index, in order, from `base.revision` + 1 on.
    revisions: Vec<(Revision, LogIndex)>,
    /// Uncommitted entries of `index`; false is a removal.
    pub(super) index: PendingMap<Vec<u8>, bool>,
    pub(super) resources: PendingResources,
    pub(super) catalog: PendingCatalog,
    /// Events of leases and members, by command.
    pub(super) cluster: PendingMap<LogIndex, Vec<ClusterEvent>>,
    pub(super) leases: PendingMap<LeaseId, Option<Lease>>,
    pub(super) lease_clock_ms: Option<u64>,
    pub(super) alarms: Option<Vec<Alarm>>,
    /// Changes of the simple tokens of etcd's Auth, which are no part of the state.
    pub(super) tokens: Vec<TokenChange>,
    membership: Option<Bytes>,
    /// Uncommitted programs of members; `None` is a removal.
    pub(super) programs: PendingMap<NodeId, Option<MemberProgram>>,
    /// Uncommitted invitations; `None` is a removal.
    pub(super) invitations: PendingMap<InvitationId, Option<Invitation>>,
    pub(super) commits: PendingCommits,
    #[cfg(feature = "next-version")]
    pub(super) stand_in: Option<Option<super::programs::StandInRecord>>,
    pub(super) command: Option<Command>,
    pub(super) operations: OpCounts,
    pub(super) savepoint: Option<Box<Savepoint>>,
    /// The records of the current command.
    pub(super) history: CommandHistory,
    seeker: RefCell<Seeker<'db>>,
}

impl<'db> WriteTxn<'db> {
    pub(super) fn new(db: &'db StateDb) -> Self {
        let head = db.head();
        let recent = *db.recent_commits.lock();
        Self {
            db,
            families: db.families(),
            base: head,
            head,
            highest_version: head.version.version,
            batch: WriteBatch::with_capacity_bytes(recent.batch_bytes),
            overlay: Overlay::with_capacity(recent.changes),
            revisions: Vec::with_capacity(recent.changes),
            index: PendingMap::default(),
            resources: PendingResources::default(),
            catalog: PendingCatalog::default(),
            cluster: PendingMap::default(),
            leases: PendingMap::default(),
            lease_clock_ms: None,
            alarms: None,
            tokens: Vec::new(),
            membership: None,
            programs: PendingMap::default(),
            invitations: PendingMap::default(),
            commits: PendingCommits::default(),
            #[cfg(feature = "next-version")]
            stand_in: None,
            command: None,
            operations: OpCounts::default(),
            savepoint: None,
            history: CommandHistory::default(),
            seeker: RefCell::default(),
        }
    }

    /// Begins the command of the log entry at `index`, proposed at `unix_ms`. All writes up to
    /// [`end_command`](Self::end_command) belong to it.
    ///
    /// # Panics
    ///
    /// If the entry, or a later one, was applied before, or the command before it was not ended:
    /// the log is applied in order, each entry once.
    pub fn begin_command(&mut self, index: LogIndex, unix_ms: u64) {
        let last = self.command.as_ref().map(|command| command.index).or(self.head.applied.map(|(_, index)| index));
        assert!(last.is_none_or(|last| last < index), "invariant: entry {index} comes after {last:?}");
        assert!(self.command.is_none(), "invariant: the command before {index} was ended");
        self.command = Some(Command {
            index,
            unix_ms,
            count: 0,
            revision: self.head.revision,
            deadlines: 0,
            authorship: Authorship::default(),
            previous: PreviousVersions::new(),
            sessions_changed: false,
        });
    }

    /// Sets the author and the face of the current command. The cluster's version must have the
    /// feature [`Feature::Authors`], unless both are unknown.
    pub fn set_authorship(&mut self, authorship: Authorship) {
        debug_assert!(authorship.is_unknown() || Feature::Authors.is_in(self.head.version.version));
        self.command.as_mut().expect("invariant: a command was begun").authorship = authorship;
    }

    /// Ends the command: adds its history to the batch if it has records, and notes the log index
    /// of its revision if it made one.
    ///
    /// # Panics
    ///
    /// If no command was begun, or a savepoint of it was neither released nor rolled back to.
    pub fn end_command(&mut self) {
        assert!(self.savepoint.is_none(), "invariant: a savepoint ends before its command");
        let command = self.command.take().expect("invariant: a command was begun");
        let revision = (self.head.revision != command.revision).then_some(self.head.revision);
        self.revisions.extend(revision.map(|revision| (revision, command.index)));
        if command.count > 0 {
            let Command { index, count, unix_ms, authorship, previous, .. } = command;
            let head = HistoryHead { revision, count, unix_ms, authorship, previous };
            let is_compact = Feature::CompactHistory.is_in(self.head.version.version);
            self.history.stage(index, &head, is_compact, &mut self.batch, self.families.history);
        }
    }

    /// Writes a version of a key of `table`. `previous` is the live version that it replaces,
    /// `None` for a new key; `kv` is the whole new pair. In [`Table::Kv`] it also updates the
    /// counts of the head and the keys attached to leases.
    pub fn put(&mut self, table: Table, kv: KeyValue, previous: Option<&Version>) {
        let value_len = u32::try_from(kv.value.len()).expect("invariant: requests are far smaller than 4 GiB");
        // The key filter relies on it.
        assert!(table != Table::Kv || kv.version <= 1 || previous.is_some(), "invariant: only a first version is new");
        let (key_len, lease_before) = (kv.key.len() as u64, previous.map_or(LeaseId::NONE, |version| version.lease));
        if table == Table::Kv {
            self.operations.puts += 1;
            self.operations.put_bytes += key_len + u64::from(value_len);
            match previous {
                None => {
                    self.head.live_keys += 1;
                    self.head.live_bytes += key_len + u64::from(value_len);
                }
                Some(previous) => {
                    self.head.live_bytes += u64::from(value_len);
                    self.head.live_bytes -= u64::from(previous.value_len);
                }
            }
            self.move_lease(&kv.key, lease_before, kv.lease);
        }
        let version = Version {
            deleted: false,
            value_len,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
            ..self.next_slot()
        };
        self.note_previous(table, version.position, previous);
        self.record(table, ChangeKind::Put, version, kv, EventValue::of_plain(table));
    }

    /// Removes a key of `table`: writes a tombstone. `previous` is the live version that it
    /// removes. `kind` tells a deletion from an expiry. `revision` is that of the removal, zero in
    /// a table without revisions. In [`Table::Kv`] it also updates the counts of the head and the
    /// keys attached to leases.
    pub fn delete(&mut self, table: Table, key: Bytes, kind: ChangeKind, revision: Revision, previous: &Version) {
        if table == Table::Kv {
            self.head.live_keys -= 1;
            self.head.live_bytes -= key.len() as u64 + u64::from(previous.value_len);
            self.move_lease(&key, previous.lease, LeaseId::NONE);
        }
        let version = Version { deleted: true, mod_revision: revision, ..self.next_slot() };
        self.note_previous(table, version.position, Some(previous));
        self.record(
            table,
            kind,
            version,
            KeyValue { key, mod_revision: revision, ..KeyValue::default() },
            EventValue::of_plain(table),
        );
    }

    pub(super) fn next_slot(&mut self) -> Version {
        let command = self.command.as_mut().expect("invariant: writes belong to a command");
        command.count += 1;
        Version { index: command.index, position: command.count, ..Version::default() }
    }

    /// Notes for the head of the command that its record at `position` replaces or removes
    /// `version`. Only the records of keys are noted.
    fn note_previous(&mut self, table: Table, position: u32, version: Option<&Version>) {
        let Some(version) = version.filter(|_| table == Table::Kv) else { return };
        if position > PREVIOUS_MAX || !Feature::Authors.is_in(self.head.version.version) {
            return;
        }
        let command = self.command.as_mut().expect("invariant: writes belong to a command");
        command.previous.resize(position as usize - 1, None);
        command.previous.push(Some(PreviousVersion::of(version)));
    }

    pub(super) fn record(
        &mut self,
        table: Table,
        kind: ChangeKind,
        version: Version,
        kv: KeyValue,
        event_value: EventValue,
    ) {
        self.history.add(version.position, table, kind, &kv);
        if let Some(savepoint) = &mut self.savepoint {
            savepoint.note_write(&self.overlay, table, &kv.key, &version);
        }
        self.overlay.push(version, table, kind, kv, event_value);
    }

    /// Writes a record without key and version, of a table that exists in history only.
    pub(super) fn record_history(&mut self, slot: Version, table: Table, value: Bytes) {
        debug_assert!(table.is_only_history(), "invariant: every other record has a version");
        let kv = KeyValue { value, ..KeyValue::default() };
        self.history.add(slot.position, table, ChangeKind::Put, &kv);
    }

    /// Counts of the operations so far.
    pub fn operations(&self) -> OpCounts {
        self.operations
    }

    /// Changes the counts of operations. For operations that only the rules of a command can count.
    pub fn count(&mut self, count: impl FnOnce(&mut OpCounts)) {
        count(&mut self.operations);
    }

    /// Log index of the command that is being applied.
    pub(super) fn command_index(&self) -> LogIndex {
        self.command.as_ref().expect("invariant: a command was begun").index
    }

    /// Time of the proposal that is being applied, milliseconds since the Unix epoch.
    pub fn command_unix_ms(&self) -> u64 {
        self.command.as_ref().expect("invariant: a command was begun").unix_ms
    }

    /// The revision that the command began with.
    pub fn revision_before(&self) -> Revision {
        self.command.as_ref().expect("invariant: a command was begun").revision
    }

    /// Counts one more deadline of the command. Returns the arguments of `LeaseId::of_deadline`.
    pub(super) fn next_deadline(&mut self) -> (LogIndex, u64) {
        let command = self.command.as_mut().expect("invariant: a command was begun");
        command.deadlines += 1;
        (command.index, command.deadlines - 1)
    }

    /// Notes that the command changed sessions. True for the first call within a command.
    pub(super) fn note_sessions_changed(&mut self) -> bool {
        let command = self.command.as_mut().expect("invariant: a command was begun");
        !std::mem::replace(&mut command.sessions_changed, true)
    }

    fn move_lease(&mut self, key: &[u8], from: LeaseId, to: LeaseId) {
        if from == to {
            return;
        }
        for (lease, attached) in [(from, false), (to, true)] {
            if lease.is_some() {
                let mut entry = Vec::with_capacity(key.len() + 9);
                keys::push_lease_key(&mut entry, lease, key);
                self.index.insert(entry, attached);
            }
        }
    }

    /// Moves the KV revision to `revision`, which the current command made: the next one after
    /// [`revision_before`](Self::revision_before).
    pub fn set_revision(&mut self, revision: Revision) {
        debug_assert!(revision >= self.head.revision, "invariant: the revision never goes back");
        self.head.revision = revision;
    }

    /// Sets the compaction point.
    pub fn set_compaction(&mut self, point: CompactionPoint) {
        self.head.compaction = Some(point);
    }

    /// Makes the history of all tables but keys begin at `floor`. Their records below it are
    /// reclaimed later. The caller has checked that `floor` is not below the compaction point, and
    /// that no command between the two has changed a key.
    pub fn set_history_floor(&mut self, floor: LogIndex) {
        self.head.history_floor = floor;
    }

    /// Sets the store's epoch.
    pub fn set_epoch(&mut self, epoch: StoreEpoch) {
        self.head.epoch = Some(epoch);
    }

    /// Writes (or with `None` removes) a lease. Keys that are attached to it are not touched.
    pub fn set_lease(&mut self, id: LeaseId, lease: Option<Lease>) {
        self.leases.insert(id, lease);
    }

    /// The lease `id`, with the changes of this transaction; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record of the lease cannot be decoded.
    pub fn lease(&self, id: LeaseId) -> Result<Option<Lease>, StorageError> {
        if let Some(lease) = self.leases.get(&id) {
            return Ok(*lease);
        }
        if let Some(lease) = self.db.leases.lease(id) {
            return Ok(Some(lease));
        }
        let key = keys::lease(id);
        let stored = read_lease(&key, self.db.db.get_pinned_cf(self.families.meta, key)?.as_deref())?;
        if let Some(lease) = stored {
            self.db.leases.add(id, lease);
        }
        Ok(stored)
    }

    /// Sets the lease clock, milliseconds.
    pub fn set_lease_clock(&mut self, clock_ms: u64) {
        self.lease_clock_ms = Some(clock_ms);
    }

    /// The lease clock, milliseconds, with the change of this transaction; zero until it is first
    /// set.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record of the clock cannot be decoded.
    pub fn lease_clock(&self) -> Result<u64, StorageError> {
        match self.lease_clock_ms {
            Some(clock_ms) => Ok(clock_ms),
            None => read_lease_clock(self.db.db.get_pinned_cf(self.families.meta, keys::META_LEASE_CLOCK)?.as_deref()),
        }
    }

    /// The KV keys that are attached to a lease, in key order, with the changes of this
    /// transaction.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub fn lease_keys(&self, lease: LeaseId) -> Result<Vec<Bytes>, StorageError> {
        let prefix = keys::lease_keys_prefix(lease);
        let mut pending = self.index.range::<[u8], _>((Bound::Included(&prefix[..]), Bound::Unbounded));
        if pending.next().is_some_and(|(entry, _)| entry.starts_with(&prefix)) {
            return self.index_entries(&prefix, &[], usize::MAX);
        }
        if let Some(keys) = self.db.leases.keys(lease) {
            return Ok(keys);
        }
        let keys = stored_entries(self.db, ReadOptions::default(), &prefix, &[], usize::MAX)?;
        self.db.leases.add_keys(lease, &keys);
        Ok(keys)
    }

    /// As [`StateReader::index_keys`](super::StateReader::index_keys), with uncommitted changes.
    fn index_entries(&self, prefix: &[u8], after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError> {
        let start = entries_start(prefix, after);
        let pending: BTreeMap<&[u8], bool> = self
            .index
            .range(start.clone()..)
            .map_while(|(entry, &present)| Some((entry.strip_prefix(prefix)?, present)))
            .collect();
        // Pending removals may hide so many of the stored entries.
        let removed = pending.values().filter(|present| !**present).count();
        let stored_limit = limit.saturating_add(removed);
        let stored = stored_entries(self.db, ReadOptions::default(), prefix, after, stored_limit)?;
        // If the limit ended the read, unread stored entries may precede the pending ones behind
        // the last entry read: those are left out.
        let horizon = if stored.len() == stored_limit { stored.last().cloned() } else { None };
        let mut found: BTreeMap<Bytes, bool> = stored.into_iter().map(|key| (key, true)).collect();
        let known = pending.into_iter().filter(|(key, _)| horizon.as_ref().is_none_or(|last| *key <= last.as_ref()));
        found.extend(known.map(|(key, present)| (Bytes::copy_from_slice(key), present)));
        Ok(found.into_iter().filter_map(|(key, present)| present.then_some(key)).take(limit).collect())
    }

    /// Sets term and index of the last applied entry and, if `applied` has one, the membership. The
    /// commit writes them with everything else.
    ///
    /// # Panics
    ///
    /// If a command is still open.
    pub fn set_applied(&mut self, applied: &AppliedState) {
        assert!(self.command.is_none(), "invariant: a command ends before it counts as applied");
        self.head.applied = Some((applied.term, applied.index));
        if let Some(membership) = &applied.membership {
            self.membership = Some(membership.clone());
        }
    }

    /// Approximate memory of the uncommitted writes, bytes.
    pub fn held_bytes(&self) -> usize {
        self.batch.size_in_bytes() + self.overlay.bytes + self.catalog.rows.bytes()
    }

    /// Commits all changes in one atomic write, and makes them visible.
    ///
    /// # Errors
    ///
    /// If the disk failed, now or earlier. After a failed write nothing became visible, and the
    /// store refuses every later view and write. If the cluster version rises, the data directory
    /// is marked before and after the write: the changes are visible if only the second mark
    /// failed.
    ///
    /// # Panics
    ///
    /// If a command is still open.
    pub fn commit(mut self) -> Result<Committed, StorageError> {
        assert!(self.command.is_none(), "invariant: a commit lies between commands");
        self.db.health.check()?;
        let db = self.db;
        let is_rising = self.highest_version > self.base.version.version;
        let rising = db.version_mark.as_ref().filter(|_| is_rising);
        if is_rising {
            db.rises.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(mark) = rising {
            mark.raise(self.highest_version)?;
        }
        let _committing = db.committing.lock();
        if Feature::Authors.is_in(self.highest_version) {
            db.has_plain_history.store(false, Ordering::Release);
        }
        self.stage();
        let batch = std::mem::take(&mut self.batch);
        db.recent_commits.lock().note(&batch, &self.overlay);
        headwater_fail_points::fail_point!(StateCommit);
        self.db.health.observe(self.db.db.write_opt(batch, &write_options()))?;
        *self.db.head.write() = self.head;
        if is_rising {
            db.rises.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(mark) = rising {
            // After a downgrade it may have been lowered since, by the version of before.
            mark.raise(self.highest_version)?;
        }
        let changes = std::mem::take(&mut self.overlay.changes);
        let leases = std::mem::take(&mut self.leases).into_records();
        let leases = leases.into_iter().map(|(id, lease)| LeaseChange { id, lease }).collect();
        let catalog = std::mem::take(&mut self.catalog);
        db.rows.take(catalog.rows);
        let cluster = std::mem::take(&mut self.cluster);
        let (operations, tokens) = (self.operations, std::mem::take(&mut self.tokens));
        let events = command_events(changes, catalog.events.into_records(), cluster.into_records());
        let changes = |head: &StateHead| (head.rights_changed, head.acl_changed);
        let rights_changed = changes(&self.head) != changes(&self.base);
        Ok(Committed { head: self.head, events, leases, tokens, rights_changed, operations })
    }

    /// Adds the deferred records to the batch, family by family: the log indexes of revisions, the
    /// versions in key order because their insertion is cheap then, the entries of `index`, and the
    /// records of `meta`. Also updates filter and caches.
    fn stage(&mut self) {
        let is_compact = Feature::CompactHistory.is_in(self.head.version.version);
        let Self { batch, overlay, families, db, .. } = self;
        revisions::stage(&self.revisions, &mut db.last_distance.lock(), is_compact, batch, families.revisions);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        db.ranges.forget(overlay.keys_of(Table::Kv), overlay.newest_of(Table::Kv));
        for (table, user_key, versions) in overlay.keys() {
            key.clear();
            keys::push_version_prefix(&mut key, table, user_key);
            let prefix = key.len();
            for version in versions.iter().rev() {
                key.truncate(prefix);
                keys::push_inverted(&mut key, version.index);
                value.clear();
                version.encode(&mut value);
                batch.put_cf(families.versions, &key, &value);
            }
            // A key that has its second version or a later one was added with its first.
            let is_known = table == Table::Kv && versions.first().is_some_and(|oldest| oldest.version > 1);
            if let Some(filter) = db.filter.as_ref().filter(|_| !is_known) {
                filter.add(table, user_key);
            }
            if let Some(newest) = versions.last() {
                let is_resource = table == Table::Resource && !newest.deleted;
                let outline =
                    match is_resource.then(|| overlay.change(newest)).flatten().map(|change| &change.event_value) {
                        Some(EventValue::Resource(resource)) => Some(Outline::of(resource)),
                        _ => None,
                    };
                db.cache.insert(table, user_key, *newest, outline);
            }
        }
        // Before the entries of their keys: a lease begins without keys.
        for (&id, lease) in self.leases.iter() {
            match lease {
                Some(lease) if lease.granted > self.base.applied_index() => db.leases.grant(id, *lease),
                Some(lease) => db.leases.update(id, *lease),
                None => db.leases.end(id),
            }
        }
        for (entry, attached) in self.index.iter() {
            db.lists.forget(entry);
            if let Some((lease, key)) = keys::split_lease_key(entry) {
                db.leases.attach(lease, key, *attached);
            }
            match attached {
                true => batch.put_cf(families.index, entry, b""),
                false => batch.delete_cf(families.index, entry),
            }
        }
        self.resources.stage(batch, families.meta);
        self.catalog.stage(batch, families.meta);
        for (&id, lease) in self.leases.iter() {
            match lease {
                Some(lease) => batch.put_cf(families.meta, keys::lease(id), encode_lease(lease)),
                None => batch.delete_cf(families.meta, keys::lease(id)),
            }
        }
        if let Some(clock_ms) = self.lease_clock_ms {
            batch.put_cf(families.meta, keys::META_LEASE_CLOCK, encode_lease_clock(clock_ms));
        }
        if let Some(alarms) = &self.alarms {
            batch.put_cf(families.meta, keys::META_ALARMS, encode_alarms(alarms));
        }
        if let Some(membership) = &self.membership {
            batch.put_cf(families.meta, keys::META_MEMBERSHIP, membership);
        }
        programs::stage(&self.programs, batch, families.meta);
        invitations::stage(&self.invitations, batch, families.meta);
        self.commits.stage(batch, families.meta);
        #[cfg(feature = "next-version")]
        match &self.stand_in {
            None => {}
            Some(Some(stand_in)) => {
                batch.put_cf(families.meta, keys::META_STAND_IN, programs::encode_stand_in(stand_in))
            }
            Some(None) => batch.delete_cf(families.meta, keys::META_STAND_IN),
        }
        if self.head != self.base {
            batch.put_cf(families.meta, keys::META_HEAD, self.head.encode());
        }
    }
}

impl Drop for WriteTxn<'_> {
    fn drop(&mut self) {
        self.db.writing.store(false, Ordering::Release);
    }
}
