//! Commands of the state machine. A log entry holds one in a [`Proposal`], which also has its time,
//! principal and face.
//!
//! The proposer chooses everything that is not deterministic (times, ids). Applying a command reads
//! only the proposal, its term and log index, and the state.

use bytes::Bytes;

use super::acl::AclCommand;
use super::auth::{AuthCommand, Proposer};
use super::authorship::{Authorship, Face};
use super::catalog::CatalogCommand;
use super::commit::Commit;
use super::consul::ConsulCommand;
use super::resource::ResourceCommand;
use super::{
    Feature, InvitationCommand, KeyRange, LeaseAttach, LeaseCheckpoint, LeaseExpire, LeaseGrant, LeaseId, LeaseRevoke,
    LeaseTxn, LogIndex, MemberProgram, NodeId, Quota, RangeQuery, Revision, SetAlarm, StoreEpoch, Version,
    VersionChange,
};

/// A command with the time, the principal and the face that proposed it: the content of a log
/// entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Wall clock of the proposer, milliseconds since the Unix epoch. The age of history and of
    /// idempotency keys, and the expiry of invitations depend on it; the order of commands never.
    pub unix_ms: u64,
    /// The command.
    pub command: Command,
    /// The principal, by which apply judges the proposal; `None` if it is anonymous or
    /// authentication is off.
    pub proposer: Option<Proposer>,
    /// The face that proposed it. `None` in commands of versions before 0.4.
    pub face: Option<Face>,
    /// The member that proposed the command. The state counts the proposals of each member.
    #[cfg(feature = "next-version")]
    pub origin: Option<NodeId>,
}

impl Proposal {
    /// A proposal at `unix_ms` without a principal and without a face.
    pub fn new(unix_ms: u64, command: Command) -> Self {
        Self {
            unix_ms,
            command,
            proposer: None,
            face: None,
            #[cfg(feature = "next-version")]
            origin: None,
        }
    }

    /// The lowest version that understands all of the proposal. The encoding of the proposal begins
    /// with it.
    pub fn needs(&self) -> Version {
        let needs = if self.proposer.is_some() { Feature::Auth.since() } else { Version::V0_1 };
        let needs = if self.face.is_some() { Feature::Authors.since().max(needs) } else { needs };
        #[cfg(feature = "next-version")]
        if self.origin.is_some() {
            return Feature::Origins.since().max(self.command.needs());
        }
        needs.max(self.command.needs())
    }

    /// The author and the face, as history keeps them.
    pub fn authorship(&self) -> Authorship {
        Authorship::of(self.proposer.as_ref(), self.face)
    }
}

/// A command: one variant for each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets the epoch of a new or restored cluster. No effect if the store has one already.
    Bootstrap(StoreEpoch),
    /// Writes one key.
    Put(Put),
    /// Removes an interval of keys.
    DeleteRange(DeleteRange),
    /// Evaluates conditions, then runs one of two lists of operations.
    Txn(Txn),
    /// Moves the compaction point.
    Compact(Compact),
    /// Drops the part of history that has become too old.
    TrimHistory(TrimHistory),
    /// Grants a lease.
    LeaseGrant(LeaseGrant),
    /// Ends a lease at a client's request.
    LeaseRevoke(LeaseRevoke),
    /// Ends a lease that has expired.
    LeaseExpire(LeaseExpire),
    /// Records for later leaders how much time leases have left.
    LeaseCheckpoint(LeaseCheckpoint),
    /// Attaches a key to a lease.
    LeaseAttach(LeaseAttach),
    /// A transaction that also attaches keys to leases.
    LeaseTxn(LeaseTxn),
    /// Raises or disarms an alarm.
    SetAlarm(SetAlarm),
    /// Sets the quota, which applies to all members.
    SetQuota(Quota),
    /// Changes resources.
    Resource(ResourceCommand),
    /// Changes Consul's keys and sessions; a transaction of Consul's also the catalog.
    Consul(ConsulCommand),
    /// Changes the service catalog.
    Catalog(CatalogCommand),
    /// Raises the cluster's version, or begins or ends a downgrade.
    SetVersion(VersionChange),
    /// Stores the description of a member's program: its version, for people, and the versions of
    /// clusters that it supports.
    AnnounceProgram(NodeId, MemberProgram),
    /// Creates, deletes or uses an invitation.
    Invitation(InvitationCommand),
    /// Changes users or roles, turns authentication on or off, or issues a token.
    Auth(AuthCommand),
    /// Changes tokens, policies, roles, auth methods and binding rules of Consul's ACLs.
    Acl(AclCommand),
    /// Changes entities of any faces, all of them or none.
    Commit(Box<Commit>),
    /// Stores a text in the state, replacing the previous one.
    #[cfg(feature = "next-version")]
    Note(Bytes),
}

impl Command {
    /// Names of the kinds of commands, at the positions that [`kind`](Self::kind) returns. A kind
    /// that etcd has, too, has etcd's name.
    pub const KINDS: &'static [&'static str] = &[
        "Bootstrap",
        "Put",
        "DeleteRange",
        "Txn",
        "Compaction",
        "TrimHistory",
        "LeaseGrant",
        "LeaseRevoke",
        "LeaseExpire",
        "LeaseCheckpoint",
        "LeaseAttach",
        "LeaseTxn",
        "Alarm",
        "Quota",
        "Resource",
        "Consul",
        "Catalog",
        "Version",
        "Program",
        "Invitation",
        "Auth",
        "Acl",
        "Commit",
        // Must stay last, so that the other positions are the same in programs without the feature.
        #[cfg(feature = "next-version")]
        "Note",
    ];

    /// The kind of the command, as an index into [`KINDS`](Self::KINDS).
    pub fn kind(&self) -> usize {
        match self {
            Self::Bootstrap(_) => 0,
            Self::Put(_) => 1,
            Self::DeleteRange(_) => 2,
            Self::Txn(_) => 3,
            Self::Compact(_) => 4,
            Self::TrimHistory(_) => 5,
            Self::LeaseGrant(_) => 6,
            Self::LeaseRevoke(_) => 7,
            Self::LeaseExpire(_) => 8,
            Self::LeaseCheckpoint(_) => 9,
            Self::LeaseAttach(_) => 10,
            Self::LeaseTxn(_) => 11,
            Self::SetAlarm(_) => 12,
            Self::SetQuota(_) => 13,
            Self::Resource(_) => 14,
            Self::Consul(_) => 15,
            Self::Catalog(_) => 16,
            Self::SetVersion(_) => 17,
            Self::AnnounceProgram(..) => 18,
            Self::Invitation(_) => 19,
            Self::Auth(_) => 20,
            Self::Acl(_) => 21,
            Self::Commit(_) => 22,
            #[cfg(feature = "next-version")]
            Self::Note(_) => Self::KINDS.len() - 1,
        }
    }

    /// The lowest version that understands the command. A field that a later version adds raises
    /// the result only for commands that use the field.
    pub fn needs(&self) -> Version {
        match self {
            Self::Bootstrap(_)
            | Self::Put(_)
            | Self::DeleteRange(_)
            | Self::Txn(_)
            | Self::Compact(_)
            | Self::TrimHistory(_)
            | Self::LeaseGrant(_)
            | Self::LeaseRevoke(_)
            | Self::LeaseExpire(_)
            | Self::LeaseCheckpoint(_)
            | Self::LeaseAttach(_)
            | Self::LeaseTxn(_)
            | Self::SetAlarm(_)
            | Self::SetQuota(_)
            | Self::Resource(_)
            | Self::Consul(_)
            | Self::Catalog(_) => Version::V0_1,
            Self::SetVersion(_) | Self::AnnounceProgram(..) => Feature::Versions.since(),
            Self::Invitation(_) => Feature::Invitations.since(),
            Self::Auth(_) => Feature::Auth.since(),
            Self::Acl(_) => Feature::Acl.since(),
            Self::Commit(commit) => commit.needs(),
            #[cfg(feature = "next-version")]
            Self::Note(_) => Feature::Notes.since(),
        }
    }
}

/// Writes one key (spec: etcd §1.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key; not empty.
    pub key: Bytes,
    /// The new value.
    pub value: ValueChoice,
    /// The lease that the key is attached to after the put.
    pub lease: LeaseChoice,
    /// Whether the outcome carries the previous pair.
    pub prev_kv: bool,
}

/// The value of a key after a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueChoice {
    /// The put writes this value.
    Set(Bytes),
    /// The put keeps the stored value; refused with `KeyNotFound` if the key is absent
    /// (`ignore_value`).
    Keep,
}

/// The lease that a key is attached to after a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChoice {
    /// The key is attached to this lease, which must exist; [`LeaseId::NONE`] detaches.
    Set(LeaseId),
    /// The put keeps the key's lease; refused with `KeyNotFound` if the key is absent
    /// (`ignore_lease`).
    Keep,
    /// The put keeps the key's lease; an absent key gets no lease (the early API's put, spec: etcd
    /// §7.5).
    KeepIfPresent,
}

/// Removes an interval of keys (spec: etcd §1.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRange {
    /// The keys to remove.
    pub range: KeyRange,
    /// Whether the outcome carries the removed pairs.
    pub prev_kv: bool,
}

/// Evaluates conditions, then runs one of two lists of operations (spec: etcd §1.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions. If all hold, or if there are none, `success` runs, else `failure`.
    pub compares: Vec<Compare>,
    /// Operations that run, in order, if all compares hold or there are none.
    pub success: Vec<TxnOp>,
    /// Operations that run, in order, if a compare does not hold.
    pub failure: Vec<TxnOp>,
}

impl Txn {
    /// Whether neither list can change anything, so that it need not be replicated: all operations
    /// are ranges. A nested transaction counts as a write, as in etcd.
    pub fn is_read_only(&self) -> bool {
        let read = |ops: &[TxnOp]| ops.iter().all(|op| matches!(op, TxnOp::Range(_)));
        read(&self.success) && read(&self.failure)
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// Reads an interval of keys; sees the effects of the operations before it.
    Range(RangeQuery),
    /// Writes one key.
    Put(Put),
    /// Removes an interval of keys.
    DeleteRange(DeleteRange),
    /// A nested transaction; its compares see the state before the outermost transaction.
    Txn(Txn),
}

/// One condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The keys that must all satisfy the condition. An interval without live keys is compared
    /// once, as an absent key.
    pub range: KeyRange,
    /// Relation of the stored field (left) to the given one (right).
    pub op: CompareOp,
    /// The field and the value that it is compared with.
    pub target: CompareTarget,
}

/// Relation between a stored field and a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// Stored = given.
    Equal,
    /// Stored > given.
    Greater,
    /// Stored < given.
    Less,
    /// Stored ≠ given.
    NotEqual,
}

/// The field that is compared, with the given value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// The key's `version`, its count of puts since its creation; 0 for an absent key.
    Version(i64),
    /// Revision of creation, 0 for an absent key.
    CreateRevision(i64),
    /// Revision of the latest put, 0 for an absent key.
    ModRevision(i64),
    /// The value, bytewise; never holds for an absent key.
    Value(Bytes),
    /// The lease, 0 for an absent key.
    Lease(i64),
}

/// Moves the compaction point (spec: etcd §1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    /// The new compaction point: reads at revisions below it are refused from now on.
    pub revision: Revision,
}

/// Drops the history of all tables below a log index. Keys are compacted to the revision that was
/// current right after that log index. No effect if history begins there or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimHistory {
    /// Log index of the first command that stays in history. A value above the log index of this
    /// command counts as that index.
    pub from: LogIndex,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the last positions: a kind that is added after `Note` would get the name of another
    /// kind.
    #[test]
    fn the_last_kinds_have_their_names() {
        let name = |command: Command| Command::KINDS[command.kind()];
        assert_eq!(name(Command::Commit(Box::default())), "Commit");
        #[cfg(feature = "next-version")]
        assert_eq!((name(Command::Note(Bytes::new())), Command::KINDS.last()), ("Note", Some(&"Note")));
    }
}
