//! The rights that commands and transactions need (spec: security §3 and §5).
//!
//! Owns the walk through a command: nested transactions, both branches, and side effects are judged
//! as they will be done. The same walk judges before a proposal and again in apply. Knows no
//! request. Invariant: a command without a rule of its own needs the right to everything.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{AuthReader, CatalogReader, ConsulReader, StateReader, WriteTxn};
use headwater_types::acl::{ACL_ANONYMOUS_ACCESSOR, AclCommand};
use headwater_types::catalog::{CatalogCommand, CatalogNode, Check, DeregistrationTarget, Registration, Service};
use headwater_types::commit::{CommitCondition, CommitOp};
use headwater_types::consul::{CatalogVerb, ConsulCommand, KvOp, TxnOp as ConsulTxnOp, TxnRow, consul_key};
use headwater_types::limits::LEASE_KEYS_JUDGED_MAX;
use headwater_types::{
    Access, AuthRefusal, Command, Compare, DeleteRange, InvitationCommand, KeyRange, LeaseAttach, LeaseChoice, LeaseId,
    Proposal, Proposer, Put, Refusal, Rights, Space, Txn, TxnOp, VersionChange,
};

/// Refuses a proposal for which the proposer lacks the rights in the state in which it is applied,
/// and one that was judged by rights that have changed since.
pub(super) fn admit(txn: &WriteTxn<'_>, proposal: &Proposal) -> Result<(), FsmError> {
    let refuse = |refusal| Err(FsmError::Refused(Refusal::Auth(refusal)));
    // The proposing member has judged the command. Its verdict holds if the rights have not changed
    // since (`as_of`). If the verdict also depends on stored data, `rights` are given, and the
    // command is judged again here.
    if let Some(Proposer::Token { as_of, accessor, rights }) = &proposal.proposer {
        let is_bootstrap = matches!(proposal.command, Command::Acl(AclCommand::Bootstrap { .. }));
        if is_bootstrap && txn.head().auth.enabled && accessor == ACL_ANONYMOUS_ACCESSOR {
            return refuse(AuthRefusal::PermissionDenied);
        }
        if *as_of < txn.head().rights_changed {
            return refuse(AuthRefusal::OldRevision);
        }
        return match rights {
            Some(rights) => Ok(permit_command(txn, rights, &proposal.command)?.map_err(Refusal::Auth)?),
            None => Ok(()),
        };
    }
    let auth = txn.head().auth;
    if !auth.enabled || is_own(&proposal.command) {
        return Ok(());
    }
    match &proposal.proposer {
        Some(Proposer::System) => Ok(()),
        None => refuse(AuthRefusal::UserEmpty),
        Some(Proposer::User { name, auth_revision }) => {
            // Changes of users and roles are judged by the rights of now, as etcd does.
            if *auth_revision < auth.revision && !matches!(proposal.command, Command::Auth(_)) {
                return refuse(AuthRefusal::OldRevision);
            }
            let Some(rights) = txn.user_rights(name)? else { return refuse(AuthRefusal::PermissionDenied) };
            Ok(permit_command(txn, &rights, &proposal.command)?.map_err(Refusal::Auth)?)
        }
        Some(Proposer::Token { .. }) => Ok(()),
    }
}

/// Whether only the store's own tasks make the command.
fn is_own(command: &Command) -> bool {
    match command {
        Command::Bootstrap(_)
        | Command::TrimHistory(_)
        | Command::LeaseExpire(_)
        | Command::LeaseCheckpoint(_)
        | Command::SetQuota(_)
        | Command::SetVersion(VersionChange::Raise { .. })
        | Command::AnnounceProgram(..)
        // By the leader, for a node that has shown a token.
        | Command::Invitation(InvitationCommand::Use { .. }) => true,
        Command::Put(_)
        | Command::DeleteRange(_)
        | Command::Txn(_)
        | Command::Compact(_)
        | Command::LeaseGrant(_)
        | Command::LeaseRevoke(_)
        | Command::LeaseAttach(_)
        | Command::LeaseTxn(_)
        | Command::SetAlarm(_)
        | Command::Resource(_)
        | Command::Consul(_)
        | Command::Catalog(_)
        | Command::SetVersion(VersionChange::Downgrade { .. } | VersionChange::EndDowngrade)
        | Command::Invitation(InvitationCommand::Create(_) | InvitationCommand::Delete(_))
        | Command::Auth(_)
        | Command::Commit(_) => false,
        Command::Acl(command) => matches!(command, AclCommand::Expire(_)),
        #[cfg(feature = "next-version")]
        Command::Note(_) => false,
    }
}

/// Spaces in which rights decide over `command`, if the verdict also depends on stored data: the
/// keys of a lease, the resources that a resource owns, the service or the node of a stored row.
/// Empty if the verdict follows from the rights and the command alone.
pub fn spaces_judged_on_state(command: &Command) -> &'static [Space] {
    let of_leases = |depends: bool| -> &'static [Space] { if depends { &[Space::Kv] } else { &[] } };
    match command {
        Command::Put(put) => of_leases(names_lease(put)),
        Command::Txn(txn) => of_leases(puts_name_lease(txn)),
        Command::LeaseRevoke(_) | Command::LeaseAttach(_) | Command::LeaseTxn(_) => of_leases(true),
        Command::Resource(_) => &[Space::Resource],
        Command::Catalog(CatalogCommand::Register(_) | CatalogCommand::Deregister(_)) => {
            &[Space::CatalogNode, Space::CatalogService]
        }
        Command::Consul(ConsulCommand::SessionDestroy(_)) => &[Space::Session],
        Command::Consul(ConsulCommand::Txn(ops)) if ops.iter().any(|op| matches!(op, ConsulTxnOp::Catalog(..))) => {
            &[Space::Kv, Space::CatalogNode, Space::CatalogService]
        }
        Command::Commit(commit) => {
            let depends = |operation: &CommitOp| !spaces_judged_on_state(operation.command()).is_empty();
            match commit.operations.iter().any(depends) {
                true => &[Space::Kv, Space::Resource, Space::CatalogNode, Space::CatalogService, Space::Session],
                false => &[],
            }
        }
        Command::DeleteRange(_)
        | Command::LeaseGrant(_)
        | Command::Catalog(CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_))
        | Command::Consul(ConsulCommand::Kv(_) | ConsulCommand::Txn(_) | ConsulCommand::SessionCreate(_))
        | Command::Compact(_)
        | Command::SetAlarm(_)
        | Command::SetQuota(_)
        | Command::SetVersion(_)
        | Command::Invitation(_)
        | Command::Auth(_)
        | Command::Acl(_)
        | Command::Bootstrap(_)
        | Command::TrimHistory(_)
        | Command::LeaseExpire(_)
        | Command::LeaseCheckpoint(_)
        | Command::AnnounceProgram(..) => &[],
        #[cfg(feature = "next-version")]
        Command::Note(_) => &[],
    }
}

fn names_lease(put: &Put) -> bool {
    matches!(put.lease, LeaseChoice::Set(lease) if lease.is_some())
}

/// Whether a put of the transaction, nested ones too, names a lease.
fn puts_name_lease(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        TxnOp::Put(put) => names_lease(put),
        TxnOp::Txn(inner) => puts_name_lease(inner),
        TxnOp::Range(_) | TxnOp::DeleteRange(_) => false,
    })
}

/// Whether `rights` permit a command on keys in every state. `None` if that depends on the state,
/// and for a command that is not on keys: [`permit_command`] decides.
pub fn permit_everywhere(rights: &Rights, command: &Command) -> Option<Result<(), AuthRefusal>> {
    let checks = KeyChecks { rights, lease: |_| Err(DependsOnState) };
    let is_permitted = match command {
        Command::Put(put) => checks.may_put(put).ok()?,
        Command::DeleteRange(delete) => checks.may_delete(delete),
        Command::Txn(txn) => checks.may_txn(txn).ok()?,
        _ => return None,
    };
    Some(if is_permitted { Ok(()) } else { Err(AuthRefusal::PermissionDenied) })
}

/// A verdict that depends on the keys of a lease.
struct DependsOnState;

/// Whether `rights` permit `command` in `state`.
///
/// # Errors
///
/// The outer one if the disk failed, the inner one if the rights do not suffice.
pub fn permit_command(
    state: &(impl AuthReader + ConsulReader),
    rights: &Rights,
    command: &Command,
) -> Result<Result<(), AuthRefusal>, StorageError> {
    if rights.may_everything() {
        return Ok(Ok(()));
    }
    let checks = StateChecks::new(state, rights);
    let is_permitted = match command {
        Command::Put(put) => checks.keys().may_put(put)?,
        Command::DeleteRange(delete) => checks.keys().may_delete(delete),
        Command::Txn(txn) => checks.keys().may_txn(txn)?,
        // Every principal may grant a lease.
        Command::LeaseGrant(_) => true,
        Command::LeaseRevoke(revoke) => checks.may_write_lease(revoke.id)?,
        Command::LeaseAttach(attach) => checks.may_attach(attach)?,
        Command::LeaseTxn(request) => {
            let mut attached = true;
            for attach in request.success.iter().chain(&request.failure) {
                attached &= checks.may_attach(attach)?;
            }
            attached && checks.keys().may_txn(&request.txn)?
        }
        Command::Resource(command) => super::resource::permit(state, rights, command)?,
        Command::Consul(command) => checks.consul(command)?,
        Command::Catalog(command) => checks.catalog(command)?,
        Command::Commit(commit) => {
            if !commit.conditions.iter().all(|condition| checks.condition(condition)) {
                return Ok(Err(AuthRefusal::PermissionDenied));
            }
            for operation in &commit.operations {
                if let Err(refusal) = permit_command(state, rights, operation.command())? {
                    return Ok(Err(refusal));
                }
            }
            true
        }
        Command::SetVersion(_)
        | Command::Compact(_)
        | Command::SetAlarm(_)
        | Command::SetQuota(_)
        | Command::Invitation(InvitationCommand::Create(_) | InvitationCommand::Delete(_)) => {
            rights.covers(Space::Cluster, &Space::WHOLE, Access::WRITE)
        }
        // The first token is made by a client without any right, unless there are users.
        Command::Acl(AclCommand::Bootstrap { .. }) => !state.head().auth.enabled,
        Command::Acl(_) => rights.covers(Space::Auth, &Space::WHOLE, Access::WRITE),
        Command::Auth(_)
        | Command::Bootstrap(_)
        | Command::TrimHistory(_)
        | Command::LeaseExpire(_)
        | Command::LeaseCheckpoint(_)
        | Command::AnnounceProgram(..)
        | Command::Invitation(InvitationCommand::Use { .. }) => false,
        #[cfg(feature = "next-version")]
        Command::Note(_) => false,
    };
    Ok(if is_permitted { Ok(()) } else { Err(AuthRefusal::PermissionDenied) })
}

/// Whether `rights` permit a transaction. For a transaction that is not proposed, because it
/// changes nothing.
///
/// # Errors
///
/// The outer one if the disk failed, the inner one if the rights do not suffice.
pub fn permit_txn(
    state: &(impl AuthReader + ConsulReader),
    rights: &Rights,
    txn: &Txn,
) -> Result<Result<(), AuthRefusal>, StorageError> {
    let is_permitted = rights.may_everything() || StateChecks::new(state, rights).keys().may_txn(txn)?;
    Ok(if is_permitted { Ok(()) } else { Err(AuthRefusal::PermissionDenied) })
}

/// Whether `rights` permit `access` to every key of a lease. A lease without keys is permitted. A
/// lease with keys in more than [`LEASE_KEYS_JUDGED_MAX`] intervals of the rights is denied.
///
/// # Errors
///
/// The outer one if the disk failed, the inner one if the rights do not suffice.
pub fn permit_lease(
    state: &impl AuthReader,
    rights: &Rights,
    lease: LeaseId,
    access: Access,
) -> Result<Result<(), AuthRefusal>, StorageError> {
    if rights.may_everything() {
        return Ok(Ok(()));
    }
    let reach = |key: &[u8]| rights.reach(Space::Kv, key, access);
    let is_permitted = state.all_keys_of_lease(lease, LEASE_KEYS_JUDGED_MAX, &reach)?;
    Ok(if is_permitted { Ok(()) } else { Err(AuthRefusal::PermissionDenied) })
}

/// Checks of the rights to keys that the operations of a command need. `lease` returns whether
/// every key of a lease may be written.
struct KeyChecks<'a, L> {
    rights: &'a Rights,
    lease: L,
}

impl<E, L: Fn(LeaseId) -> Result<bool, E>> KeyChecks<'_, L> {
    fn may_read(&self, range: &KeyRange) -> bool {
        self.rights.covers(Space::Kv, range, Access::READ)
    }

    fn may_put(&self, put: &Put) -> Result<bool, E> {
        let may = |access| self.rights.allows(Space::Kv, &put.key, access);
        if !may(Access::WRITE) || put.prev_kv && !may(Access::READ) {
            return Ok(false);
        }
        match put.lease {
            LeaseChoice::Set(lease) if lease.is_some() => (self.lease)(lease),
            LeaseChoice::Set(_) | LeaseChoice::Keep | LeaseChoice::KeepIfPresent => Ok(true),
        }
    }

    fn may_delete(&self, delete: &DeleteRange) -> bool {
        self.rights.covers(Space::Kv, &delete.range, Access::WRITE) && (!delete.prev_kv || self.may_read(&delete.range))
    }

    fn may_txn(&self, txn: &Txn) -> Result<bool, E> {
        let compares = txn.compares.iter().all(|Compare { range, .. }| self.may_read(range));
        Ok(compares && self.may_run(&txn.success)? && self.may_run(&txn.failure)?)
    }

    fn may_run(&self, ops: &[TxnOp]) -> Result<bool, E> {
        for op in ops {
            let is_permitted = match op {
                TxnOp::Range(query) => self.may_read(&query.range),
                TxnOp::Put(put) => self.may_put(put)?,
                TxnOp::DeleteRange(delete) => self.may_delete(delete),
                TxnOp::Txn(inner) => self.may_txn(inner)?,
            };
            if !is_permitted {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Checks of the rights that a command needs in one state.
struct StateChecks<'a, S> {
    state: &'a S,
    rights: &'a Rights,
    /// Results of [`Self::may_write_lease`] by lease: a lease that several operations name is
    /// judged once.
    leases: RefCell<BTreeMap<LeaseId, bool>>,
}

impl<'a, S: AuthReader + ConsulReader> StateChecks<'a, S> {
    fn new(state: &'a S, rights: &'a Rights) -> Self {
        Self { state, rights, leases: RefCell::default() }
    }

    fn keys(&self) -> KeyChecks<'_, impl Fn(LeaseId) -> Result<bool, StorageError>> {
        KeyChecks { rights: self.rights, lease: |lease| self.may_write_lease(lease) }
    }

    /// Whether every key of the lease may be written: they are deleted with it.
    fn may_write_lease(&self, lease: LeaseId) -> Result<bool, StorageError> {
        let known = self.leases.borrow().get(&lease).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let is_permitted = permit_lease(self.state, self.rights, lease, Access::WRITE)?.is_ok();
        self.leases.borrow_mut().insert(lease, is_permitted);
        Ok(is_permitted)
    }

    fn may_attach(&self, attach: &LeaseAttach) -> Result<bool, StorageError> {
        Ok(self.rights.allows(Space::Kv, &attach.key, Access::WRITE) && self.may_write_lease(attach.id)?)
    }

    fn consul(&self, command: &ConsulCommand) -> Result<bool, StorageError> {
        Ok(match command {
            ConsulCommand::Kv(op) => self.may_access_path(op),
            ConsulCommand::Txn(ops) => {
                for op in ops {
                    let is_permitted = match op {
                        ConsulTxnOp::Kv(op) => self.may_access_path(op),
                        ConsulTxnOp::Catalog(verb, row) => {
                            let access = match verb {
                                CatalogVerb::Get => Access::READ,
                                CatalogVerb::Set | CatalogVerb::Cas | CatalogVerb::Delete | CatalogVerb::DeleteCas => {
                                    Access::WRITE
                                }
                            };
                            self.row(row, access)?
                        }
                    };
                    if !is_permitted {
                        return Ok(false);
                    }
                }
                true
            }
            ConsulCommand::SessionCreate(create) => {
                self.may_access(Space::Session, &create.session.node, Access::WRITE)
            }
            ConsulCommand::SessionDestroy(id) => match self.state.session(id)? {
                Some(session) => self.may_access(Space::Session, &session.node, Access::WRITE),
                // A principal without any right to sessions is denied, whether the session exists
                // or not.
                None => self.rights.touches(Space::Session, &KeyRange::all(), Access::WRITE),
            },
        })
    }

    /// Whether everything that a condition of a commit looks at may be read.
    fn condition(&self, condition: &CommitCondition) -> bool {
        match condition {
            CommitCondition::Compare(compare) => self.rights.covers(Space::Kv, &compare.range, Access::READ),
            CommitCondition::Entity(entity, ..) => {
                entity.intervals().iter().all(|(space, range)| self.rights.covers(*space, range, Access::READ))
            }
        }
    }

    fn may_access(&self, space: Space, name: &str, access: Access) -> bool {
        self.rights.allows(space, &space.key_of(name), access)
    }

    fn may_access_path(&self, op: &KvOp) -> bool {
        let key = consul_key(&op.path);
        let range = if op.verb.is_about_prefix() { KeyRange::prefix(key) } else { KeyRange::One(key) };
        let access = if op.verb.is_read() { Access::READ } else { Access::WRITE };
        self.rights.covers(Space::Kv, &range, access)
    }

    fn row(&self, row: &TxnRow, access: Access) -> Result<bool, StorageError> {
        Ok(match row {
            TxnRow::Node(node) => self.node(node, access)?,
            TxnRow::Service(service) => self.service_of(&service.node, &service.id, &service.name, access)?,
            TxnRow::Check(check) => self.check(check, access)?,
        })
    }

    fn catalog(&self, command: &CatalogCommand) -> Result<bool, StorageError> {
        Ok(match command {
            CatalogCommand::Register(registration) => self.registration(registration)?,
            CatalogCommand::Deregister(gone) => {
                // The right to a node is the right to all on it.
                if self.may_access(Space::CatalogNode, &gone.node, Access::WRITE) {
                    return Ok(true);
                }
                match &gone.what {
                    DeregistrationTarget::Node => false,
                    DeregistrationTarget::Check(id) => match self.state.check(&gone.node, id)? {
                        Some(stored) if !stored.row.service_id.is_empty() => {
                            self.may_access(Space::CatalogService, &stored.row.service_name, Access::WRITE)
                        }
                        Some(_) | None => false,
                    },
                    DeregistrationTarget::Service(id) => match self.state.service(&gone.node, id)? {
                        Some(stored) => self.may_access(Space::CatalogService, &stored.row.name, Access::WRITE),
                        None => false,
                    },
                }
            }
            CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_) => {
                self.rights.covers(Space::Mesh, &Space::WHOLE, Access::WRITE)
            }
        })
    }

    fn registration(&self, registration: &Registration) -> Result<bool, StorageError> {
        let node = &registration.node.name;
        if self.writes_node(registration)? && !self.node(&registration.node, Access::WRITE)? {
            return Ok(false);
        }
        // Without an instance, any check of the node may go.
        let replaces_of_node = registration.replace_checks && registration.service.is_none();
        if replaces_of_node && !self.may_access(Space::CatalogNode, node, Access::WRITE) {
            return Ok(false);
        }
        let id_of = |service: &Service| if service.id.is_empty() { service.name.clone() } else { service.id.clone() };
        let own = registration.service.as_ref().map(id_of);
        if let (Some(service), Some(id)) = (&registration.service, &own)
            && !self.service_of(node, id, &service.name, Access::WRITE)?
        {
            return Ok(false);
        }
        for check in &registration.checks {
            let belongs = match &check.service_id {
                id if id.is_empty() => self.may_access(Space::CatalogNode, node, Access::WRITE),
                // Judged above.
                id if own.as_ref() == Some(id) => true,
                id => self.service_of(node, id, "", Access::WRITE)?,
            };
            if !belongs || !self.stored_check(node, check, Access::WRITE)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the principal has the right to a node, and to the stored node with the same id,
    /// which would be renamed together with its services and checks.
    fn node(&self, node: &CatalogNode, access: Access) -> Result<bool, StorageError> {
        let renamed = match node.id.as_str() {
            "" => None,
            id => self.state.node_by_id(id)?,
        };
        let may_rename = renamed.is_none_or(|stored| self.may_access(Space::CatalogNode, &stored.row.name, access));
        Ok(may_rename && self.may_access(Space::CatalogNode, &node.name, access))
    }

    /// Whether a registration writes the row of its node. Only then does it need the right to the
    /// node, as in Consul. A missing node is written even if `skip_node_update` is set.
    fn writes_node(&self, registration: &Registration) -> Result<bool, StorageError> {
        let given = &registration.node;
        let Some(stored) = self.state.node(&given.name)?.value else { return Ok(true) };
        Ok(!registration.skip_node_update && stored.is_changed_by(given))
    }

    /// Whether the principal has the right to the service of the new row and to that of the stored
    /// one, so that nobody takes over an instance by renaming it. An empty `name` adds no new row;
    /// false if there is no stored row either.
    fn service_of(&self, node: &str, id: &str, name: &str, access: Access) -> Result<bool, StorageError> {
        let before = self.state.service(node, id)?;
        let names =
            before.iter().map(|stored| stored.row.name.as_str()).chain(Some(name).filter(|name| !name.is_empty()));
        let mut is_named = false;
        for name in names {
            is_named = true;
            if !self.may_access(Space::CatalogService, name, access) {
                return Ok(false);
            }
        }
        Ok(is_named)
    }

    /// Whether the principal has the right to the service or node of the check that is stored under
    /// the same id; true if none is stored. So a write cannot take over a check by naming another
    /// service.
    fn stored_check(&self, node: &str, check: &Check, access: Access) -> Result<bool, StorageError> {
        let id = if check.id.is_empty() { &check.name } else { &check.id };
        Ok(match self.state.check(node, id)? {
            None => true,
            Some(stored) if stored.row.service_id.is_empty() => self.may_access(Space::CatalogNode, node, access),
            Some(stored) => self.may_access(Space::CatalogService, &stored.row.service_name, access),
        })
    }

    /// Whether the principal has the right to a check: to its service, or to its node if it names
    /// no service, and to those of the stored check with the same id.
    fn check(&self, check: &Check, access: Access) -> Result<bool, StorageError> {
        if !self.stored_check(&check.node, check, access)? {
            return Ok(false);
        }
        if check.service_id.is_empty() {
            return Ok(self.may_access(Space::CatalogNode, &check.node, access));
        }
        self.service_of(&check.node, &check.service_id, &check.service_name, access)
    }
}
