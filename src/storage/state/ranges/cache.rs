//! The bounded set of segments, and the watches of the scans that fill it.
//!
//! Owns the choice of segments. Segments never overlap. A random one that was not used lately is
//! evicted first, so that a scan of more than the cache holds leaves a part of the older segments.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use prometheus::{IntCounter, IntGauge, Registry};

use super::segment::Segment;
use headwater_types::LogIndex;

/// Most bytes of written keys that one watch lists, plus [`WRITTEN_BYTES`] for each. A scan during
/// which more are written in its interval adds no segment from then on.
const WATCHED_BYTES_MAX: usize = 64 << 10;
/// Estimated memory of a written key without its bytes.
const WRITTEN_BYTES: usize = 32;
/// Most segments that a lookup passes over as a part of one gap, count. The segment that is read
/// for the gap may replace them.
const MERGED_MAX: usize = 64;

/// Counts of the caches of all generations of a state.
pub struct RangeCacheMetrics {
    /// Pairs that ranges took from the cache.
    pub(in crate::state) hits: IntCounter,
    /// Pairs that ranges read from history.
    pub(in crate::state) misses: IntCounter,
    pub(in crate::state) bytes: IntGauge,
}

impl Default for RangeCacheMetrics {
    fn default() -> Self {
        let counter = |name, help| IntCounter::new(name, help).expect("invariant: valid name");
        Self {
            hits: counter("headwater_range_cache_hits_total", "Pairs that ranges took from the cache of ranges."),
            misses: counter("headwater_range_cache_misses_total", "Pairs that ranges had to read from history."),
            bytes: IntGauge::new("headwater_range_cache_bytes", "Estimated memory of the cache of ranges.")
                .expect("invariant: valid name"),
        }
    }
}

impl RangeCacheMetrics {
    /// Registers the counts.
    ///
    /// # Errors
    ///
    /// If `registry` has metrics with these names.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.hits.clone()))?;
        registry.register(Box::new(self.misses.clone()))?;
        registry.register(Box::new(self.bytes.clone()))
    }
}

/// Segments of one generation of the state; see the module.
pub(in crate::state) struct RangeCache {
    bytes_max: usize,
    pub(super) metrics: Arc<RangeCacheMetrics>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Slot of each segment by its start.
    by_start: BTreeMap<Bytes, usize>,
    slots: Vec<Slot>,
    bytes: usize,
    /// The part of `bytes` that the metrics contain.
    counted: i64,
    /// State of the generator that chooses what is evicted.
    random: u64,
    /// Log index of the newest version of a KV key that a commit has written since the cache was
    /// made, also of keys without a segment. Its commit may still be under way. A view below this
    /// index must not fill the cache.
    newest_written: LogIndex,
    watches: BTreeMap<WatchId, Watch>,
    last_watch: WatchId,
}

struct Slot {
    segment: Arc<Segment>,
    bytes: usize,
    is_used: bool,
}

type WatchId = u64;

/// The keys that were written in an interval since the view of a scan.
struct Watch {
    start: Bytes,
    end: Option<Bytes>,
    written: Vec<Box<[u8]>>,
    bytes: usize,
    /// Whether keys are missing in `written`.
    is_lost: bool,
}

/// The result of a lookup at a key: the part of an interval that begins there, cached or not.
pub(super) enum RangeLookup {
    /// The key lies in this segment.
    Cached(Arc<Segment>),
    /// Up to `end`, the keys have to be read from disk.
    Gap {
        /// First key behind the gap: the start of a cached segment. `None` if the gap has no end.
        end: Option<Bytes>,
    },
}

impl RangeCache {
    pub(in crate::state) fn new(bytes_max: usize, metrics: Arc<RangeCacheMetrics>) -> Self {
        Self { bytes_max, metrics, inner: Mutex::default() }
    }

    /// The part of `[start, end)` that begins with `start`, for a view at `applied`. Unless one
    /// segment covers the interval, the interval is watched until [`unwatch`](Self::unwatch), and
    /// [`insert`](Self::insert) needs the watch. The watch is `None` if one segment covers the
    /// interval, or if a commit that the view does not see may have written keys.
    pub(super) fn open(&self, start: &Bytes, end: Option<&Bytes>, applied: LogIndex) -> (RangeLookup, Option<WatchId>) {
        let mut inner = self.inner.lock();
        let lookup = inner.look_up(start, applied);
        let is_whole = match (&lookup, end) {
            (RangeLookup::Cached(segment), Some(end)) => segment.end().is_none_or(|last| last >= end),
            (RangeLookup::Cached(segment), None) => segment.end().is_none(),
            (RangeLookup::Gap { .. }, _) => false,
        };
        if is_whole || inner.newest_written > applied {
            return (lookup, None);
        }
        inner.last_watch += 1;
        let id = inner.last_watch;
        let watch = Watch { start: start.clone(), end: end.cloned(), written: Vec::new(), bytes: 0, is_lost: false };
        inner.watches.insert(id, watch);
        (lookup, Some(id))
    }

    /// The cached segment in which `cursor` lies, or the gap from `cursor` on. A scan that goes on
    /// after [`open`](Self::open) calls it. Watches nothing.
    pub(super) fn look_up(&self, cursor: &[u8], applied: LogIndex) -> RangeLookup {
        self.inner.lock().look_up(cursor, applied)
    }

    pub(super) fn unwatch(&self, watch: WatchId) {
        self.inner.lock().watches.remove(&watch);
    }

    /// Adds a segment that a scan with `watch` has read, in place of those that it overlaps. Evicts
    /// others if it does not fit. Does not add it if it is too large or a cached segment covers it,
    /// or if a key of its interval may have been written since the scan's view.
    pub(super) fn insert(&self, segment: &Arc<Segment>, watch: WatchId) {
        let bytes = segment.bytes();
        // Beyond an eighth, one segment would displace too much.
        if bytes > self.bytes_max / 8 {
            return;
        }
        let mut removed = Vec::new();
        let mut inner = self.inner.lock();
        if inner.watches.get(&watch).is_none_or(|watch| watch.may_have_written(segment)) {
            return;
        }
        if let Some(slot) = inner.covering(segment.start()) {
            let there = &inner.slots[slot].segment;
            if segment.end().map_or(there.end().is_none(), |end| there.end().is_none_or(|last| last >= end)) {
                // Another scan was faster.
                return;
            }
            removed.push(inner.remove(slot));
        }
        while let Some(slot) = inner.first_within(segment) {
            removed.push(inner.remove(slot));
        }
        while inner.bytes + bytes > self.bytes_max {
            removed.push(inner.evict());
        }
        segment.set_cached(true);
        let slot = inner.slots.len();
        inner.slots.push(Slot { segment: Arc::clone(segment), bytes, is_used: false });
        inner.by_start.insert(segment.start().clone(), slot);
        inner.bytes += bytes;
        self.release(inner, removed);
    }

    /// Counts `bytes` of values that were added to a segment, and evicts segments if the cache has
    /// become too large. Does nothing if the segment is not cached any more.
    pub(super) fn grew(&self, segment: &Arc<Segment>, bytes: usize) {
        let mut removed = Vec::new();
        let mut inner = self.inner.lock();
        let Some(&slot) = inner.by_start.get(segment.start()) else { return };
        if !Arc::ptr_eq(&inner.slots[slot].segment, segment) {
            return;
        }
        inner.slots[slot].bytes += bytes;
        inner.slots[slot].is_used = true;
        inner.bytes += bytes;
        while inner.bytes > self.bytes_max {
            removed.push(inner.evict());
        }
        self.release(inner, removed);
    }

    /// Removes the segments of `keys`, of which the commit that is about to begin makes new
    /// versions; the newest is that of the command at `newest`.
    pub(in crate::state) fn forget<'a>(&self, keys: impl Iterator<Item = &'a Bytes>, newest: LogIndex) {
        let mut removed = Vec::new();
        let mut inner = self.inner.lock();
        inner.newest_written = inner.newest_written.max(newest);
        if inner.slots.is_empty() && inner.watches.is_empty() {
            return;
        }
        for key in keys {
            if let Some(slot) = inner.covering(key) {
                removed.push(inner.remove(slot));
            }
            inner.watches.values_mut().for_each(|watch| watch.note(key));
        }
        self.release(inner, removed);
    }

    /// Removes everything.
    pub(in crate::state) fn clear(&self) {
        let mut inner = self.inner.lock();
        let mut removed = Vec::new();
        while let Some(last) = inner.slots.len().checked_sub(1) {
            removed.push(inner.remove(last));
        }
        self.release(inner, removed);
    }

    /// Unlocks, then drops `removed`: the lock is not held while memory is freed.
    fn release(&self, mut inner: MutexGuard<'_, Inner>, removed: Vec<Slot>) {
        let grown = inner.bytes as i64 - inner.counted;
        inner.counted += grown;
        drop(inner);
        self.metrics.bytes.add(grown);
        drop(removed);
    }
}

impl Drop for RangeCache {
    fn drop(&mut self) {
        self.metrics.bytes.sub(self.inner.get_mut().counted);
    }
}

impl Inner {
    fn look_up(&mut self, cursor: &[u8], applied: LogIndex) -> RangeLookup {
        if let Some(slot) = self.covering(cursor)
            && self.slots[slot].segment.seen() <= applied
        {
            self.slots[slot].is_used = true;
            return RangeLookup::Cached(Arc::clone(&self.slots[slot].segment));
        }
        // Small segments are read anew and replaced, because each costs a search here.
        let after = (Bound::Excluded(cursor), Bound::Unbounded);
        let next = self.by_start.range::<[u8], _>(after).enumerate().find(|(passed, (_, slot))| {
            let segment = &self.slots[**slot].segment;
            *passed >= MERGED_MAX || segment.is_large() && segment.seen() <= applied
        });
        RangeLookup::Gap { end: next.map(|(_, (start, _))| start.clone()) }
    }

    /// The slot of the segment that `key` lies in.
    fn covering(&self, key: &[u8]) -> Option<usize> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (_, &slot) = self.by_start.range::<[u8], _>(upto).next_back()?;
        self.slots[slot].segment.ends_after(key).then_some(slot)
    }

    /// The slot of the first segment that begins in the interval of `segment`.
    fn first_within(&self, segment: &Segment) -> Option<usize> {
        let from = (Bound::Included(segment.start().as_ref()), Bound::Unbounded);
        let (start, &slot) = self.by_start.range::<[u8], _>(from).next()?;
        segment.ends_after(start).then_some(slot)
    }

    fn remove(&mut self, slot: usize) -> Slot {
        let removed = self.slots.swap_remove(slot);
        self.by_start.remove(removed.segment.start());
        if let Some(moved) = self.slots.get(slot) {
            *self.by_start.get_mut(moved.segment.start()).expect("invariant: every segment is listed") = slot;
        }
        self.bytes -= removed.bytes;
        removed.segment.set_cached(false);
        removed
    }

    /// Removes and returns a random segment that was not used since an eviction last came past it.
    /// The cache must not be empty.
    fn evict(&mut self) -> Slot {
        // The generator of Marsaglia: xorshift.
        self.random |= 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let mut slot = self.random as usize % self.slots.len();
        while std::mem::take(&mut self.slots[slot].is_used) {
            slot = (slot + 1) % self.slots.len();
        }
        self.remove(slot)
    }
}

impl Watch {
    fn note(&mut self, key: &Bytes) {
        if self.is_lost || *key < self.start || self.end.as_ref().is_some_and(|end| key >= end) {
            return;
        }
        self.bytes += key.len() + WRITTEN_BYTES;
        if self.bytes > WATCHED_BYTES_MAX {
            self.is_lost = true;
            self.written = Vec::new();
        } else {
            // A copy: the key is a part of its whole request.
            self.written.push(key.as_ref().into());
        }
    }

    fn may_have_written(&self, segment: &Segment) -> bool {
        let is_within = |key: &[u8]| *key >= segment.start()[..] && segment.ends_after(key);
        self.is_lost || self.written.iter().any(|key| is_within(key))
    }
}
