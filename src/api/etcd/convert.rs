//! Conversions between messages of the wire and the types of the store. No rules.

use headwater_api_shared::key_value::key_value;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::mvccpb;
use headwater_types::{Deleted, KeyValue, PutDone, RangeResult};

pub(super) fn key_values(kvs: Vec<KeyValue>) -> Vec<mvccpb::KeyValue> {
    kvs.into_iter().map(key_value).collect()
}

/// A count as the signed number of a message: a larger one than `i64::MAX` becomes `i64::MAX`.
pub(super) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn ranged(header: pb::ResponseHeader, result: RangeResult) -> pb::RangeResponse {
    let RangeResult { kvs, more, count: total } = result;
    pb::RangeResponse { header: Some(header), kvs: key_values(kvs), more, count: count(total) }
}

pub(super) fn put(header: pb::ResponseHeader, done: PutDone) -> pb::PutResponse {
    pb::PutResponse { header: Some(header), prev_kv: done.prev.map(key_value) }
}

pub(super) fn deleted(header: pb::ResponseHeader, done: Deleted) -> pb::DeleteRangeResponse {
    let (deleted, prev_kvs) = (count(done.deleted), key_values(done.prev));
    pb::DeleteRangeResponse { header: Some(header), deleted, prev_kvs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_do_not_wrap() {
        assert_eq!(count(0), 0);
        assert_eq!(count(i64::MAX as u64), i64::MAX);
        assert_eq!(count(u64::MAX), i64::MAX);
    }
}
