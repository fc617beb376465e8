//! The live keys of one interval, as of one state.
//!
//! Owns the layout. Invariant: versions never change after the segment was made; a value is added
//! once, and it is the one that history has for the version.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::state::record::Version;
use headwater_types::limits::RANGE_VALUE_CACHED_BYTES_MAX;
use headwater_types::{KeyValue, LogIndex};

/// Most keys of a segment, count: a write of one key evicts all of them.
const ROWS_MAX: usize = 128;
/// Size of the keys and the cacheable values at which a segment is full, bytes.
const BYTES_MAX: usize = 32 << 10;
/// Estimated memory of a segment besides its bounds, keys, rows and values, bytes.
const SEGMENT_BYTES: usize = 384;

/// The live keys of one interval; see the module.
pub(in crate::state) struct Segment {
    start: Bytes,
    /// First key after the interval. `None` if it ends with the table.
    end: Option<Bytes>,
    /// Applied index of the state that it was read from.
    seen: LogIndex,
    /// All keys, one after the other.
    keys: Bytes,
    rows: Box<[Row]>,
    is_cached: AtomicBool,
}

struct Row {
    /// End of the key in `keys`.
    key_end: u32,
    version: Version,
    value: OnceLock<Bytes>,
}

impl Segment {
    pub(super) fn start(&self) -> &Bytes {
        &self.start
    }

    pub(super) fn end(&self) -> Option<&Bytes> {
        self.end.as_ref()
    }

    pub(super) fn seen(&self) -> LogIndex {
        self.seen
    }

    /// Whether `key` lies in front of the end.
    pub(super) fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| end.as_ref() > key)
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the segment is large enough to be used as it is. A small one is read from disk
    /// again, as a part of a larger segment that replaces it.
    pub(super) fn is_large(&self) -> bool {
        self.rows.len() >= ROWS_MAX / 4 || self.rows.iter().map(Row::cacheable_len).sum::<usize>() >= BYTES_MAX / 4
    }

    /// The first row with a key not below `key`; the number of rows if there is none.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.rows.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn key_start(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.rows[before].key_end as usize)
    }

    pub(in crate::state) fn key(&self, row: usize) -> &[u8] {
        &self.keys[self.key_start(row)..self.rows[row].key_end as usize]
    }

    /// The key of a row without a copy.
    pub(in crate::state) fn shared_key(&self, row: usize) -> Bytes {
        self.keys.slice(self.key_start(row)..self.rows[row].key_end as usize)
    }

    pub(super) fn version(&self, row: usize) -> Version {
        self.rows[row].version
    }

    /// The pair of a row, if its value is cached.
    pub(super) fn pair(&self, row: usize) -> Option<KeyValue> {
        let Row { version, value, .. } = &self.rows[row];
        let value = match version.value_len {
            0 => Bytes::new(),
            _ => value.get()?.clone(),
        };
        Some(KeyValue { value, ..version.without_value(self.shared_key(row)) })
    }

    /// Adds the values of rows, without large ones and those that are there already. Returns the
    /// size of the added values, bytes.
    pub(super) fn add_values<'a>(&self, values: impl Iterator<Item = (usize, &'a Bytes)> + Clone) -> usize {
        // Those that another reader has added meanwhile are left out, too: values share one buffer.
        let lacks = |row: usize| self.rows[row].cacheable_len() > 0 && self.rows[row].value.get().is_none();
        let cacheable: Vec<_> = values.filter(|(row, _)| lacks(*row)).collect();
        let bytes = cacheable.iter().map(|(_, value)| value.len()).sum();
        let mut all = Vec::with_capacity(bytes);
        cacheable.iter().for_each(|(_, value)| all.extend_from_slice(value));
        let mut all = Bytes::from(all);
        let mut added = 0;
        for (row, value) in cacheable {
            let value = all.split_to(value.len());
            added += match self.rows[row].value.set(value) {
                Ok(()) => self.rows[row].cacheable_len(),
                // Another reader was faster.
                Err(_) => 0,
            };
        }
        added
    }

    /// Estimated memory without values, bytes.
    pub(super) fn bytes(&self) -> usize {
        let end = self.end.as_ref().map_or(0, Bytes::len);
        SEGMENT_BYTES + self.start.len() + end + self.keys.len() + size_of_val(&*self.rows)
    }

    pub(super) fn is_cached(&self) -> bool {
        self.is_cached.load(Ordering::Relaxed)
    }

    pub(super) fn set_cached(&self, is_cached: bool) {
        self.is_cached.store(is_cached, Ordering::Relaxed);
    }
}

impl Row {
    /// Length of the value if it may be cached, otherwise 0.
    fn cacheable_len(&self) -> usize {
        let len = self.version.value_len as usize;
        if len <= RANGE_VALUE_CACHED_BYTES_MAX { len } else { 0 }
    }
}

/// Gathers the rows of a segment, in key order.
#[derive(Default)]
pub(super) struct SegmentBuilder {
    keys: Vec<u8>,
    rows: Vec<Row>,
    values_len: usize,
}

impl SegmentBuilder {
    pub(super) fn push(&mut self, key: &[u8], version: Version) {
        self.keys.extend_from_slice(key);
        let key_end = u32::try_from(self.keys.len()).expect("invariant: few keys, each smaller than a request");
        let row = Row { key_end, version, value: OnceLock::new() };
        self.values_len += row.cacheable_len();
        self.rows.push(row);
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.keys.len() + self.values_len >= BYTES_MAX
    }

    /// The first key after the last row.
    pub(super) fn after_last(&self) -> Bytes {
        let start = self.rows.len().checked_sub(2).map_or(0, |before| self.rows[before].key_end as usize);
        [&self.keys[start..], &[0]].concat().into()
    }

    pub(super) fn finish(self, start: Bytes, end: Option<Bytes>, seen: LogIndex) -> Segment {
        let Self { keys, rows, .. } = self;
        let (keys, rows) = (Bytes::from(keys.into_boxed_slice()), rows.into_boxed_slice());
        Segment { start, end, seen, keys, rows, is_cached: AtomicBool::new(false) }
    }
}
