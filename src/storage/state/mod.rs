//! The replicated state on disk (ARCHITECTURE.md §4, §5): one history of changes, and an index of
//! versions into it.
//!
//! Owns the `state/` directory. Knows no business rules: its callers decide every write. A
//! [`StateStore`] holds the current [`StateDb`]; a [`WriteTxn`] gathers a run of commands and
//! commits them at once; a [`ReadView`] reads one state; [`StateReader`] has the reads of both.
//! Invariant: the state on disk is always that of one prefix of the log, which ends at the stored
//! applied position.

mod acl;
mod age;
mod alarms;
mod auth;
mod cache;
mod catalog;
mod cluster;
mod command_events;
mod command_history;
mod commands;
mod commits;
mod consul;
#[cfg(any(test, feature = "testing"))]
mod crash_copy;
mod db;
mod filter;
mod hash;
mod head;
mod history_row;
mod hot_records;
mod index;
mod inspect;
mod invitations;
pub mod keys;
mod lease_cache;
mod load;
mod newest;
mod op_counts;
mod options;
mod outline;
mod overlay;
mod pending;
mod plain_history;
mod programs;
mod ranges;
mod reader;
mod reclaim;
mod record;
mod registrations;
mod resources;
mod restore;
mod revisions;
mod savepoint;
mod scan;
mod seek;
mod store;
mod txn;
mod type_record;
mod view;

pub use acl::{AclReader, acl_rows};
pub use auth::AuthReader;
pub use catalog::{CatalogReader, CatalogRow, RecordedEvents, StoredRow, mesh_name, node_key, on_node_key};
pub use commands::{CommandRecords, CommandWalk, HistorySpan, LastCommand, Tables, WalkedCommand};
pub use commits::{KeptCommits, KeptEntry};
pub use consul::{ConsulReader, ConsulTree, consul_entries, consul_newest, consul_tree, sessions};
pub use db::{AppliedState, StateCopy, StateDb};
pub use head::{CompactionPoint, RegisteredTypes, StateHead};
pub use inspect::{StateInspection, copy_state, inspect_state};
pub use keys::Table;
pub use op_counts::OpCounts;
pub use options::StateOptions;
#[cfg(feature = "next-version")]
pub use programs::StandInRecord;
pub use ranges::RangeCacheMetrics;
pub use reader::{CachedKey, EscapedKey, FoundVersion, KeyRef, NEWEST, StateReader};
pub use reclaim::ReclaimProgress;
pub use record::{HistoryHead, HistoryRecord, PreviousVersion, PreviousVersions, Version};
pub use resources::{tombstone_data, tombstone_owner};
pub use restore::{CheckpointContents, RestoreChanges, describe_checkpoint, restore_state, restore_target};
pub use savepoint::WrittenTwice;
pub use scan::VersionScan;
pub use store::{PreparedState, StateStore};
pub use txn::{Committed, WriteTxn};
pub use type_record::{Registration, TypeRecord};
pub use view::{CommandHistory, ReadView};

#[cfg(test)]
mod tests;
