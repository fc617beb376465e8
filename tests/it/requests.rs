//! Short forms of etcd's requests about keys.

use headwater::pb::etcdserverpb as pb;

/// A put without a lease.
pub fn put(key: impl Into<String>, value: impl Into<String>) -> pb::PutRequest {
    pb::PutRequest { key: key.into().into(), value: value.into().into(), ..Default::default() }
}

/// A linearizable get of one key.
pub fn get(key: impl Into<String>) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into().into(), ..Default::default() }
}

/// A serializable get of one key.
pub fn get_local(key: impl Into<String>) -> pb::RangeRequest {
    pb::RangeRequest { serializable: true, ..get(key) }
}
