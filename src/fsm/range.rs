//! Evaluation of ranges (spec: etcd §1.2), the same on a view and inside a transaction.
//!
//! Owns intervals, limits, filters, sorting and `count`. Values are loaded only for pairs of the
//! result, or to sort by value. Invariant: `count` is the number of live keys in the interval,
//! before limit and filters.

use std::cmp::Ordering;

use bytes::Bytes;

use super::error::{FsmError, split_refusal};
use super::read_budget::ReadBudget;
use headwater_storage::StorageError;
use headwater_storage::state::{FoundVersion, KeyRef, NEWEST, ReadView, StateHead, StateReader, Table, Version};
use headwater_types::limits::ENTRY_BYTES;
use headwater_types::{
    KeyRange, KeyValue, LogIndex, RangeQuery, RangeResult, ReadAt, Refusal, Revision, SortOrder, SortTarget,
};

/// Evaluates a range on a view.
///
/// # Errors
///
/// The outer one if the disk failed, the inner one if the requested revision cannot be read.
pub fn range(view: &ReadView<'_>, query: &RangeQuery) -> Result<Result<RangeResult, Refusal>, StorageError> {
    split_refusal(check(view.head(), query.at).map_err(FsmError::from).and_then(|()| run(view, query)))
}

/// The first half of [`range`]: selects rows and loads no values. The caller decides by
/// [`Selection::bytes`] whether to load them.
///
/// # Errors
///
/// As [`range`].
pub fn select(view: &ReadView<'_>, query: &RangeQuery) -> Result<Result<Selection, Refusal>, StorageError> {
    split_refusal(check(view.head(), query.at).map_err(FsmError::from).and_then(|()| select_rows(view, query)))
}

/// Refuses a revision that cannot be read. Independent of how far space was reclaimed.
pub(super) fn check(head: &StateHead, at: ReadAt) -> Result<(), Refusal> {
    let ReadAt::Revision(revision) = at else {
        return Ok(());
    };
    let compacted = head.compaction.map_or(Revision(0), |point| point.revision);
    if revision > head.revision {
        Err(Refusal::FutureRevision { current: head.revision })
    } else if revision < compacted {
        Err(Refusal::Compacted { compact_revision: compacted })
    } else {
        Ok(())
    }
}

/// Evaluates a range. [`check`] must have accepted its revision.
pub(super) fn run(state: &impl StateReader, query: &RangeQuery) -> Result<RangeResult, FsmError> {
    Ok(select_rows(state, query)?.load(state)?)
}

/// The rows of a range with their count, before values are loaded. They are cut to the limit,
/// unless they are to be sorted by value.
#[derive(Debug)]
pub struct Selection {
    rows: Vec<Row>,
    more: bool,
    count: u64,
    loading: Loading,
}

/// The way in which [`Selection::load`] turns rows into pairs.
#[derive(Clone, Copy, Debug)]
enum Loading {
    /// Loads the pairs of all rows, sorts them by value and keeps the first `limit`.
    ByValue { order: SortOrder, limit: usize, keys_only: bool },
    /// Loads nothing: `rows` are the result, and have their keys.
    KeysOnly,
    /// Loads the pair of each row: `rows` are the result.
    Whole,
}

impl Selection {
    /// Memory of the pairs that [`load`](Self::load) makes, bytes: keys, loaded values, and
    /// [`ENTRY_BYTES`] for each pair. For a sort by value, all rows that are sorted count, also
    /// those beyond the limit.
    pub fn bytes(&self) -> usize {
        let loads_values = !matches!(self.loading, Loading::KeysOnly);
        let pair = |row: &Row| {
            let value = if loads_values { row.found.version.value_len as usize } else { 0 };
            ENTRY_BYTES + row.key_len as usize + value
        };
        self.rows.iter().map(pair).sum()
    }

    /// The result of the range. `view` must be the one that it was selected on.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub fn load(self, view: &impl StateReader) -> Result<RangeResult, StorageError> {
        let Self { rows, more, count, loading } = self;
        let kvs = match loading {
            Loading::ByValue { order, limit, keys_only } => {
                let mut kvs = load(view, rows)?;
                sort(&mut kvs, order, |a, b| a.value.cmp(&b.value));
                kvs.truncate(limit);
                if keys_only {
                    kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
                }
                kvs
            }
            Loading::KeysOnly => rows.into_iter().map(|row| row.found.version.without_value(row.key)).collect(),
            Loading::Whole => load(view, rows)?,
        };
        Ok(RangeResult { kvs, more, count })
    }
}

/// The rows of a range. [`check`] must have accepted its revision.
fn select_rows(state: &impl StateReader, query: &RangeQuery) -> Result<Selection, FsmError> {
    let at = resolve(state, query.at)?;
    let collecting = RowSelection::of(query);
    let mut rows = Vec::new();
    let mut count = 0;
    // The head has the count of all keys, so a limited walk through the whole store may stop early.
    let total = match (at, is_everything(&query.range)) {
        (NEWEST, true) => Some(state.head().live_keys),
        _ => None,
    };
    let needs_key = query.keys_only || sorts_by_key(query);
    let mut collect = |key: KeyRef<'_>, version: Version| {
        count += 1;
        if query.filter.keeps(version.create_revision, version.mod_revision) {
            let key_len = u32::try_from(key.user_len()).unwrap_or(u32::MAX);
            let found = key.with_version(version);
            rows.push(Row { key: if needs_key { key.to_bytes() } else { Bytes::new() }, key_len, found });
        }
        rows.len() < collecting.rows_max
    };
    let mut uncounted = None;
    match &query.range {
        KeyRange::One(key) => {
            if let Some(version) = state.lookup(Table::Kv, key, at)? {
                collect(KeyRef::Plain(key), version);
            }
        }
        KeyRange::Span { .. } => {
            let mut scan = state.scan(Table::Kv, &query.range, at)?;
            let mut continues = collecting.rows_max > 0;
            while continues {
                let Some((key, version)) = scan.next()? else { break };
                continues = collect(key, version);
            }
            uncounted = Some(scan);
        }
    }
    let count = match (total, uncounted) {
        (Some(total), _) => total,
        (None, Some(mut scan)) => count + scan.count_rest()?,
        (None, None) => count,
    };
    if query.count_only {
        return Ok(Selection { rows: Vec::new(), more: false, count, loading: Loading::Whole });
    }
    let limit = limit_of(query);
    let more = rows.len() > limit;
    if query.target == SortTarget::Value && collecting.order != SortOrder::None {
        let loading = Loading::ByValue { order: collecting.order, limit, keys_only: query.keys_only };
        return Ok(Selection { rows, more, count, loading });
    }
    sort(&mut rows, collecting.order, |a, b| match query.target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.found.version.version.cmp(&b.found.version.version),
        SortTarget::Create => a.found.version.create_revision.cmp(&b.found.version.create_revision),
        SortTarget::Mod => a.found.version.mod_revision.cmp(&b.found.version.mod_revision),
        SortTarget::Value => Ordering::Equal,
    });
    rows.truncate(limit);
    let loading = if query.keys_only { Loading::KeysOnly } else { Loading::Whole };
    Ok(Selection { rows, more, count, loading })
}

/// Takes capacity from `budget` for the keys that a range visits and for the bytes of the pairs
/// that it loads. [`check`] must have accepted its revision. False if the budget is too small.
/// Every member computes this in apply: no rows are collected, and the walk stops once the budget
/// is used up. A result with a limit counts as that many pairs of the largest size, at most as all
/// pairs, because the rows are not sorted here.
pub(super) fn try_charge(
    state: &impl StateReader,
    query: &RangeQuery,
    budget: &mut ReadBudget,
) -> Result<bool, FsmError> {
    let at = resolve(state, query.at)?;
    let rows_max = RowSelection::of(query).rows_max;
    let sorts_by_value = query.target == SortTarget::Value;
    let is_loaded = !query.keys_only || sorts_by_value;
    let ends_early = at == NEWEST && is_everything(&query.range);
    let (mut rows, mut bytes, mut largest, mut has_budget) = (0, 0_usize, 0_usize, true);
    visit(state, &query.range, at, |key, version| {
        has_budget = budget.take_read(0);
        if rows < rows_max && query.filter.keeps(version.create_revision, version.mod_revision) {
            let len = ENTRY_BYTES + key.user_len() + if is_loaded { version.value_len as usize } else { 0 };
            rows += 1;
            bytes = bytes.saturating_add(len);
            largest = largest.max(len);
        }
        has_budget && (!ends_early || rows < rows_max)
    })?;
    // A sort by value loads all pairs.
    let answered = if sorts_by_value { bytes } else { bytes.min(largest.saturating_mul(limit_of(query))) };
    Ok(has_budget && budget.take(0, answered))
}

/// Visits the keys of an interval that were live at `at`, in key order, until `visit` returns
/// false.
pub(super) fn visit(
    state: &impl StateReader,
    range: &KeyRange,
    at: LogIndex,
    mut visit: impl FnMut(KeyRef<'_>, Version) -> bool,
) -> Result<(), StorageError> {
    match range {
        KeyRange::One(key) => {
            if let Some(version) = state.lookup(Table::Kv, key, at)? {
                visit(KeyRef::Plain(key), version);
            }
        }
        KeyRange::Span { .. } => {
            let mut scan = state.scan(Table::Kv, range, at)?;
            while let Some((key, version)) = scan.next()? {
                if !visit(key, version) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// The log index at which a checked query reads; [`NEWEST`] for the current state.
pub(super) fn resolve(state: &impl StateReader, at: ReadAt) -> Result<LogIndex, StorageError> {
    match at {
        ReadAt::Current => Ok(NEWEST),
        ReadAt::Revision(revision) => state.index_of(revision),
    }
}

pub(super) fn limit_of(query: &RangeQuery) -> usize {
    if query.limit == 0 { usize::MAX } else { usize::try_from(query.limit).unwrap_or(usize::MAX) }
}

/// Whether every possible key lies in the interval.
pub(super) fn is_everything(range: &KeyRange) -> bool {
    // No key is empty, so the smallest one is a single zero byte.
    matches!(range, KeyRange::Span { start, end: None } if start.is_empty() || start.as_ref() == [0])
}

fn sorts_by_key(query: &RangeQuery) -> bool {
    query.target == SortTarget::Key && query.order == SortOrder::Descend
}

/// A live key of the range. `key` is empty unless it is needed before the record is loaded.
#[derive(Debug)]
struct Row {
    key: Bytes,
    /// Length of the key, bytes; known without `key`.
    key_len: u32,
    found: FoundVersion,
}

/// Most rows that a walk collects, and the order in which they are sorted before the result is cut
/// to the limit. [`SortOrder::None`] keeps the order of keys.
struct RowSelection {
    rows_max: usize,
    order: SortOrder,
}

impl RowSelection {
    fn of(query: &RangeQuery) -> Self {
        // Quirk: without an explicit order the limit cuts in key order first. Only the rows that
        // remain, with one more row to detect whether there is more, are sorted by another target.
        let cut_first = query.order == SortOrder::None && !query.filter.is_active();
        let natural = query.target == SortTarget::Key && query.order != SortOrder::Descend;
        let rows_max = if query.count_only {
            0
        } else if cut_first || natural {
            limit_of(query).saturating_add(1)
        } else {
            usize::MAX
        };
        let order = match (query.target, query.order) {
            (SortTarget::Key, SortOrder::Ascend) => SortOrder::None,
            (SortTarget::Key, order) => order,
            (_, SortOrder::None) => SortOrder::Ascend,
            (_, order) => order,
        };
        Self { rows_max, order }
    }
}

/// Sorts stably: rows that compare equal stay in key order, also in descending order.
fn sort<T>(rows: &mut [T], order: SortOrder, compare: impl Fn(&T, &T) -> Ordering) {
    match order {
        SortOrder::None => {}
        SortOrder::Ascend => rows.sort_by(compare),
        SortOrder::Descend => rows.sort_by(|a, b| compare(b, a)),
    }
}

fn load(state: &impl StateReader, rows: Vec<Row>) -> Result<Vec<KeyValue>, StorageError> {
    let found: Vec<FoundVersion> = rows.into_iter().map(|row| row.found).collect();
    state.load_found(&found)
}
