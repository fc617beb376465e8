//! Consul's keys with their locks, and sessions: records, commands, outcomes (spec: consul §8.3;
//! `docs/consul-kv.md`).
//!
//! Owns the mapping of paths to keys of the KV face. Knows no wire format. A *path* is a key as
//! Consul's clients name it, without [`CONSUL_PREFIX`]. An operation on all paths with a common
//! prefix may have the empty prefix.

mod deadline;
mod op;
mod session;

use bytes::Bytes;

pub use deadline::Deadline;
pub use op::{
    CatalogVerb, ConsulCommand, ConsulOutcome, KvOp, KvVerb, TxnFault, TxnFaultReason, TxnItem, TxnOp, TxnRow,
};
pub use session::{Session, SessionBehavior, SessionCreate, SessionRefusal};

use super::LogIndex;

/// Prefix of the etcd keys that are paths of Consul's KV.
pub const CONSUL_PREFIX: &[u8] = b"consul/kv/";
/// Id of the check on which a session depends if the client names no checks and the node has this
/// one.
pub const DEFAULT_CHECK: &str = "serfHealth";

/// The key of the KV face that holds a path.
pub fn consul_key(path: &[u8]) -> Bytes {
    [CONSUL_PREFIX, path].concat().into()
}

/// The path that a key of the KV face holds; `None` for a key without [`CONSUL_PREFIX`]. The key
/// that is only the prefix gives the empty path.
pub fn consul_path(key: &Bytes) -> Option<Bytes> {
    key.starts_with(CONSUL_PREFIX).then(|| key.slice(CONSUL_PREFIX.len()..))
}

/// Side record of a key: the fields that Consul's clients see and etcd's do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvSide {
    /// Flags of the client; the store does not read them.
    pub flags: u64,
    /// Id of the session that holds the key's lock; empty if none does.
    pub session: String,
    /// Number of times that a session took the lock since the key was created. Taking it again
    /// while holding it does not count.
    pub lock_index: u64,
    /// Log index of the command that created the key.
    pub created: LogIndex,
}

/// A key as Consul's clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvEntry {
    /// The path; not empty.
    pub path: Bytes,
    /// The value: arbitrary bytes, may be empty.
    pub value: Bytes,
    /// The side record.
    pub side: KvSide,
    /// Log index of the last write of the key: Consul's `ModifyIndex`. Zero if the key is absent
    /// ([`KvVerb::GetOrEmpty`]).
    pub modified: LogIndex,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_live_below_the_prefix() {
        assert_eq!(consul_key(b"a/b"), "consul/kv/a/b");
        assert_eq!(consul_path(&"consul/kv/a".into()), Some("a".into()));
        assert_eq!(consul_path(&"consul/kv/".into()), Some(Bytes::new()));
        assert_eq!(consul_path(&"consul/kv".into()), None);
    }
}
