//! Counts of operations in a write transaction, for metrics alone: no stored data depends on them.

/// Counts of operations on keys in a run of commands. No stored data depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Number of versions that puts wrote.
    pub puts: u64,
    /// Keys and values of those versions, bytes.
    pub put_bytes: u64,
    /// Number of deletions. The deletion of a key or an interval counts as one, even if it found
    /// nothing. Each key that ended with its lease counts as one.
    pub deletes: u64,
    /// Number of ranges (reads) in replicated transactions.
    pub ranges: u64,
    /// Number of transactions of etcd's API.
    pub txns: u64,
    /// Number of refused commands.
    pub refused: u64,
}
