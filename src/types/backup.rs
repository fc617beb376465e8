//! The header of a backup.

use super::{ClusterId, LogIndex, NodeId, Revision, StoreEpoch, Term, Version};

/// Content and origin of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The member that made the backup.
    pub node_id: NodeId,
    /// The store's epoch; `None` if the store had none yet.
    pub epoch: Option<StoreEpoch>,
    /// Term of the last log entry that the state contains.
    pub term: Term,
    /// Log index of the last log entry that the state contains.
    pub index: LogIndex,
    /// KV revision.
    pub revision: Revision,
    /// Compaction point, if there ever was one.
    pub compact_revision: Option<Revision>,
    /// Number of live keys.
    pub live_keys: u64,
    /// Bytes of live keys and values, of resources, and of rows of the catalog.
    pub live_bytes: u64,
    /// Number of leases.
    pub leases: u64,
    /// Time of the backup: the member's wall clock, milliseconds since the Unix epoch.
    pub taken_unix_ms: u64,
    /// The version of the program that wrote it.
    pub version: String,
    /// The lowest version that understands the state.
    pub needs: Version,
    /// The files of the state, in order.
    pub files: Vec<BackupFile>,
}

/// One file of the backed-up state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Name of the file, without a folder.
    pub name: String,
    /// Length of the file, bytes.
    pub size: u64,
}
