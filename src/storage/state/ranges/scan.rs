//! The scan of an interval at the newest state of a view, from cached segments where there are any.
//!
//! Owns the walk. Between cached segments it reads a segment's worth of keys at a time from disk
//! and offers it to the cache.

use std::sync::Arc;

use bytes::Bytes;
use rocksdb::ReadOptions;

use super::cache::RangeLookup;
use super::segment::{Segment, SegmentBuilder};
use crate::StorageError;
use crate::state::db::StateDb;
use crate::state::keys::Table;
use crate::state::reader::{CachedKey, KeyRef, NEWEST};
use crate::state::record::Version;
use crate::state::scan::StoredScan;
use headwater_types::{KeyRange, LogIndex};

/// A walk over the live keys of an interval.
pub(in crate::state) struct RangeScan<'a> {
    db: &'a StateDb,
    range: KeyRange,
    end: Option<Bytes>,
    /// Applied index of the view.
    applied: LogIndex,
    /// Read options with the snapshot of the view. `Some` until the first read from disk, which
    /// moves them into `stored`; `None` from then on.
    options: Option<ReadOptions>,
    stored: Option<StoredScan<'a>>,
    /// Whether the next row of `stored` is the first one at or after `cursor`. If not, `stored`
    /// seeks `cursor` before the next read from disk.
    stored_is_at_cursor: bool,
    watch: Option<u64>,
    is_open: bool,
    is_done: bool,
    /// The key at which `segment` was entered; between two segments, the end of the earlier one.
    cursor: Bytes,
    segment: Option<Arc<Segment>>,
    /// The next row of `segment`.
    row: usize,
    /// End of the rows of `segment` that lie in the interval.
    rows_end: usize,
}

impl<'a> RangeScan<'a> {
    /// `options` has the snapshot of the view at `applied`.
    pub(in crate::state) fn new(db: &'a StateDb, options: ReadOptions, range: &KeyRange, applied: LogIndex) -> Self {
        let start = range.start().clone();
        let end = match range {
            KeyRange::One(key) => Some([&key[..], &[0]].concat().into()),
            KeyRange::Span { end, .. } => end.clone(),
        };
        Self {
            db,
            range: range.clone(),
            end,
            applied,
            options: Some(options),
            stored: None,
            stored_is_at_cursor: true,
            watch: None,
            is_open: false,
            is_done: range.is_empty(),
            cursor: start,
            segment: None,
            row: 0,
            rows_end: 0,
        }
    }

    /// The same scan, of the disk alone. Nothing may have been read.
    pub(in crate::state) fn into_stored(mut self) -> StoredScan<'a> {
        let options = self.options.take().expect("invariant: nothing was read");
        StoredScan::new(self.db, options, Table::Kv, &self.range, NEWEST)
    }

    pub(in crate::state) fn next(&mut self) -> Result<Option<(KeyRef<'_>, Version)>, StorageError> {
        while self.row == self.rows_end {
            if !self.enter()? {
                return Ok(None);
            }
        }
        let segment = self.segment.as_ref().expect("invariant: it has rows");
        let row = self.row;
        self.row += 1;
        Ok(Some((KeyRef::Cached(CachedKey { segment, row }), segment.version(row))))
    }

    /// Reads on to the end. Returns the number of the keys that were not read before.
    pub(in crate::state) fn count_rest(&mut self) -> Result<u64, StorageError> {
        let mut count = 0;
        loop {
            count += (self.rows_end - self.row) as u64;
            self.row = self.rows_end;
            if !self.enter()? {
                return Ok(count);
            }
        }
    }

    /// Goes to the next segment, cached or read from disk; false at the end of the interval.
    fn enter(&mut self) -> Result<bool, StorageError> {
        if let Some(segment) = self.segment.take() {
            match segment.end() {
                Some(end) if self.end.as_ref().is_none_or(|last| end < last) => self.cursor = end.clone(),
                _ => self.is_done = true,
            }
        }
        if self.is_done {
            return Ok(false);
        }
        let lookup = if self.is_open {
            self.db.ranges.look_up(&self.cursor, self.applied)
        } else {
            self.is_open = true;
            let (lookup, watch) = self.db.ranges.open(&self.cursor, self.end.as_ref(), self.applied);
            self.watch = watch;
            lookup
        };
        let segment = match lookup {
            RangeLookup::Cached(segment) => {
                self.stored_is_at_cursor = false;
                segment
            }
            RangeLookup::Gap { end } => self.read(end)?,
        };
        self.row = segment.lower_bound(&self.cursor);
        self.rows_end = match (&self.end, segment.end()) {
            (Some(last), Some(end)) if end <= last => segment.len(),
            (Some(last), _) => segment.lower_bound(last),
            (None, _) => segment.len(),
        };
        self.segment = Some(segment);
        Ok(true)
    }

    /// Reads a segment from disk, and offers it to the cache. It begins with the cursor and ends
    /// when it is full, or else at `gap_end` or the end of the interval.
    fn read(&mut self, gap_end: Option<Bytes>) -> Result<Arc<Segment>, StorageError> {
        let until = match (gap_end, &self.end) {
            (Some(gap_end), Some(last)) => Some(gap_end.min(last.clone())),
            (gap_end, last) => gap_end.or_else(|| last.clone()),
        };
        let (db, range) = (self.db, &self.range);
        let (cursor, options) = (&self.cursor, &mut self.options);
        let stored = self.stored.get_or_insert_with(|| {
            let options = options.take().expect("invariant: taken once");
            StoredScan::new(db, options, Table::Kv, range, NEWEST)
        });
        if !self.stored_is_at_cursor {
            stored.seek(cursor);
        }
        let mut rows = SegmentBuilder::default();
        let end = loop {
            if rows.is_full() {
                self.stored_is_at_cursor = true;
                break Some(rows.after_last());
            }
            self.stored_is_at_cursor = false;
            if !stored.advance()? {
                break until;
            }
            let version = stored.version();
            let key = stored.plain_key();
            if until.as_ref().is_some_and(|until| *key >= until[..]) {
                break until;
            }
            rows.push(key, version);
        };
        // Copies: the bounds of the interval are parts of the client's whole request.
        let (start, end) = (copy(&self.cursor), end.as_ref().map(copy));
        let segment = Arc::new(rows.finish(start, end, self.applied));
        if let Some(watch) = self.watch {
            db.ranges.insert(&segment, watch);
        }
        Ok(segment)
    }
}

fn copy(key: &Bytes) -> Bytes {
    Bytes::copy_from_slice(key)
}

impl Drop for RangeScan<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.db.ranges.unwatch(watch);
        }
    }
}
