//! Checks of a transaction that need no state (spec: etcd §1.6).
//!
//! Owns the limits on operations and the duplicate rule. Both holes of etcd's duplicate check are
//! closed here: an interval without an end counts, and nested siblings are compared in any order. A
//! deliberate divergence: a key that changed twice in one revision would break the promise of
//! streams.

use std::collections::BTreeMap;
use std::ops::Bound;

use thiserror::Error;

use headwater_types::limits::TXN_TREE_FACTOR;
use headwater_types::{KeyRange, Txn, TxnOp};

/// The reason for which a transaction cannot be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidTxn {
    /// More compares or operations in one list than the limit leaves at its depth, or in all lists
    /// together more than [`TXN_TREE_FACTOR`] times the limit.
    #[error("too many operations in txn request")]
    TooManyOps,
    /// A compare or an operation names no key.
    #[error("key is not provided")]
    EmptyKey,
    /// Two operations that may both run write one key, and at least one of them puts it.
    #[error("duplicate key given in txn request")]
    DuplicateKey,
}

/// Checks a transaction before it is proposed. One list may have at most `ops_max` compares or
/// operations; nested transactions get the rest.
///
/// # Errors
///
/// The first fault, in etcd's order: form first, list by list, then duplicates.
pub fn validate(txn: &Txn, ops_max: usize) -> Result<(), InvalidTxn> {
    check_form(txn, ops_max, &mut { TXN_TREE_FACTOR * ops_max })?;
    check_duplicates(txn)
}

/// Checks the lengths of lists and that keys are given. The longest list of a transaction counts
/// against `budget`, and nested transactions get the rest. `tree` is the remaining budget of all
/// lists together.
fn check_form(txn: &Txn, budget: usize, tree: &mut usize) -> Result<(), InvalidTxn> {
    let lens = [txn.compares.len(), txn.success.len(), txn.failure.len()];
    let longest = lens.into_iter().max().unwrap_or_default();
    let rest = budget.checked_sub(longest).ok_or(InvalidTxn::TooManyOps)?;
    *tree = tree.checked_sub(lens.iter().sum()).ok_or(InvalidTxn::TooManyOps)?;
    for compare in &txn.compares {
        check_key(&compare.range)?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            TxnOp::Range(query) => check_key(&query.range)?,
            TxnOp::DeleteRange(delete) => check_key(&delete.range)?,
            TxnOp::Put(put) if put.key.is_empty() => return Err(InvalidTxn::EmptyKey),
            TxnOp::Put(_) => {}
            TxnOp::Txn(inner) => check_form(inner, rest, tree)?,
        }
    }
    Ok(())
}

fn check_key(range: &KeyRange) -> Result<(), InvalidTxn> {
    if range.start().is_empty() { Err(InvalidTxn::EmptyKey) } else { Ok(()) }
}

/// Checks for every choice of lists that no key can change twice. Two deletions of a key are legal.
pub(super) fn check_duplicates(txn: &Txn) -> Result<(), InvalidTxn> {
    Writes::of_list(&txn.success)?;
    Writes::of_list(&txn.failure)?;
    Ok(())
}

/// The keys and intervals that a list or an operation may write, each with the index of its
/// operation in the list.
#[derive(Default)]
struct Writes<'t> {
    puts: BTreeMap<&'t [u8], usize>,
    deletes: Vec<(&'t KeyRange, usize)>,
}

impl<'t> Writes<'t> {
    /// The writes of a list. All its operations run, so no two of them may touch one key, unless
    /// both delete it.
    fn of_list(ops: &'t [TxnOp]) -> Result<Self, InvalidTxn> {
        let mut all = Self::default();
        for (at, op) in ops.iter().enumerate() {
            let writes = Self::of_op(op)?;
            for (key, _) in writes.puts {
                if all.puts.insert(key, at).is_some() {
                    return Err(InvalidTxn::DuplicateKey);
                }
            }
            all.deletes.extend(writes.deletes.into_iter().map(|(range, _)| (range, at)));
        }
        let conflict = |&(range, at): &(&KeyRange, usize)| all.puts_in(range).any(|put_at| put_at != at);
        if all.deletes.iter().any(conflict) {
            return Err(InvalidTxn::DuplicateKey);
        }
        Ok(all)
    }

    fn of_op(op: &'t TxnOp) -> Result<Self, InvalidTxn> {
        let mut writes = Self::default();
        match op {
            TxnOp::Range(_) => {}
            TxnOp::Put(put) => {
                writes.puts.insert(&put.key, 0);
            }
            TxnOp::DeleteRange(delete) => writes.deletes.push((&delete.range, 0)),
            // Only one of the two lists runs, so they may share keys.
            TxnOp::Txn(inner) => {
                for list in [&inner.success, &inner.failure] {
                    let branch = Self::of_list(list)?;
                    writes.puts.extend(branch.puts);
                    writes.deletes.extend(branch.deletes);
                }
            }
        }
        Ok(writes)
    }

    /// Indexes in the list of the operations that put a key of `range`.
    fn puts_in<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = usize> + 'a {
        let (start, end) = match range {
            KeyRange::One(key) => (Bound::Included(key.as_ref()), Bound::Included(key.as_ref())),
            KeyRange::Span { start, .. } if range.is_empty() => {
                (Bound::Included(start.as_ref()), Bound::Excluded(start.as_ref()))
            }
            KeyRange::Span { start, end } => (
                Bound::Included(start.as_ref()),
                end.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_ref())),
            ),
        };
        self.puts.range::<[u8], _>((start, end)).map(|(_, at)| *at)
    }
}
