//! The vocabulary of the store: ids, coordinates, commands, outcomes, events, limits.
//!
//! Owns the types that several layers share, and the limits with their units. Knows nothing of
//! threads, files, wire formats or clocks: everything here is plain data that can be compared,
//! printed and sent between layers.
//!
//! Invariant: [`LogIndex`] and [`Revision`] are never converted into each other in this crate
//! (ARCHITECTURE.md §1).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod acl;
pub mod alarm;
pub mod auth;
pub mod authorship;
pub mod backup;
pub mod catalog;
pub mod command;
pub mod commit;
pub mod consul;
pub mod entity;
pub mod event;
pub mod ids;
pub mod invitation;
pub mod kv;
pub mod lease;
pub mod limits;
pub mod member;
pub mod outcome;
pub mod resource;
pub mod rights;
mod summary;
pub mod version;

pub use alarm::{Alarm, AlarmKind, AlarmSet, Quota, SetAlarm};
pub use auth::{AuthCommand, AuthRefusal, AuthState, Proposer};
pub use authorship::{Author, Authorship, Face};
pub use backup::{BackupFile, BackupInfo};
pub use command::{
    Command, Compact, Compare, CompareOp, CompareTarget, DeleteRange, LeaseChoice, Proposal, Put, TrimHistory, Txn,
    TxnOp, ValueChoice,
};
pub use commit::{Commit, CommitOutcome};
pub use event::{ChangeKind, ClusterEvent, CommandEvents, KvEvent, ResourceEvent};
pub use ids::{ClusterId, LeaseId, LogIndex, NodeId, Revision, StoreEpoch, Term};
pub use invitation::{
    Invitation, InvitationCommand, InvitationDone, InvitationId, InvitationRefusal, InvitationUse, NewInvitation,
    TokenHash,
};
pub use kv::{KeyRange, KeyValue, RangeQuery, RangeResult, ReadAt, RevisionFilter, SortOrder, SortTarget};
pub use lease::{
    Lease, LeaseAnswer, LeaseAttach, LeaseChange, LeaseCheckpoint, LeaseExpire, LeaseGrant, LeaseQuestion,
    LeaseRemaining, LeaseRevoke, LeaseTxn,
};
pub use member::{ClusterMember, Joining, MemberChange, MemberChanged, MemberRefusal, Secret};
pub use outcome::{Applied, Deleted, Outcome, PutDone, RangeDone, Refusal, TxnDone, TxnOpDone};
pub use resource::{Resource, ResourceId, ResourceType};
pub use rights::{Access, Rights, Space};
pub use version::{ClusterVersion, Feature, MemberProgram, Supported, TooNew, Version, VersionChange, VersionRefusal};
