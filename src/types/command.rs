//! Commands of the state machine. Every command is one Raft log entry.
//!
//! A command carries everything that is not deterministic (times, ids); applying it reads only the
//! command and the state.

use bytes::Bytes;

use super::acl::AclCommand;
use super::auth::{AuthCommand, Proposer};
use super::catalog::CatalogCommand;
use super::consul::ConsulCommand;
use super::resource::ResourceCommand;
use super::{
    Feature, InvitationCommand, KeyRange, LeaseAttach, LeaseCheckpoint, LeaseExpire, LeaseGrant, LeaseId, LeaseRevoke,
    LeaseTxn, LogIndex, MemberProgram, NodeId, Quota, RangeQuery, Revision, SetAlarm, StoreEpoch, Version,
    VersionChange,
};

/// A command with the time that its proposer stamped on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Wall clock of the proposer, milliseconds since the Unix epoch. Decides about the age of
    /// history and the end of invitations, never about the order of commands.
    pub unix_ms: u64,
    /// The command.
    pub command: Command,
    /// The principal, if it is not anonymous. Apply judges it, once authentication is on.
    pub proposer: Option<Proposer>,
    /// The member that proposed it; counted in the state.
    #[cfg(feature = "next-version")]
    pub origin: Option<NodeId>,
}

impl Proposal {
    /// A proposal of an anonymous principal.
    pub fn new(unix_ms: u64, command: Command) -> Self {
        Self {
            unix_ms,
            command,
            proposer: None,
            #[cfg(feature = "next-version")]
            origin: None,
        }
    }

    /// The lowest version that understands all of the proposal.
    pub fn needs(&self) -> Version {
        let needs = if self.proposer.is_some() { Feature::Auth.since() } else { Version::V0_1 };
        #[cfg(feature = "next-version")]
        if self.origin.is_some() {
            return Feature::Origins.since().max(self.command.needs());
        }
        needs.max(self.command.needs())
    }
}

/// The kinds of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets the epoch of a new cluster. The first one counts, later ones change nothing.
    Bootstrap(StoreEpoch),
    /// Writes one key.
    Put(Put),
    /// Removes an interval of keys.
    DeleteRange(DeleteRange),
    /// Evaluates conditions, then runs one of two lists of operations.
    Txn(Txn),
    /// Moves the compaction point.
    Compact(Compact),
    /// Drops history that has become too old.
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
    /// Raises an alarm or takes it back.
    SetAlarm(SetAlarm),
    /// Sets the quota of all members.
    SetQuota(Quota),
    /// Changes resources.
    Resource(ResourceCommand),
    /// Changes Consul's keys and sessions.
    Consul(ConsulCommand),
    /// Changes the service catalog.
    Catalog(CatalogCommand),
    /// Changes the cluster's version.
    SetVersion(VersionChange),
    /// Stores the program that a member runs.
    AnnounceProgram(NodeId, MemberProgram),
    /// Changes invitations.
    Invitation(InvitationCommand),
    /// Changes users, roles, or whether requests are judged; or issues a token.
    Auth(AuthCommand),
    /// Changes tokens, policies and roles of Consul's ACLs.
    Acl(AclCommand),
    /// Keeps a text in the state.
    #[cfg(feature = "next-version")]
    Note(Bytes),
}

impl Command {
    /// The names of the kinds of commands, by [`kind`](Self::kind): etcd's where etcd has the kind.
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
        // Stays the last: programs without the feature count the others alike.
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
            #[cfg(feature = "next-version")]
            Self::Note(_) => Self::KINDS.len() - 1,
        }
    }

    /// The lowest version that understands the command. A field that is added later raises it for
    /// the commands that use the field.
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
    /// The lease to attach the key to.
    pub lease: LeaseChoice,
    /// Whether the outcome carries the previous pair.
    pub prev_kv: bool,
}

/// The value that a put leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueChoice {
    /// The put writes this value.
    Set(Bytes),
    /// The put keeps the stored value; refused with `KeyNotFound` if the key is absent
    /// (`ignore_value`).
    Keep,
}

/// The lease that a put leaves the key attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChoice {
    /// The key is attached to this lease, which must exist; [`LeaseId::NONE`] detaches.
    Set(LeaseId),
    /// The key stays attached as it is; refused with `KeyNotFound` if it is absent
    /// (`ignore_lease`).
    Keep,
    /// The key stays attached as it is; an absent key gets no lease (the early API's put, spec:
    /// etcd §7.5).
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
    /// If all hold, or if there are none, `success` runs, else `failure`.
    pub compares: Vec<Compare>,
    /// Operations that run, in order, if all compares hold.
    pub success: Vec<TxnOp>,
    /// Operations that run, in order, otherwise.
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
    /// Reads; sees the effects of the operations before it.
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
    /// The keys that must all satisfy the condition; an interval without live keys is compared once
    /// as an absent key.
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
    /// Count of puts in the generation, 0 for an absent key.
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
    /// History below this revision becomes unreadable.
    pub revision: Revision,
}

/// Drops the history below a log index, for every face alike. For keys that is a compaction to the
/// revision that was current there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimHistory {
    /// The first command that stays in history.
    pub from: LogIndex,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kind behind the one of the next version would have no name in the program.
    #[test]
    fn the_last_kinds_have_their_names() {
        let name = |command: Command| Command::KINDS[command.kind()];
        assert_eq!(name(Command::Acl(AclCommand::Expire(Vec::new()))), "Acl");
        #[cfg(feature = "next-version")]
        assert_eq!((name(Command::Note(Bytes::new())), Command::KINDS.last()), ("Note", Some(&"Note")));
    }
}
