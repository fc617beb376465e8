//! Keys, key intervals, and the request and result of a range (spec: etcd §1.2).

use bytes::Bytes;

use super::{LeaseId, Revision};

/// One key with its value, revisions and lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key: arbitrary bytes, not empty; bounded by the size of a request.
    pub key: Bytes,
    /// The value: arbitrary bytes, may be empty.
    pub value: Bytes,
    /// Revision of the first put of the current generation: the put that created the key after it
    /// was last absent.
    pub create_revision: Revision,
    /// Revision of the latest put.
    pub mod_revision: Revision,
    /// Number of puts in the current generation; 1 right after the key was created.
    pub version: i64,
    /// The lease that the key is attached to, or [`LeaseId::NONE`].
    pub lease: LeaseId,
}

/// An interval of keys. Faces convert etcd's pair `(key, range_end)` to it with
/// [`from_etcd`](Self::from_etcd); no layer below knows etcd's meaning of `"\0"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// Exactly one key.
    One(Bytes),
    /// The keys `[start, end)`; all keys from `start` on if `end` is `None`. Contains no key if
    /// `end <= start`.
    Span {
        /// First key of the interval.
        start: Bytes,
        /// Exclusive end of the interval; `None` for an interval without end.
        end: Option<Bytes>,
    },
}

impl KeyRange {
    /// Converts etcd's pair. With an empty `range_end` it is `key` alone, with `"\0"` all keys from
    /// `key` on, otherwise `[key, range_end)` (spec: etcd §1.2).
    pub fn from_etcd(key: Bytes, range_end: Bytes) -> Self {
        match range_end.as_ref() {
            [] => Self::One(key),
            [0] => Self::Span { start: key, end: None },
            _ => Self::Span { start: key, end: Some(range_end) },
        }
    }

    /// Every key of the store.
    pub fn all() -> Self {
        Self::Span { start: Bytes::new(), end: None }
    }

    /// Every key that begins with `prefix`: every key of the store if `prefix` is empty.
    pub fn prefix(prefix: Bytes) -> Self {
        let end = prefix_end(&prefix);
        Self::Span { start: prefix, end }
    }

    /// The inclusive lower bound. An interval that is empty has one, too, and does not contain it.
    pub fn start(&self) -> &Bytes {
        match self {
            Self::One(key) => key,
            Self::Span { start, .. } => start,
        }
    }

    /// Whether no key can lie in the interval: its end is not above its start.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Span { start, end } => end.as_ref().is_some_and(|end| end <= start),
        }
    }

    /// Whether `key` lies in the interval.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Span { start, end } => key >= start.as_ref() && end.as_ref().is_none_or(|end| key < end.as_ref()),
        }
    }
}

/// The smallest key above all keys that begin with `prefix`: the exclusive end of their interval.
/// `None` if no key is above them: `prefix` is empty, or all its bytes are 0xff.
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let kept = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end.into())
}

/// The state that a read sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest state of the view.
    #[default]
    Current,
    /// The state in which this was the current revision; at 1 and 0 the state without keys. Below
    /// the compaction point it is refused with `Compacted`, above the current revision with
    /// `FutureRevision`; a negative number counts as compacted (spec: etcd §1.6).
    Revision(Revision),
}

/// Direction in which the result of a range is sorted by its [`SortTarget`]. Pairs with equal
/// targets stay in ascending key order, also with `Descend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// Smallest first. For a target other than the key, a limit cuts the list in key order before
    /// it is sorted: only the first `limit` + 1 keys are sorted. That holds unless
    /// [`RevisionFilter`] bounds revisions (spec: etcd §1.2, quirk).
    #[default]
    None,
    /// Smallest first.
    Ascend,
    /// Largest first.
    Descend,
}

/// The field that a range is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    /// The key itself.
    #[default]
    Key,
    /// `version`.
    Version,
    /// `create_revision`.
    Create,
    /// `mod_revision`.
    Mod,
    /// `value`, bytewise.
    Value,
}

/// Bounds on the revisions of the pairs of a range, all inclusive. 0 means "no bound".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevisionFilter {
    /// Smallest `mod_revision` kept.
    pub min_mod: i64,
    /// Largest `mod_revision` kept.
    pub max_mod: i64,
    /// Smallest `create_revision` kept.
    pub min_create: i64,
    /// Largest `create_revision` kept.
    pub max_create: i64,
}

impl RevisionFilter {
    /// Whether any bound is set.
    pub fn is_active(&self) -> bool {
        *self != Self::default()
    }

    /// Whether a key with these revisions is within all bounds.
    pub fn keeps(&self, create: Revision, modified: Revision) -> bool {
        let within = |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
        within(modified.get(), self.min_mod, self.max_mod) && within(create.get(), self.min_create, self.max_create)
    }
}

/// A range request, as every layer below the API sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeQuery {
    /// The requested keys.
    pub range: KeyRange,
    /// The requested state.
    pub at: ReadAt,
    /// At most this many pairs; 0 is no limit.
    pub limit: u64,
    /// Order of the result.
    pub order: SortOrder,
    /// The field that `order` sorts by.
    pub target: SortTarget,
    /// Bounds on the revisions of the returned pairs.
    pub filter: RevisionFilter,
    /// Whether values are left empty.
    pub keys_only: bool,
    /// Whether the result has only `count`, and no pairs.
    pub count_only: bool,
}

impl RangeQuery {
    /// All pairs of `range` in the current state, in key order.
    pub fn new(range: KeyRange) -> Self {
        Self {
            range,
            at: ReadAt::Current,
            limit: 0,
            order: SortOrder::None,
            target: SortTarget::Key,
            filter: RevisionFilter::default(),
            keys_only: false,
            count_only: false,
        }
    }
}

/// Result of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// The pairs, in the requested order, at most the requested limit. Empty if only the count was
    /// requested.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit cut off pairs that the filter keeps. False if only the count was
    /// requested.
    pub more: bool,
    /// Number of live keys in the interval at the requested state, before limit and filter.
    pub count: u64,
}
