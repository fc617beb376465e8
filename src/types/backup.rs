//! The header of a backup.

use super::{ClusterId, LogIndex, NodeId, Revision, StoreEpoch, Term, Version};

/// Description of a backup's content and origin. It is stored at the start of the backup's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Id of the cluster that the backup was made in.
    pub cluster_id: ClusterId,
    /// The member that made the backup.
    pub node_id: NodeId,
    /// The store's epoch; `None` if the store had none yet.
    pub epoch: Option<StoreEpoch>,
    /// Term of the last log entry that the state contains.
    pub term: Term,
    /// Log index of the last log entry that the state contains.
    pub index: LogIndex,
    /// The KV revision of the state.
    pub revision: Revision,
    /// The compaction point as a revision; `None` if the store was never compacted.
    pub compact_revision: Option<Revision>,
    /// Number of live keys.
    pub live_keys: u64,
    /// Bytes of live keys and values, of resources, and of rows of the catalog.
    pub live_bytes: u64,
    /// Number of clients' leases, without the store's own deadlines.
    pub leases: u64,
    /// Time of the backup: the member's wall clock, milliseconds since the Unix epoch.
    pub taken_unix_ms: u64,
    /// The version of the program that made the backup, for people.
    pub version: String,
    /// The lowest version that understands the state.
    pub needs: Version,
    /// The files of the state, in the order in which the backup contains them.
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
