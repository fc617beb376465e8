//! Values of the rows that a scan has found: from their segments, or from history.
//!
//! Invariant: a row is loaded whether its segment still exists or not. Rows do not keep segments in
//! memory, because the rows of a large range would keep all of it.

use std::sync::{Arc, Weak};

use rocksdb::ReadOptions;

use super::segment::Segment;
use crate::StorageError;
use crate::state::db::StateDb;
use crate::state::load;
use crate::state::reader::FoundVersion;
use crate::state::record::Version;
use headwater_types::KeyValue;

/// The pairs of `rows`, in their order. `options` makes the read options, with the view's snapshot.
pub(in crate::state) fn pairs(
    db: &StateDb,
    options: impl Fn() -> ReadOptions,
    rows: &[FoundVersion],
) -> Result<Vec<KeyValue>, StorageError> {
    let mut pairs = Vec::with_capacity(rows.len());
    let mut missing = Vec::new();
    let mut held: Option<Arc<Segment>> = None;
    for row in rows {
        if held.as_ref().is_none_or(|held| Arc::as_ptr(held) != row.segment.as_ptr()) {
            held = row.segment.upgrade();
        }
        let pair = held.as_ref().and_then(|held| held.pair(row.row));
        pairs.push(pair.unwrap_or_else(|| {
            missing.push(pairs.len());
            KeyValue::default()
        }));
    }
    db.ranges.metrics.hits.inc_by((rows.len() - missing.len()) as u64);
    if missing.is_empty() {
        return Ok(pairs);
    }
    db.ranges.metrics.misses.inc_by(missing.len() as u64);
    let versions: Vec<Version> = missing.iter().map(|&at| rows[at].version).collect();
    let records = load::records(db, options, &versions)?;
    for (&at, record) in missing.iter().zip(records) {
        pairs[at] = record.kv;
    }
    for some in missing.chunk_by(|&a, &b| Weak::ptr_eq(&rows[a].segment, &rows[b].segment)) {
        let Some(segment) = rows[some[0]].segment.upgrade().filter(|segment| segment.is_cached()) else { continue };
        let added = segment.add_values(some.iter().map(|&at| (rows[at].row, &pairs[at].value)));
        db.ranges.grew(&segment, added);
    }
    Ok(pairs)
}
