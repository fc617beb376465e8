//! Iterates over the live versions of an interval in key order: those on disk and, in a
//! transaction, its uncommitted ones.
//!
//! Owns the walk over `versions`. Invariant: each key is yielded at most once, with its newest
//! version at or below the requested log index. If that version is a tombstone, the key is left
//! out, except by a scan with tombstones.

use std::cmp::Ordering;
use std::collections::btree_map;
use std::iter::Peekable;
use std::ops::Bound;

use bytes::Bytes;
use rocksdb::{DBRawIterator, ReadOptions};

use super::db::{StateDb, corrupt};
use super::keys::{self, Table};
use super::options::VERSIONS;
use super::overlay::{Overlay, Versions};
use super::ranges::RangeScan;
use super::reader::{EscapedKey, KeyRef, NEWEST};
use super::record::Version;
use crate::StorageError;
use headwater_types::{KeyRange, LogIndex};

/// Number of unwanted versions in a row at which the iterator seeks instead of stepping on.
const STEPS_BEFORE_SEEK: u32 = 8;

/// A walk over live versions; see [`StateReader::scan`](super::StateReader::scan).
pub struct VersionScan<'a> {
    rows: Rows<'a>,
}

#[allow(clippy::large_enum_variant)] // One a scan, on the stack.
enum Rows<'a> {
    Stored(StoredScan<'a>),
    /// A scan of the keys at a view's newest state, which uses the cache of ranges.
    Cached(RangeScan<'a>),
    Merged(MergedScan<'a>),
}

impl<'a> VersionScan<'a> {
    /// The scan of a view. `options` has the snapshot of the view, and `applied` is its applied
    /// index. It yields the versions that were live right after the command at `at`.
    pub(super) fn of_view(
        db: &'a StateDb,
        options: ReadOptions,
        table: Table,
        range: &KeyRange,
        at: LogIndex,
        applied: LogIndex,
    ) -> Self {
        let rows = match (table, at) {
            (Table::Kv, NEWEST) => Rows::Cached(RangeScan::new(db, options, range, applied)),
            _ => Rows::Stored(StoredScan::new(db, options, table, range, at)),
        };
        Self { rows }
    }

    /// The scan of a transaction with uncommitted writes.
    pub(super) fn of_transaction(
        db: &'a StateDb,
        overlay: &'a Overlay,
        table: Table,
        range: &KeyRange,
        at: LogIndex,
    ) -> Self {
        let pending = overlay.range(table, bounds(range)).peekable();
        let stored = StoredScan::new(db, ReadOptions::default(), table, range, at);
        Self { rows: Rows::Merged(MergedScan { stored, pending, stored_ready: false, at }) }
    }

    /// The scan of the committed versions alone, with tombstones.
    pub(super) fn of_stored_changes(db: &'a StateDb, table: Table, range: &KeyRange) -> Self {
        let stored = StoredScan::new(db, ReadOptions::default(), table, range, NEWEST);
        Self { rows: Rows::Stored(StoredScan { tombstones: true, ..stored }) }
    }

    /// Makes the scan yield tombstones, too: keys whose newest version at the requested log index
    /// is a removal. Only for a scan of a view, before the first [`next`](Self::next).
    ///
    /// # Panics
    ///
    /// If it is the scan of a transaction.
    #[must_use]
    pub fn with_tombstones(self) -> Self {
        let stored = match self.rows {
            Rows::Stored(stored) => stored,
            Rows::Cached(scan) => scan.into_stored(),
            Rows::Merged(_) => unreachable!("invariant: only views are asked for tombstones"),
        };
        Self { rows: Rows::Stored(StoredScan { tombstones: true, ..stored }) }
    }

    /// The next live version with its key; `None` at the end. After
    /// [`with_tombstones`](Self::with_tombstones) also tombstones.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    #[allow(clippy::should_implement_trait)] // It lends its key, which an iterator cannot.
    pub fn next(&mut self) -> Result<Option<(KeyRef<'_>, Version)>, StorageError> {
        match &mut self.rows {
            Rows::Stored(stored) => stored.next(),
            Rows::Cached(scan) => scan.next(),
            Rows::Merged(scan) => scan.next(),
        }
    }

    /// Number of the versions that [`next`](Self::next) has not yielded yet. The scan is at its end
    /// afterwards.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn count_rest(&mut self) -> Result<u64, StorageError> {
        if let Rows::Cached(scan) = &mut self.rows {
            return scan.count_rest();
        }
        let mut count = 0;
        while self.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// The scan of a transaction: stored versions and uncommitted ones.
struct MergedScan<'a> {
    stored: StoredScan<'a>,
    pending: Peekable<btree_map::Range<'a, Bytes, Versions>>,
    stored_ready: bool,
    at: LogIndex,
}

impl MergedScan<'_> {
    fn next(&mut self) -> Result<Option<(KeyRef<'_>, Version)>, StorageError> {
        loop {
            if !self.stored_ready {
                self.stored.advance()?;
                self.stored_ready = true;
            }
            let order = match (self.pending.peek(), self.stored.is_done()) {
                (None, true) => return Ok(None),
                (None, false) => Ordering::Greater,
                (Some(_), true) => Ordering::Less,
                (Some((key, _)), false) => key.as_ref().cmp(self.stored.plain_key()),
            };
            if order == Ordering::Greater {
                self.stored_ready = false;
                return Ok(Some((KeyRef::Escaped(self.stored.key()), self.stored.version)));
            }
            let (key, versions) = self.pending.next().expect("invariant: peeked");
            match versions.iter().rev().find(|version| version.index <= self.at) {
                // All are newer than the requested point: the versions on disk decide.
                None => continue,
                Some(version) => {
                    if order == Ordering::Equal {
                        self.stored_ready = false;
                    }
                    if !version.deleted {
                        return Ok(Some((KeyRef::Plain(key), *version)));
                    }
                }
            }
        }
    }
}

/// Bounds of an interval for an ordered map.
pub(super) fn bounds(range: &KeyRange) -> (Bound<Bytes>, Bound<Bytes>) {
    match range {
        KeyRange::One(key) => (Bound::Included(key.clone()), Bound::Included(key.clone())),
        // An ordered map panics if the start lies after the end.
        KeyRange::Span { start, .. } if range.is_empty() => {
            (Bound::Included(start.clone()), Bound::Excluded(start.clone()))
        }
        KeyRange::Span { start, end } => {
            (Bound::Included(start.clone()), end.clone().map_or(Bound::Unbounded, Bound::Excluded))
        }
    }
}

/// The scan of the versions on disk.
pub(super) struct StoredScan<'a> {
    iter: DBRawIterator<'a>,
    at: LogIndex,
    /// The key that was found last, in its stored form: the prefix of its versions.
    group: Vec<u8>,
    version: Version,
    /// The decoded key of `group`; valid if `plain_is_current`.
    plain: Vec<u8>,
    plain_is_current: bool,
    next_step: Step,
    done: bool,
    /// Whether tombstones are yielded.
    tombstones: bool,
}

/// The move to the next entry.
#[derive(Clone, Copy)]
enum Step {
    /// To the first entry of the interval.
    First,
    /// None: the iterator was just placed.
    Stay,
    /// To the entry after the current one.
    Next,
}

impl<'a> StoredScan<'a> {
    pub(super) fn new(db: &'a StateDb, mut options: ReadOptions, table: Table, range: &KeyRange, at: LogIndex) -> Self {
        // Bounds lie between all versions of one key and those of the next.
        let edge = |key: &[u8]| {
            let mut out = Vec::with_capacity(key.len() + 8);
            keys::push_version_prefix(&mut out, table, key);
            out
        };
        let lower = match range.start() {
            start if start.is_empty() => keys::table_start(table),
            start => edge(start),
        };
        let upper = match range {
            KeyRange::One(key) => after_group(edge(key)),
            KeyRange::Span { end: None, .. } => keys::table_end(table),
            KeyRange::Span { end: Some(end), .. } => edge(end),
        };
        let empty = range.is_empty();
        options.set_total_order_seek(true);
        options.set_iterate_lower_bound(lower);
        options.set_iterate_upper_bound(upper);
        let iter = db.db.raw_iterator_cf_opt(db.families().versions, options);
        Self {
            iter,
            at,
            group: Vec::new(),
            version: Version::default(),
            plain: Vec::new(),
            plain_is_current: false,
            next_step: Step::First,
            done: empty,
            tombstones: false,
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn key(&self) -> EscapedKey<'_> {
        EscapedKey(&self.group)
    }

    /// The version that the last call of [`advance`](Self::advance) found. Meaningful only if that
    /// call returned true.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn plain_key(&mut self) -> &[u8] {
        if !self.plain_is_current {
            self.plain.clear();
            keys::unescape(&self.group, &mut self.plain);
            self.plain_is_current = true;
        }
        &self.plain
    }

    /// Moves a scan of [`Table::Kv`] to `key`, which must lie in its interval. The next
    /// [`advance`](Self::advance) finds the first live version at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        let mut target = Vec::with_capacity(key.len() + 8);
        keys::push_version_prefix(&mut target, Table::Kv, key);
        self.iter.seek(target);
        self.group.clear();
        self.next_step = Step::Stay;
        self.done = false;
    }

    fn next(&mut self) -> Result<Option<(KeyRef<'_>, Version)>, StorageError> {
        Ok(match self.advance()? {
            true => Some((KeyRef::Escaped(self.key()), self.version)),
            false => None,
        })
    }

    /// Advances to the next version that the scan yields; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, StorageError> {
        if self.done {
            return Ok(false);
        }
        match std::mem::replace(&mut self.next_step, Step::Next) {
            Step::First => self.iter.seek_to_first(),
            Step::Stay => {}
            Step::Next => self.iter.next(),
        }
        let mut steps = 0;
        loop {
            let Some((key, value)) = self.iter.item() else {
                self.iter.status()?;
                self.done = true;
                return Ok(false);
            };
            let Some((prefix, index)) = keys::split_version(key) else {
                return Err(corrupt(VERSIONS, key, "not a version key"));
            };
            if prefix == self.group {
                // Older than the version that was chosen for the key.
                steps += 1;
                if steps < STEPS_BEFORE_SEEK {
                    self.iter.next();
                } else {
                    self.iter.seek(after_group(self.group.clone()));
                }
                continue;
            }
            if index > self.at {
                steps += 1;
                if steps < STEPS_BEFORE_SEEK {
                    self.iter.next();
                } else {
                    let mut target = prefix.to_vec();
                    keys::push_inverted(&mut target, self.at);
                    self.iter.seek(target);
                    steps = 0;
                }
                continue;
            }
            steps = 0;
            self.version = Version::decode(index, value).ok_or_else(|| corrupt(VERSIONS, key, "cannot be decoded"))?;
            self.group.clear();
            self.group.extend_from_slice(prefix);
            self.plain_is_current = false;
            if !self.version.deleted || self.tombstones {
                return Ok(true);
            }
            self.iter.next();
        }
    }
}

/// The first key behind all versions that begin with `prefix`.
fn after_group(mut prefix: Vec<u8>) -> Vec<u8> {
    // The terminator's last byte is 01; no version key begins with the prefix with 02 there.
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}
