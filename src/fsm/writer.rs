//! The writes of one KV command: all share one revision, which exists only if there is at least one.
//!
//! Owns when the revision moves (spec: etcd §1.1) and the fields of a new version. Invariant: the revision moves by
//! exactly one, at the first write; sub-revisions are the order of the calls.

use bytes::Bytes;

use crate::storage::state::{StateReader, Table, Version, WriteTxn};
use crate::types::{ChangeKind, KeyValue, LeaseId, Revision};

pub(super) struct Writer<'t, 'db> {
    pub(super) txn: &'t mut WriteTxn<'db>,
    before: Revision,
    changed: bool,
}

impl<'t, 'db> Writer<'t, 'db> {
    pub(super) fn new(txn: &'t mut WriteTxn<'db>) -> Self {
        let before = txn.head().revision;
        Self { txn, before, changed: false }
    }

    /// The revision as of now: the new one if anything was changed so far.
    pub(super) fn revision(&self) -> Revision {
        if self.changed { self.before.next() } else { self.before }
    }

    pub(super) fn put(&mut self, key: Bytes, value: Bytes, lease: LeaseId, previous: Option<&Version>) {
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
    }

    pub(super) fn delete(&mut self, key: Bytes, kind: ChangeKind, previous: &Version) {
        self.changed = true;
        self.txn.delete(Table::Kv, key, kind, self.before.next(), previous);
    }

    /// Moves the store's revision if anything was changed.
    pub(super) fn finish(self) {
        if self.changed {
            self.txn.set_revision(self.before.next());
        }
    }
}
