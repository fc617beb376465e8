//! Encoding of pairs, intervals and range queries, for commands and outcomes.

use super::CodecError;
use crate::pb::internal as pb;
use headwater_types::{
    KeyRange, KeyValue, LeaseId, RangeQuery, RangeResult, ReadAt, Revision, RevisionFilter, SortOrder, SortTarget,
};

/// The value of a message field, which must be present. `field` names it in the error.
pub(super) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, CodecError> {
    value.ok_or(CodecError::Missing { field })
}

/// The value of a field of exactly `N` bytes. [`CodecError::Missing`] if the field is empty,
/// [`CodecError::WrongLength`] for any other length.
pub(super) fn fixed<const N: usize>(bytes: &[u8], field: &'static str) -> Result<[u8; N], CodecError> {
    if bytes.is_empty() {
        return Err(CodecError::Missing { field });
    }
    bytes.try_into().map_err(|_| CodecError::WrongLength { field, len: bytes.len(), wanted: N })
}

/// The error for an unknown value of an enumeration: [`CodecError::Missing`] for 0, its unspecified
/// value.
pub(super) fn unknown(field: &'static str, value: i32) -> CodecError {
    if value == 0 { CodecError::Missing { field } } else { CodecError::UnknownValue { field, value } }
}

pub(super) fn write_kv(kv: &KeyValue) -> pb::KeyValue {
    pb::KeyValue {
        key: kv.key.clone(),
        value: kv.value.clone(),
        create_revision: kv.create_revision.get(),
        mod_revision: kv.mod_revision.get(),
        version: kv.version,
        lease: kv.lease.get(),
    }
}

pub(super) fn read_kv(kv: pb::KeyValue) -> KeyValue {
    KeyValue {
        key: kv.key,
        value: kv.value,
        create_revision: Revision(kv.create_revision),
        mod_revision: Revision(kv.mod_revision),
        version: kv.version,
        lease: LeaseId(kv.lease),
    }
}

pub(super) fn write_range(range: &KeyRange) -> pb::KeyRange {
    let keys = match range {
        KeyRange::One(key) => pb::key_range::Keys::One(key.clone()),
        KeyRange::Span { start, end } => pb::key_range::Keys::Span(pb::Span { start: start.clone(), end: end.clone() }),
    };
    pb::KeyRange { keys: Some(keys) }
}

pub(super) fn read_range(range: Option<pb::KeyRange>, field: &'static str) -> Result<KeyRange, CodecError> {
    Ok(match required(required(range, field)?.keys, "KeyRange.keys")? {
        pb::key_range::Keys::One(key) => KeyRange::One(key),
        pb::key_range::Keys::Span(pb::Span { start, end }) => KeyRange::Span { start, end },
    })
}

pub(super) fn write_query(query: &RangeQuery) -> pb::RangeQuery {
    pb::RangeQuery {
        range: Some(write_range(&query.range)),
        at_revision: match query.at {
            ReadAt::Current => None,
            ReadAt::Revision(revision) => Some(revision.get()),
        },
        limit: query.limit,
        order: match query.order {
            SortOrder::None => pb::SortOrder::None,
            SortOrder::Ascend => pb::SortOrder::Ascend,
            SortOrder::Descend => pb::SortOrder::Descend,
        }
        .into(),
        target: match query.target {
            SortTarget::Key => pb::SortTarget::Key,
            SortTarget::Version => pb::SortTarget::Version,
            SortTarget::Create => pb::SortTarget::Create,
            SortTarget::Mod => pb::SortTarget::Mod,
            SortTarget::Value => pb::SortTarget::Value,
        }
        .into(),
        filter: query.filter.is_active().then_some(pb::RevisionFilter {
            min_mod: query.filter.min_mod,
            max_mod: query.filter.max_mod,
            min_create: query.filter.min_create,
            max_create: query.filter.max_create,
        }),
        keys_only: query.keys_only,
        count_only: query.count_only,
    }
}

pub(super) fn read_query(query: pb::RangeQuery) -> Result<RangeQuery, CodecError> {
    let order = match pb::SortOrder::try_from(query.order) {
        Ok(pb::SortOrder::None) => SortOrder::None,
        Ok(pb::SortOrder::Ascend) => SortOrder::Ascend,
        Ok(pb::SortOrder::Descend) => SortOrder::Descend,
        Ok(pb::SortOrder::Unspecified) | Err(_) => return Err(unknown("RangeQuery.order", query.order)),
    };
    let target = match pb::SortTarget::try_from(query.target) {
        Ok(pb::SortTarget::Key) => SortTarget::Key,
        Ok(pb::SortTarget::Version) => SortTarget::Version,
        Ok(pb::SortTarget::Create) => SortTarget::Create,
        Ok(pb::SortTarget::Mod) => SortTarget::Mod,
        Ok(pb::SortTarget::Value) => SortTarget::Value,
        Ok(pb::SortTarget::Unspecified) | Err(_) => return Err(unknown("RangeQuery.target", query.target)),
    };
    let filter = query.filter.unwrap_or_default();
    Ok(RangeQuery {
        range: read_range(query.range, "RangeQuery.range")?,
        at: query.at_revision.map_or(ReadAt::Current, |revision| ReadAt::Revision(Revision(revision))),
        limit: query.limit,
        order,
        target,
        filter: RevisionFilter {
            min_mod: filter.min_mod,
            max_mod: filter.max_mod,
            min_create: filter.min_create,
            max_create: filter.max_create,
        },
        keys_only: query.keys_only,
        count_only: query.count_only,
    })
}

pub(super) fn write_result(result: &RangeResult) -> pb::RangeResult {
    pb::RangeResult { kvs: result.kvs.iter().map(write_kv).collect(), more: result.more, count: result.count }
}

pub(super) fn read_result(result: pb::RangeResult) -> RangeResult {
    RangeResult { kvs: result.kvs.into_iter().map(read_kv).collect(), more: result.more, count: result.count }
}
