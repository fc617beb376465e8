//! Iterates over the live versions of an interval in key order: those on disk and, in a
//! transaction, its uncommitted ones.
//!
//! Owns the walk over `versions`. Invariant: each key is yielded at most once, with its newest
//! version at or below the requested point, and not at all if that version is a tombstone (but see
//! [`VersionScan::with_tombstones`]).

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
use super::reader::{EscapedKey, KeyRef};
use super::record::Version;
use crate::StorageError;
use headwater_types::{KeyRange, LogIndex};

/// Steps over unwanted versions before the iterator seeks.
const STEPS_BEFORE_SEEK: u32 = 8;

/// A walk over live versions; see [`StateReader::scan`](super::StateReader::scan).
pub struct VersionScan<'a> {
    stored: StoredScan<'a>,
    /// Uncommitted writes, in the scan of a transaction.
    pending: Option<Peekable<btree_map::Range<'a, Bytes, Versions>>>,
    stored_ready: bool,
    at: LogIndex,
}

impl<'a> VersionScan<'a> {
    pub(super) fn new(
        db: &'a StateDb,
        options: ReadOptions,
        overlay: Option<&'a Overlay>,
        table: Table,
        range: &KeyRange,
        at: LogIndex,
    ) -> Self {
        let pending = overlay.map(|overlay| overlay.range(table, bounds(range)).peekable());
        Self { stored: StoredScan::new(db, options, table, range, at), pending, stored_ready: false, at }
    }

    /// Yields keys with a tombstone as newest version, too. Only for the scan of a view.
    ///
    /// # Panics
    ///
    /// If the scan sees a transaction.
    #[must_use]
    pub fn with_tombstones(mut self) -> Self {
        assert!(self.pending.is_none(), "invariant: only views are asked for tombstones");
        self.stored.tombstones = true;
        self
    }

    /// The next live version with its key.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    #[allow(clippy::should_implement_trait)] // It lends its key, which an iterator cannot.
    pub fn next(&mut self) -> Result<Option<(KeyRef<'_>, Version)>, StorageError> {
        let Some(pending) = &mut self.pending else {
            return Ok(match self.stored.advance()? {
                true => Some((KeyRef::Escaped(self.stored.key()), self.stored.version)),
                false => None,
            });
        };
        loop {
            if !self.stored_ready {
                self.stored.advance()?;
                self.stored_ready = true;
            }
            let order = match (pending.peek(), self.stored.is_done()) {
                (None, true) => return Ok(None),
                (None, false) => Ordering::Greater,
                (Some(_), true) => Ordering::Less,
                (Some((key, _)), false) => key.as_ref().cmp(self.stored.plain_key()),
            };
            if order == Ordering::Greater {
                self.stored_ready = false;
                return Ok(Some((KeyRef::Escaped(self.stored.key()), self.stored.version)));
            }
            let (key, versions) = pending.next().expect("invariant: peeked");
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
fn bounds(range: &KeyRange) -> (Bound<Bytes>, Bound<Bytes>) {
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
struct StoredScan<'a> {
    iter: DBRawIterator<'a>,
    at: LogIndex,
    /// Prefix of the versions of the last key.
    group: Vec<u8>,
    version: Version,
    /// The decoded key of `group`; valid if `plain_is_current`.
    plain: Vec<u8>,
    plain_is_current: bool,
    started: bool,
    done: bool,
    /// Whether tombstones are yielded.
    tombstones: bool,
}

impl<'a> StoredScan<'a> {
    fn new(db: &'a StateDb, mut options: ReadOptions, table: Table, range: &KeyRange, at: LogIndex) -> Self {
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
            started: false,
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

    fn plain_key(&mut self) -> &[u8] {
        if !self.plain_is_current {
            self.plain.clear();
            keys::unescape(&self.group, &mut self.plain);
            self.plain_is_current = true;
        }
        &self.plain
    }

    /// Advances to the next live version; false at the end.
    fn advance(&mut self) -> Result<bool, StorageError> {
        if self.done {
            return Ok(false);
        }
        if self.started {
            self.iter.next();
        } else {
            self.started = true;
            self.iter.seek_to_first();
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
