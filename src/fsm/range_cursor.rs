//! A range that is read part by part, without the whole in memory (spec: etcd §1.3).
//!
//! Owns the progress and the counts. Invariant: the parts together, with `more` and `count` of the
//! end, equal the result of [`range`](super::range()) in key order on the same view; memory is
//! bounded by one part.

use bytes::Bytes;

use super::range::{check, is_everything, limit_of, resolve};
use headwater_storage::StorageError;
use headwater_storage::state::{FoundVersion, KeyRef, ReadView, StateReader, Table, Version, VersionScan};
use headwater_types::{KeyRange, KeyValue, RangeQuery, ReadAt, Refusal};

/// A part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangePart {
    /// Pairs, in key order; at least one.
    Kvs(Vec<KeyValue>),
    /// The end, with the facts about the whole range.
    End {
        /// Whether the limit cut anything off.
        more: bool,
        /// Number of live keys in the interval.
        count: u64,
    },
}

/// Reads a range in parts. Borrows the view; drive it from a thread that may block.
pub struct RangeCursor<'v, 'db> {
    view: &'v ReadView<'db>,
    query: RangeQuery,
    walk: Walk<'v>,
    found: u64,
    kept: u64,
    ended: bool,
}

enum Walk<'v> {
    One(Option<Version>),
    Span(Box<VersionScan<'v>>),
}

impl<'v, 'db> RangeCursor<'v, 'db> {
    /// Opens the range. Order and sort target are ignored: parts come in key order.
    ///
    /// # Errors
    ///
    /// The outer one if the disk failed, the inner one if the requested revision cannot be read.
    pub fn new(view: &'v ReadView<'db>, query: RangeQuery) -> Result<Result<Self, Refusal>, StorageError> {
        if let Err(refusal) = check(view.head(), query.at) {
            return Ok(Err(refusal));
        }
        let at = resolve(view, query.at)?;
        let walk = match &query.range {
            KeyRange::One(key) => Walk::One(view.lookup(Table::Kv, key, at)?),
            KeyRange::Span { .. } => Walk::Span(Box::new(view.scan(Table::Kv, &query.range, at)?)),
        };
        Ok(Ok(Self { view, query, walk, found: 0, kept: 0, ended: false }))
    }

    /// The next part: at most `keys_max` pairs, and no more after their keys and values reach
    /// `bytes_max`; one pair always fits. `None` after the end.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub fn next(&mut self, keys_max: usize, bytes_max: usize) -> Result<Option<RangePart>, StorageError> {
        if self.ended {
            return Ok(None);
        }
        let (mut found, mut kvs, mut bytes) = (Vec::new(), Vec::new(), 0);
        while kvs.len() + found.len() < keys_max.max(1) && bytes < bytes_max.max(1) {
            let Some((key, key_len, row)) = self.advance()? else {
                break;
            };
            bytes += key_len + if self.query.keys_only { 0 } else { row.version.value_len as usize };
            if self.query.keys_only {
                kvs.push(row.version.without_value(key));
            } else {
                found.push(row);
            }
        }
        if !found.is_empty() {
            kvs = self.view.load_found(&found)?;
        }
        if !kvs.is_empty() {
            return Ok(Some(RangePart::Kvs(kvs)));
        }
        self.ended = true;
        let count = if self.knows_total() { self.view.head().live_keys } else { self.found };
        Ok(Some(RangePart::End { more: self.kept > limit_of(&self.query) as u64, count }))
    }

    /// The next row of the result, with the length of its key; other live keys are only counted.
    /// The key is empty unless only keys are wanted (`keys_only`): else it is loaded with its
    /// value.
    fn advance(&mut self) -> Result<Option<(Bytes, usize, FoundVersion)>, StorageError> {
        let limit = limit_of(&self.query) as u64;
        let ends_early = self.knows_total();
        while !self.query.count_only && self.kept <= limit {
            let row = match &mut self.walk {
                Walk::One(version) => match (&self.query.range, version.take()) {
                    (KeyRange::One(key), Some(version)) => Some((KeyRef::Plain(key), version)),
                    _ => None,
                },
                Walk::Span(scan) => scan.next()?,
            };
            let Some((key, version)) = row else {
                return Ok(None);
            };
            self.found += 1;
            if !self.query.filter.keeps(version.create_revision, version.mod_revision) {
                continue;
            }
            self.kept += 1;
            if self.kept <= limit {
                let found = key.with_version(version);
                return Ok(Some((
                    if self.query.keys_only { key.to_bytes() } else { Bytes::new() },
                    key.user_len(),
                    found,
                )));
            }
        }
        if !ends_early {
            self.found += match &mut self.walk {
                Walk::One(version) => u64::from(version.take().is_some()),
                Walk::Span(scan) => scan.count_rest()?,
            };
        }
        Ok(None)
    }

    /// Whether the head has the count of the range, so that the keys need not be counted.
    fn knows_total(&self) -> bool {
        let now = match self.query.at {
            ReadAt::Current => true,
            ReadAt::Revision(revision) => revision == self.view.revision(),
        };
        now && is_everything(&self.query.range)
    }
}
