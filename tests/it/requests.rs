//! Short forms of requests about keys.

use headwater::pb::etcdserverpb as pb;

/// A plain put.
pub fn put(key: impl Into<String>, value: impl Into<String>) -> pb::PutRequest {
    pb::PutRequest { key: key.into().into(), value: value.into().into(), ..Default::default() }
}

/// A linearizable get of one key.
pub fn get(key: impl Into<String>) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into().into(), ..Default::default() }
}

/// A get of one key from local state.
pub fn get_local(key: impl Into<String>) -> pb::RangeRequest {
    pb::RangeRequest { serializable: true, ..get(key) }
}
