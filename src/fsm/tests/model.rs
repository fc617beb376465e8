//! What the rules say, written down a second time in the plainest way: maps that are copied for every revision.
//!
//! Nothing here is shared with the code under test but the vocabulary.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::*;
use crate::types::{
    Command, Compare, CompareOp, CompareTarget, DeleteRange, Deleted, KeyRange, KeyValue, LeaseChoice, LeaseId,
    Outcome, Put, PutDone, RangeQuery, RangeResult, Ranged, ReadAt, Refusal, Revision, RevisionFilter, SortOrder,
    SortTarget, Txn, TxnDone, TxnOp, TxnOpDone, ValueChoice,
};

type State = BTreeMap<Bytes, KeyValue>;

#[derive(Clone)]
pub(super) struct Model {
    pub(super) revision: i64,
    pub(super) compacted: i64,
    pub(super) now: State,
    /// The state after each revision.
    pub(super) past: BTreeMap<i64, State>,
}

impl Model {
    pub(super) fn new() -> Self {
        Self { revision: 1, compacted: -1, now: State::new(), past: BTreeMap::from([(1, State::new())]) }
    }

    pub(super) fn apply(&mut self, command: &Command) -> Outcome {
        let mut next = self.now.clone();
        let outcome = match command {
            Command::Bootstrap(_) => Ok(Outcome::Bootstrapped),
            Command::Compact(compact) => self.compact(compact.revision.get()),
            Command::Put(put) => self.put(&mut next, put).map(Outcome::Put),
            Command::DeleteRange(delete) => Ok(Outcome::DeleteRange(self.delete(&mut next, delete, false))),
            Command::Txn(txn) => self.txn(&mut next, txn).map(Outcome::Txn),
        };
        if outcome.is_ok() && next != self.now {
            self.revision += 1;
            self.now = next;
            self.past.insert(self.revision, self.now.clone());
        }
        outcome.unwrap_or_else(Outcome::Refused)
    }

    fn compact(&mut self, revision: i64) -> Result<Outcome, Refusal> {
        if revision <= self.compacted {
            return Err(compacted(self.compacted));
        }
        if revision > self.revision {
            return Err(future(self.revision));
        }
        self.compacted = revision;
        Ok(Outcome::Compacted)
    }

    fn put(&self, next: &mut State, put: &Put) -> Result<PutDone, Refusal> {
        if matches!(put.lease, LeaseChoice::Set(lease) if lease.is_some()) {
            return Err(Refusal::LeaseNotFound);
        }
        let old = next.get(&put.key).cloned();
        let value = match (&put.value, &old) {
            (ValueChoice::Set(value), _) => value.clone(),
            (ValueChoice::Keep, Some(old)) => old.value.clone(),
            (ValueChoice::Keep, None) => return Err(Refusal::KeyNotFound),
        };
        let lease = match (put.lease, &old) {
            (LeaseChoice::Set(_), _) | (LeaseChoice::KeepIfPresent, None) => LeaseId::NONE,
            (LeaseChoice::Keep, None) => return Err(Refusal::KeyNotFound),
            (LeaseChoice::Keep | LeaseChoice::KeepIfPresent, Some(old)) => old.lease,
        };
        let revision = Revision(self.revision + 1);
        let kv = KeyValue {
            key: put.key.clone(),
            value,
            create_revision: old.as_ref().map_or(revision, |old| old.create_revision),
            mod_revision: revision,
            version: old.as_ref().map_or(0, |old| old.version) + 1,
            lease,
        };
        next.insert(put.key.clone(), kv);
        Ok(PutDone { revision, prev: old.filter(|_| put.prev_kv) })
    }

    fn delete(&self, next: &mut State, delete: &DeleteRange, changed: bool) -> Deleted {
        let doomed: Vec<KeyValue> = next.values().filter(|kv| delete.range.contains(&kv.key)).cloned().collect();
        next.retain(|key, _| !delete.range.contains(key));
        Deleted {
            revision: self.revision_after(changed || !doomed.is_empty()),
            deleted: doomed.len() as u64,
            prev: if delete.prev_kv { doomed } else { vec![] },
        }
    }

    fn revision_after(&self, changed: bool) -> Revision {
        Revision(self.revision + i64::from(changed))
    }

    fn check_at(&self, at: ReadAt) -> Result<(), Refusal> {
        match at {
            ReadAt::Revision(Revision(revision)) if revision > self.revision => Err(future(self.revision)),
            ReadAt::Revision(Revision(revision)) if revision < self.compacted.max(0) => {
                Err(compacted(self.compacted.max(0)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn range(&self, now: &State, query: &RangeQuery) -> Result<RangeResult, Refusal> {
        self.check_at(query.at)?;
        let empty = State::new();
        let state = match query.at {
            ReadAt::Current => now,
            ReadAt::Revision(revision) => self.past.get(&revision.get()).unwrap_or(&empty),
        };
        let inside: Vec<&KeyValue> = state.values().filter(|kv| query.range.contains(&kv.key)).collect();
        let count = inside.len() as u64;
        if query.count_only {
            return Ok(RangeResult { kvs: vec![], more: false, count });
        }
        let limit = if query.limit == 0 { usize::MAX } else { query.limit as usize };
        let mut kvs: Vec<KeyValue> = inside.into_iter().cloned().collect();
        if query.order == SortOrder::None && !query.filter.is_active() {
            kvs.truncate(limit.saturating_add(1));
        }
        let f = &query.filter;
        kvs.retain(|kv| {
            let (modified, created) = (kv.mod_revision.get(), kv.create_revision.get());
            (f.min_mod == 0 || modified >= f.min_mod)
                && (f.max_mod == 0 || modified <= f.max_mod)
                && (f.min_create == 0 || created >= f.min_create)
                && (f.max_create == 0 || created <= f.max_create)
        });
        let compare = |a: &KeyValue, b: &KeyValue| match query.target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        kvs.sort_by(compare);
        if query.order == SortOrder::Descend {
            kvs.reverse();
        }
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if query.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(RangeResult { kvs, more, count })
    }

    fn txn(&self, next: &mut State, txn: &Txn) -> Result<TxnDone, Refusal> {
        for list in [&txn.success, &txn.failure] {
            if has_duplicate(list) {
                return Err(Refusal::DuplicateKey);
            }
        }
        let mut path = Vec::new();
        self.chosen(txn, &mut path);
        for op in &path {
            if let TxnOp::Put(put) = op {
                let keeps = put.value == ValueChoice::Keep || put.lease == LeaseChoice::Keep;
                if keeps && !self.now.contains_key(&put.key) {
                    return Err(Refusal::KeyNotFound);
                }
                if matches!(put.lease, LeaseChoice::Set(lease) if lease.is_some()) {
                    return Err(Refusal::LeaseNotFound);
                }
            }
        }
        for op in &path {
            if let TxnOp::Range(query) = op {
                self.check_at(query.at)?;
            }
        }
        self.run(next, txn)
    }

    fn list<'t>(&self, txn: &'t Txn) -> (bool, &'t [TxnOp]) {
        let yes = txn.compares.iter().all(|compare| self.holds(compare));
        (yes, if yes { &txn.success } else { &txn.failure })
    }

    fn chosen<'t>(&self, txn: &'t Txn, out: &mut Vec<&'t TxnOp>) {
        for op in self.list(txn).1 {
            match op {
                TxnOp::Txn(inner) => self.chosen(inner, out),
                other => out.push(other),
            }
        }
    }

    fn run(&self, next: &mut State, txn: &Txn) -> Result<TxnDone, Refusal> {
        let (succeeded, ops) = self.list(txn);
        let mut responses = Vec::new();
        for op in ops {
            let changed = *next != self.now;
            responses.push(match op {
                TxnOp::Put(put) => TxnOpDone::Put(self.put(next, put)?),
                TxnOp::DeleteRange(delete) => TxnOpDone::DeleteRange(self.delete(next, delete, changed)),
                TxnOp::Range(query) => TxnOpDone::Range(Ranged {
                    revision: self.revision_after(changed),
                    result: self.range(next, query)?,
                }),
                TxnOp::Txn(inner) => TxnOpDone::Txn(self.run(next, inner)?),
            });
        }
        Ok(TxnDone { succeeded, responses })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let inside: Vec<&KeyValue> = self.now.values().filter(|kv| compare.range.contains(&kv.key)).collect();
        let one = |kv: &KeyValue| {
            let order = match &compare.target {
                CompareTarget::Version(given) => kv.version.cmp(given),
                CompareTarget::CreateRevision(given) => kv.create_revision.get().cmp(given),
                CompareTarget::ModRevision(given) => kv.mod_revision.get().cmp(given),
                CompareTarget::Lease(given) => kv.lease.get().cmp(given),
                CompareTarget::Value(given) => kv.value.cmp(given),
            };
            match compare.op {
                CompareOp::Equal => order == Ordering::Equal,
                CompareOp::NotEqual => order != Ordering::Equal,
                CompareOp::Greater => order == Ordering::Greater,
                CompareOp::Less => order == Ordering::Less,
            }
        };
        match (inside.is_empty(), &compare.target) {
            (true, CompareTarget::Value(_)) => false,
            (true, _) => one(&KeyValue::default()),
            (false, _) => inside.into_iter().all(one),
        }
    }
}

/// Whether two operations of a list may touch one key, at least one of them putting it.
fn has_duplicate(ops: &[TxnOp]) -> bool {
    fn writes<'t>(op: &'t TxnOp, puts: &mut Vec<&'t Bytes>, deletes: &mut Vec<&'t KeyRange>) {
        match op {
            TxnOp::Range(_) => {}
            TxnOp::Put(put) => puts.push(&put.key),
            TxnOp::DeleteRange(delete) => deletes.push(&delete.range),
            TxnOp::Txn(txn) => txn.success.iter().chain(&txn.failure).for_each(|op| writes(op, puts, deletes)),
        }
    }
    let all: Vec<_> = ops
        .iter()
        .map(|op| {
            let (mut puts, mut deletes) = (vec![], vec![]);
            writes(op, &mut puts, &mut deletes);
            (puts, deletes)
        })
        .collect();
    let nested = ops.iter().any(|op| match op {
        TxnOp::Txn(txn) => has_duplicate(&txn.success) || has_duplicate(&txn.failure),
        _ => false,
    });
    nested
        || all.iter().enumerate().any(|(i, (puts, _))| {
            all.iter().enumerate().any(|(j, (others, deletes))| {
                i != j && puts.iter().any(|key| others.contains(key) || deletes.iter().any(|range| range.contains(key)))
            })
        })
}

const KEYS: [&str; 7] = ["a", "a\0", "ab", "b", "c", "d\0\0", "e"];

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(KEYS.to_vec())
}

fn interval() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        4 => key().prop_map(|key| span(key, "")),
        3 => (key(), key()).prop_map(|(key, end)| span(key, end)),
        1 => key().prop_map(|key| span(key, "\0")),
        1 => Just(span("\0", "\0")),
    ]
}

fn put_strategy() -> impl Strategy<Value = Put> {
    let value = prop_oneof![
        6 => "[x-z]{0,3}".prop_map(|value| ValueChoice::Set(bytes(value))),
        1 => Just(ValueChoice::Keep),
    ];
    let lease = prop_oneof![
        8 => Just(LeaseChoice::Set(LeaseId::NONE)),
        1 => Just(LeaseChoice::Keep),
        1 => Just(LeaseChoice::KeepIfPresent),
        1 => Just(LeaseChoice::Set(LeaseId(404))),
    ];
    (key(), value, lease, any::<bool>()).prop_map(|(key, value, lease, prev_kv)| Put {
        key: bytes(key),
        value,
        lease,
        prev_kv,
    })
}

fn delete_strategy() -> impl Strategy<Value = DeleteRange> {
    (interval(), any::<bool>()).prop_map(|(range, prev_kv)| DeleteRange { range, prev_kv })
}

pub(super) fn query() -> impl Strategy<Value = RangeQuery> {
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    // Ties have no order, so only fields that differ between keys decide between answers.
    let target = prop::sample::select(vec![SortTarget::Key, SortTarget::Key]);
    let filter = prop_oneof![
        3 => Just(RevisionFilter::default()),
        1 => (0..9i64, 0..20i64, 0..9i64, 0..20i64)
            .prop_map(|(min_mod, max_mod, min_create, max_create)| RevisionFilter { min_mod, max_mod, min_create, max_create }),
    ];
    (
        interval(),
        prop_oneof![2 => Just(0), 1 => -1..30i64],
        0..5u64,
        order,
        target,
        filter,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(range, revision, limit, order, target, filter, keys_only, count_only)| RangeQuery {
            range,
            at: at(revision),
            limit,
            order,
            target,
            filter,
            keys_only,
            count_only,
        })
}

fn compare_strategy() -> impl Strategy<Value = Compare> {
    let op = prop::sample::select(vec![CompareOp::Equal, CompareOp::Greater, CompareOp::Less, CompareOp::NotEqual]);
    let target = prop_oneof![
        (0..4i64).prop_map(CompareTarget::Version),
        (0..12i64).prop_map(CompareTarget::CreateRevision),
        (0..12i64).prop_map(CompareTarget::ModRevision),
        "[x-z]{0,2}".prop_map(|value| CompareTarget::Value(bytes(value))),
        (0..2i64).prop_map(CompareTarget::Lease),
    ];
    (interval(), op, target).prop_map(|(range, op, target)| Compare { range, op, target })
}

fn ops(depth: u32) -> BoxedStrategy<Vec<TxnOp>> {
    let leaf = prop_oneof![
        3 => put_strategy().prop_map(TxnOp::Put),
        2 => delete_strategy().prop_map(TxnOp::DeleteRange),
        2 => query().prop_map(TxnOp::Range),
    ];
    let op = if depth == 0 {
        leaf.boxed()
    } else {
        prop_oneof![4 => leaf, 1 => txn_strategy(depth - 1).prop_map(TxnOp::Txn)].boxed()
    };
    prop::collection::vec(op, 0..4).boxed()
}

fn txn_strategy(depth: u32) -> BoxedStrategy<Txn> {
    (prop::collection::vec(compare_strategy(), 0..2), ops(depth), ops(depth))
        .prop_map(|(compares, success, failure)| Txn { compares, success, failure })
        .boxed()
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => put_strategy().prop_map(Command::Put),
        3 => delete_strategy().prop_map(Command::DeleteRange),
        4 => txn_strategy(2).prop_map(Command::Txn),
        1 => (-1..30i64).prop_map(compact),
    ]
}
