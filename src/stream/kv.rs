//! The topic of KV changes: subjects are single keys and intervals.
//!
//! Owns the routing of a change to its subscribers: one look-up by key, one search of the intervals
//! that contain it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::commit::{Commit, Item};
use super::intervals::Intervals;
use super::topic::{SubjectIndex, Topic};
use headwater_types::{CommandEvents, KeyRange, KeyValue, KvEvent};

/// Changes of KV keys. A subject is a key or an interval, which must not be empty.
#[derive(Debug)]
pub struct Kv;

/// The encodings of one change. Each is made once and shared by all streams that send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A message of `etcdserverpb` without the previous pair.
    Etcd,
    /// A message of `etcdserverpb` with the previous pair.
    EtcdWithPrev,
    /// A message of the early API. A removal carries the previous pair, if it could be read.
    Early,
}

const ENCODINGS: usize = 3;

/// Data derived from one change of one key.
#[derive(Debug, Default)]
pub struct KvMemo {
    prev: OnceLock<Option<Box<KeyValue>>>,
    encoded: [OnceLock<Bytes>; ENCODINGS],
}

/// Memory beside a change's content, bytes: its item in lists, its memo.
const OVERHEAD_BYTES: usize = 256;

/// Memory of a pair's texts, bytes, counted twice: once decoded, once encoded.
fn pair_bytes(kv: &KeyValue) -> usize {
    2 * (kv.key.len() + kv.value.len())
}

/// Access to the memo of the change at a position of [`Commit::events`]. Memory that a memo takes
/// beyond [`Topic::cost_bytes`] is added to the commit's.
impl Commit<Kv> {
    /// The pair before the change, as [`set_prev`](Self::set_prev) stored it: `None` if nothing was
    /// stored yet, `Some(None)` if a missing pair was.
    pub fn prev(&self, position: usize) -> Option<Option<&KeyValue>> {
        self.memo(position).prev.get().map(Option::as_deref)
    }

    /// Stores the pair before the change. The first call wins: every reader finds the same pair.
    pub fn set_prev(&self, position: usize, prev: Option<KeyValue>) {
        let mut bytes = 0;
        self.memo(position).prev.get_or_init(|| {
            bytes = prev.as_ref().map_or(0, |prev| size_of::<KeyValue>() + pair_bytes(prev));
            prev.map(Box::new)
        });
        if bytes > 0 {
            self.add_bytes(bytes);
        }
    }

    /// The change at `position` in `encoding`, made by `encode` on first use.
    pub fn encoded(&self, position: usize, encoding: Encoding, encode: impl FnOnce() -> Bytes) -> &Bytes {
        let memo = self.memo(position);
        let mut is_new = false;
        let encoded = memo.encoded[encoding as usize].get_or_init(|| {
            is_new = true;
            encode()
        });
        // The cost of the change includes one encoding.
        if is_new && memo.encoded.iter().filter(|encoded| encoded.get().is_some()).count() > 1 {
            self.add_bytes(encoded.len());
        }
        encoded
    }
}

impl Item<Kv> {
    /// Approximate memory, bytes: of the whole commit, and of the pairs before the item's changes
    /// as far as they have been read.
    pub fn bytes(&self) -> usize {
        let prev = |position| self.commit().prev(position).flatten().map_or(0, pair_bytes);
        self.commit().bytes() + self.positions().map(prev).sum::<usize>()
    }
}

impl Topic for Kv {
    type Event = KvEvent;
    type Memo = KvMemo;
    type Subject = KeyRange;
    type Index = KvIndex;

    const NAME: &'static str = "kv";

    fn events(commit: &CommandEvents) -> Arc<[KvEvent]> {
        Arc::clone(&commit.kv)
    }

    fn matches(subject: &KeyRange, event: &KvEvent) -> bool {
        subject.contains(&event.kv.key)
    }

    fn cost_bytes(event: &KvEvent) -> usize {
        pair_bytes(&event.kv) + OVERHEAD_BYTES
    }
}

/// The slots of the subjects in their feed: of single keys by key, and of intervals.
#[derive(Default)]
pub struct KvIndex {
    keys: HashMap<Bytes, usize>,
    spans: Intervals,
}

impl SubjectIndex<Kv> for KvIndex {
    fn get(&self, subject: &KeyRange) -> Option<usize> {
        match subject {
            KeyRange::One(key) => self.keys.get(key).copied(),
            KeyRange::Span { start, end } => self.spans.get(start, end),
        }
    }

    fn insert(&mut self, subject: &KeyRange, slot: usize) {
        match subject {
            KeyRange::One(key) => {
                self.keys.insert(key.clone(), slot);
            }
            KeyRange::Span { start, end } => self.spans.insert(start.clone(), end.clone(), slot),
        }
    }

    fn remove(&mut self, subject: &KeyRange) {
        match subject {
            KeyRange::One(key) => {
                self.keys.remove(key);
            }
            KeyRange::Span { start, end } => self.spans.remove(start, end),
        }
    }

    fn route(&self, event: &KvEvent, found: &mut dyn FnMut(usize)) {
        if let Some(&slot) = self.keys.get(&event.kv.key) {
            found(slot);
        }
        self.spans.stab(&event.kv.key, found);
    }
}
