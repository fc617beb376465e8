//! The sources of a principal's rights: a view of the state, or the caches alone.
//!
//! Opening a view takes RocksDB's lock and reads the head from its tables, several times the cost
//! of the judgement itself. Invariant: both sources give the same rights for the same head.

use std::sync::Arc;

use super::super::acl::{AclState, TokenName, TokenRights};
use headwater_storage::state::{AuthReader, StateDb, StateHead};
use headwater_storage::{ReadView, StorageError};
use headwater_types::Rights;

/// A state by which principals are judged.
pub(crate) trait RightsSource {
    /// The reason for which rights cannot be read.
    type Error;

    /// The head of the state.
    fn head(&self) -> &StateHead;

    /// The rights of a user of etcd's Auth; `None` if there is no such user.
    fn user_rights(&self, name: &str) -> Result<Option<Arc<Rights>>, Self::Error>;

    /// A token of Consul's ACLs with its rights. `None` if no such token exists, it has expired, or
    /// its auth method is gone.
    fn token_rights(&self, acl: &AclState, name: &TokenName<'_>) -> Result<Option<TokenRights>, Self::Error>;
}

impl RightsSource for ReadView<'_> {
    type Error = StorageError;

    fn head(&self) -> &StateHead {
        self.head()
    }

    fn user_rights(&self, name: &str) -> Result<Option<Arc<Rights>>, StorageError> {
        AuthReader::user_rights(self, name)
    }

    fn token_rights(&self, acl: &AclState, name: &TokenName<'_>) -> Result<Option<TokenRights>, StorageError> {
        acl.look_up(self, name)
    }
}

/// The rights in the caches, as of a head of the state.
pub(super) struct CachedRights<'a> {
    db: &'a StateDb,
    head: StateHead,
}

/// The rights are not in the caches: a view must be asked.
pub(super) struct NotCached;

impl<'a> CachedRights<'a> {
    /// The cached rights as of the applied state.
    pub(super) fn now(db: &'a StateDb) -> Self {
        Self { db, head: db.head() }
    }
}

impl RightsSource for CachedRights<'_> {
    type Error = NotCached;

    fn head(&self) -> &StateHead {
        &self.head
    }

    fn user_rights(&self, name: &str) -> Result<Option<Arc<Rights>>, NotCached> {
        self.db.compiled_rights(self.head.auth.revision, name).ok_or(NotCached)
    }

    fn token_rights(&self, acl: &AclState, name: &TokenName<'_>) -> Result<Option<TokenRights>, NotCached> {
        acl.cached(&self.head, name).ok_or(NotCached)
    }
}
