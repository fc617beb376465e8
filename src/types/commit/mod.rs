//! Commits: conditions, then operations on entities of any face, in one log entry
//! (`docs/commits.md`).
//!
//! Owns the parts of a commit and of its outcome, and the rule that no two operations name the same
//! entity. Knows no wire format. Invariants: an operation is a command of its face, and obeys the
//! rules of that command; a commit contains no commit.

mod condition;
mod outcome;
mod overlap;

use std::fmt;

use super::catalog::CatalogCommand;
use super::consul::{ConsulCommand, KvOp, SessionCreate};
use super::resource::ResourceCommand;
use super::{Command, DeleteRange, Feature, LeaseGrant, LeaseRevoke, Put, Version};

pub use condition::{CommitCondition, CommitEntity, EntityTest};
pub use outcome::{CommitDone, CommitFault, CommitOpFault, CommitOutcome, CommitResult, ConditionFault, KeptCommit};

/// Changes entities of any face. If all conditions hold and no operation is refused, all operations
/// take effect; otherwise none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Conditions on the state before the commit. All must hold.
    pub conditions: Vec<CommitCondition>,
    /// The operations; at least one. No two name the same entity
    /// ([`overlap`](Self::overlap)).
    pub operations: Vec<CommitOp>,
    /// The idempotency key, if the client gave one.
    pub key: Option<CommitKey>,
}

impl Commit {
    /// The lowest version that understands the commit with all its operations.
    pub fn needs(&self) -> Version {
        let operations = self.operations.iter().map(|operation| operation.command().needs());
        operations.max().unwrap_or(Version::V0_1).max(Feature::Commits.since())
    }
}

/// One operation of a commit: a command that writes keys, leases, resources, the catalog, sessions
/// or Consul's keys, or that checks one of Consul's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOp(Command);

impl CommitOp {
    /// The command as an operation.
    ///
    /// # Errors
    ///
    /// The unchanged command, if it cannot be part of a commit.
    pub fn new(command: Command) -> Result<Self, Command> {
        let may_be = match &command {
            Command::Put(_) | Command::DeleteRange(_) | Command::LeaseGrant(_) | Command::LeaseRevoke(_) => true,
            Command::Resource(
                ResourceCommand::Write(_) | ResourceCommand::WriteStatus(_) | ResourceCommand::Delete(_),
            ) => true,
            Command::Catalog(CatalogCommand::Register(_) | CatalogCommand::Deregister(_)) => true,
            Command::Consul(ConsulCommand::Kv(op)) => !op.verb.reads_value(),
            Command::Consul(ConsulCommand::SessionCreate(_) | ConsulCommand::SessionDestroy(_)) => true,
            Command::Resource(ResourceCommand::Reap(_))
            | Command::Catalog(CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_))
            | Command::Consul(ConsulCommand::Txn(_))
            | Command::Commit(_)
            | Command::Txn(_)
            | Command::LeaseTxn(_)
            | Command::LeaseAttach(_)
            | Command::LeaseExpire(_)
            | Command::LeaseCheckpoint(_)
            | Command::Bootstrap(_)
            | Command::Compact(_)
            | Command::TrimHistory(_)
            | Command::SetAlarm(_)
            | Command::SetQuota(_)
            | Command::SetVersion(_)
            | Command::AnnounceProgram(..)
            | Command::Invitation(_)
            | Command::Auth(_)
            | Command::Acl(_) => false,
            #[cfg(feature = "next-version")]
            Command::Note(_) => false,
        };
        if may_be { Ok(Self(command)) } else { Err(command) }
    }

    /// The command of the operation's face.
    pub fn command(&self) -> &Command {
        &self.0
    }

    /// The command, as a variant for its kind.
    pub fn of_face(&self) -> FaceOp<'_> {
        match &self.0 {
            Command::Put(put) => FaceOp::Put(put),
            Command::DeleteRange(delete) => FaceOp::DeleteRange(delete),
            Command::LeaseGrant(grant) => FaceOp::LeaseGrant(grant),
            Command::LeaseRevoke(revoke) => FaceOp::LeaseRevoke(revoke),
            Command::Resource(command) => FaceOp::Resource(command),
            Command::Catalog(command) => FaceOp::Catalog(command),
            Command::Consul(ConsulCommand::Kv(op)) => FaceOp::ConsulKv(op),
            Command::Consul(ConsulCommand::SessionCreate(create)) => FaceOp::SessionCreate(create),
            Command::Consul(ConsulCommand::SessionDestroy(id)) => FaceOp::SessionDestroy(id),
            other => unreachable!("invariant: no operation is made of {other:?}"),
        }
    }
}

/// The command of an operation, borrowed: one variant for each kind that a commit can contain.
#[derive(Clone, Copy, Debug)]
pub enum FaceOp<'c> {
    /// Writes a key.
    Put(&'c Put),
    /// Removes an interval of keys.
    DeleteRange(&'c DeleteRange),
    /// Grants a lease.
    LeaseGrant(&'c LeaseGrant),
    /// Revokes a lease.
    LeaseRevoke(&'c LeaseRevoke),
    /// Writes or deletes a resource, or writes one of its statuses.
    Resource(&'c ResourceCommand),
    /// Registers or deregisters rows of the catalog.
    Catalog(&'c CatalogCommand),
    /// An operation on Consul's keys that does not return values.
    ConsulKv(&'c KvOp),
    /// Creates a session.
    SessionCreate(&'c SessionCreate),
    /// Ends a session, by id.
    SessionDestroy(&'c str),
}

/// An idempotency key with the commit that it stands for, both as hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CommitKey {
    /// Hash of the principal and of the client's key.
    pub id: CommitKeyId,
    /// Hash of the conditions and operations, before the node has chosen ids and times.
    pub body: [u8; 16],
}

/// Hash of a principal and of its idempotency key.
pub type CommitKeyId = [u8; 16];

impl fmt::Debug for CommitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |bytes: [u8; 16]| u128::from_be_bytes(bytes);
        write!(f, "CommitKey({:032x} of {:032x})", number(self.id), number(self.body))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::consul::{KvOp, KvVerb};
    use crate::{Compact, LogIndex, Revision, Txn};

    #[test]
    fn only_writes_of_entities_are_operations() {
        let kv = |verb| {
            let (path, session) = (Bytes::from_static(b"p"), String::new());
            let op = KvOp { verb, path, value: Bytes::new(), flags: 0, index: LogIndex::ZERO, session };
            Command::Consul(ConsulCommand::Kv(op))
        };
        for command in [
            kv(KvVerb::Get),
            kv(KvVerb::GetTree),
            Command::Commit(Box::default()),
            Command::Txn(Txn::default()),
            Command::Compact(Compact { revision: Revision(1) }),
            Command::Consul(ConsulCommand::Txn(Vec::new())),
        ] {
            assert_eq!(CommitOp::new(command.clone()), Err(command));
        }
        for command in [kv(KvVerb::Set), kv(KvVerb::CheckSession), kv(KvVerb::DeleteTree)] {
            assert_eq!(CommitOp::new(command.clone()).map(|op| op.command().clone()), Ok(command));
        }
    }
}
