//! Users and roles of etcd's Auth in the state, and the rights that follow from them.
//!
//! Owns the records, the flag that turns authentication on, the auth revision, and a cache of
//! compiled rights. Knows no rule of a command. Invariant: the auth revision names one content of
//! users and roles, so rights that were compiled at a revision hold as long as it lasts.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::db::{StateDb, unread};
use super::keys::{self, Table};
use super::options::HISTORY;
use super::reader::{NEWEST, StateReader};
use super::record::Version;
use super::txn::WriteTxn;
use super::view::ReadView;
use crate::StorageError;
use headwater_proto::codec;
use headwater_types::auth::{AuthState, ROOT, Role, TokenChange, User};
use headwater_types::limits::RIGHTS_CACHED_MAX;
use headwater_types::{ChangeKind, KeyRange, KeyValue, LeaseId, Revision, Rights, Space};

/// A key below `end`, with few keys between the two: a walk that continues after it soon reaches
/// `end`.
fn below(end: &[u8]) -> Bytes {
    match end.split_last() {
        None => Bytes::new(),
        Some((0, rest)) => Bytes::copy_from_slice(rest),
        Some((last, rest)) => [rest, &[last - 1], &[0xff; 8]].concat().into(),
    }
}

/// Compiled rights of users, as of one auth revision.
#[derive(Default)]
pub(super) struct RightsCache {
    auth_revision: u64,
    users: HashMap<String, Option<Arc<Rights>>>,
}

/// Reads of users and roles.
pub trait AuthReader: StateReader {
    /// The rights of a user; `None` if there is no such user. Cached until the auth revision moves
    /// on.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn user_rights(&self, name: &str) -> Result<Option<Arc<Rights>>, StorageError>;

    /// A user by name. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record cannot be decoded.
    fn user(&self, name: &str) -> Result<Option<User>, StorageError> {
        let Some((_, kv)) = self.auth_record(Table::AuthUser, name)? else { return Ok(None) };
        codec::decode_user(kv.value).map(Some).map_err(|error| unread(HISTORY, &kv.key, error))
    }

    /// A role by name. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record cannot be decoded.
    fn role(&self, name: &str) -> Result<Option<Role>, StorageError> {
        let Some((_, kv)) = self.auth_record(Table::AuthRole, name)? else { return Ok(None) };
        codec::decode_role(kv.value).map(Some).map_err(|error| unread(HISTORY, &kv.key, error))
    }

    /// Whether every KV key that is attached to a lease is permitted. `reach` returns `None` for a
    /// key that is not permitted, else the end of the permitted interval that the key lies in
    /// (`Some(None)` for no end). The other keys of the interval are skipped. May also be false if
    /// the keys lie in more than `steps_max` such intervals.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    fn all_keys_of_lease(
        &self,
        lease: LeaseId,
        steps_max: usize,
        reach: &dyn Fn(&[u8]) -> Option<Option<Bytes>>,
    ) -> Result<bool, StorageError> {
        let (prefix, mut after) = (keys::lease_keys_prefix(lease), Bytes::new());
        for _ in 0..=steps_max {
            let Some(key) = self.index_keys(&prefix, &after, 1)?.pop() else { return Ok(true) };
            match reach(&key) {
                None => return Ok(false),
                Some(None) => return Ok(true),
                Some(Some(end)) => after = below(&end).max(key),
            }
        }
        Ok(false)
    }

    /// The names of all users or of all roles, by `table`, in order of their bytes.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn auth_names(&self, table: Table) -> Result<Vec<String>, StorageError> {
        let mut names = Vec::new();
        let mut scan = self.scan(table, &KeyRange::all(), NEWEST)?;
        while let Some((key, _)) = scan.next()? {
            names.push(String::from_utf8_lossy(&key.to_bytes()).into_owned());
        }
        Ok(names)
    }

    /// The newest version and the stored record of a user or a role, by `table` and name. `None` if
    /// there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn auth_record(&self, table: Table, name: &str) -> Result<Option<(Version, KeyValue)>, StorageError> {
        let Some(version) = self.lookup(table, name.as_bytes(), NEWEST)? else { return Ok(None) };
        Ok(Some((version, self.load_one(&version)?.kv)))
    }
}

impl StateDb {
    /// The rights of a user as of an auth revision, from the cache alone. `None` if they are not
    /// compiled yet, `Some(None)` if there is no such user. Opens no view.
    pub fn compiled_rights(&self, auth_revision: u64, name: &str) -> Option<Option<Arc<Rights>>> {
        let cache = self.rights.lock();
        cache.users.get(name).filter(|_| cache.auth_revision == auth_revision).cloned()
    }
}

impl AuthReader for ReadView<'_> {
    fn user_rights(&self, name: &str) -> Result<Option<Arc<Rights>>, StorageError> {
        cached(self, self.db, name)
    }
}

impl AuthReader for WriteTxn<'_> {
    fn user_rights(&self, name: &str) -> Result<Option<Arc<Rights>>, StorageError> {
        cached(self, self.db, name)
    }
}

fn cached(state: &impl AuthReader, db: &StateDb, name: &str) -> Result<Option<Arc<Rights>>, StorageError> {
    let auth_revision = state.head().auth.revision;
    if let Some(known) = db.compiled_rights(auth_revision, name) {
        return Ok(known);
    }
    let rights = compile(state, name)?;
    let mut cache = db.rights.lock();
    // A reader of an older view does not displace the rights that newer ones need.
    if cache.auth_revision < auth_revision {
        cache.users.clear();
        cache.auth_revision = auth_revision;
    }
    if cache.auth_revision == auth_revision {
        if cache.users.len() >= RIGHTS_CACHED_MAX {
            cache.users.clear();
        }
        cache.users.insert(name.to_owned(), rights.clone());
    }
    Ok(rights)
}

/// The union of the permissions of the user's roles; everything for a user with the role `root`.
/// `None` if there is no such user.
fn compile(state: &impl AuthReader, name: &str) -> Result<Option<Arc<Rights>>, StorageError> {
    let Some(user) = state.user(name)? else { return Ok(None) };
    if user.roles.iter().any(|role| role == ROOT) {
        return Ok(Some(Arc::new(Rights::everything())));
    }
    let mut grants = Vec::new();
    for role in &user.roles {
        let permissions = state.role(role)?.map(|role| role.permissions).unwrap_or_default();
        grants.extend(permissions.iter().map(|given| (Space::Kv, given.range(), given.kind.access())));
    }
    Ok(Some(Arc::new(Rights::union(grants))))
}

impl WriteTxn<'_> {
    /// Writes (or with `None` removes) a user.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn set_user(&mut self, name: &str, user: Option<&User>) -> Result<(), StorageError> {
        self.set_auth_record(Table::AuthUser, name, user.map(codec::encode_user))
    }

    /// Writes (or with `None` removes) a role.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn set_role(&mut self, name: &str, role: Option<&Role>) -> Result<(), StorageError> {
        self.set_auth_record(Table::AuthRole, name, role.map(codec::encode_role))
    }

    /// Sets whether authentication is on, and the auth revision. Notes that rights have changed.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn set_auth(&mut self, auth: AuthState) -> Result<(), StorageError> {
        self.head.auth = auth;
        self.note_rights_changed();
        self.set_auth_record(Table::AuthState, "", Some(codec::encode_auth_state(auth)))
    }

    /// Notes that the current command changed rights: streams and caches that knew the old ones
    /// are out of date.
    pub fn note_rights_changed(&mut self) {
        self.head.rights_changed = self.command_index();
    }

    /// Moves `StateHead::acl_changed` to the current command, which changed a row of Consul's
    /// ACLs. Whether rights have changed is noted by [`Self::note_rights_changed`].
    pub(super) fn note_acl_changed(&mut self) {
        self.head.acl_changed = self.command_index();
    }

    /// Adds a change of the simple tokens of etcd's Auth to the result of the commit. It is no part
    /// of the state: each member keeps these tokens in memory.
    pub fn add_token_change(&mut self, change: TokenChange) {
        self.tokens.push(change);
    }

    fn set_auth_record(&mut self, table: Table, name: &str, value: Option<Bytes>) -> Result<(), StorageError> {
        let key = Bytes::copy_from_slice(name.as_bytes());
        let previous = self.lookup(table, &key, NEWEST)?;
        match (value, previous) {
            (Some(value), previous) => {
                let version = previous.map_or(1, |previous| previous.version + 1);
                self.put(table, KeyValue { key, value, version, ..KeyValue::default() }, previous.as_ref());
            }
            (None, Some(previous)) => self.delete(table, key, ChangeKind::Delete, Revision::default(), &previous),
            (None, None) => {}
        }
        Ok(())
    }
}
