//! The writes of one command to KV keys. All share one revision, which exists only if there is at
//! least one write.
//!
//! Owns the advance of the revision (spec: etcd §1.1) and the fields of a new version. Invariant:
//! all writers of one command together advance the revision by one, or not at all; sub-revisions
//! follow the order of the calls.

use bytes::Bytes;

use headwater_storage::StorageError;
use headwater_storage::state::{StateReader, Table, Version, WriteTxn};
use headwater_types::consul::{KvSide, consul_path};
use headwater_types::{ChangeKind, KeyValue, Lease, LeaseId, Revision};

pub(super) struct KvWriter<'t, 'db> {
    pub(super) txn: &'t mut WriteTxn<'db>,
    before: Revision,
    changed: bool,
}

impl<'t, 'db> KvWriter<'t, 'db> {
    pub(super) fn new(txn: &'t mut WriteTxn<'db>) -> Self {
        // If the command has changed a key already, its revision exists.
        let (before, now) = (txn.revision_before(), txn.head().revision);
        Self { txn, before, changed: now != before }
    }

    /// The revision of the command's writes if the command has changed a key so far, else the one
    /// before the command.
    pub(super) fn revision(&self) -> Revision {
        if self.changed { self.before.next() } else { self.before }
    }

    /// The lease with this id. `None` if there is none, or if the id is that of a deadline, which
    /// no client can name.
    pub(super) fn client_lease(&self, id: LeaseId) -> Result<Option<Lease>, StorageError> {
        if id.is_deadline() { Ok(None) } else { self.txn.lease(id) }
    }

    pub(super) fn put(
        &mut self,
        key: Bytes,
        value: Bytes,
        lease: LeaseId,
        previous: Option<&Version>,
    ) -> Result<(), StorageError> {
        self.put_with_side(key, value, lease, previous, None)
    }

    /// Writes a key, and `side` as its side record if the key is a path of Consul's KV. Without
    /// `side` the stored side record of such a key is removed.
    pub(super) fn put_with_side(
        &mut self,
        key: Bytes,
        value: Bytes,
        lease: LeaseId,
        previous: Option<&Version>,
        side: Option<&KvSide>,
    ) -> Result<(), StorageError> {
        if let Some(path) = consul_path(&key) {
            self.txn.set_side(&path, side)?;
        }
        self.changed = true;
        let revision = self.before.next();
        let kv = KeyValue {
            key,
            value,
            create_revision: previous.map_or(revision, |previous| previous.create_revision),
            mod_revision: revision,
            version: previous.map_or(1, |previous| previous.version + 1),
            lease,
        };
        self.txn.put(Table::Kv, kv, previous);
        Ok(())
    }

    pub(super) fn delete(&mut self, key: Bytes, kind: ChangeKind, previous: &Version) -> Result<(), StorageError> {
        if let Some(path) = consul_path(&key) {
            self.txn.set_side(&path, None)?;
        }
        self.changed = true;
        self.txn.delete(Table::Kv, key, kind, self.before.next(), previous);
        Ok(())
    }

    /// Stores the new revision in the head if the command has changed a key.
    pub(super) fn finish(self) {
        if self.changed {
            self.txn.set_revision(self.before.next());
        }
    }
}
