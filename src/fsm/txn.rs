//! Evaluates compares, then runs one of two lists of operations (spec: etcd §1.6).
//!
//! In three steps that do not overlap: decide all compares, nested ones too, against the state
//! before; check everything in the chosen lists that could refuse it; only then write. The reads of
//! compares must fit one [`ReadBudget`], the results of ranges and previous pairs another. Every
//! member computes both, also if the outcome is not wanted. Invariant: a refused transaction has
//! written nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::error::{FsmError, split_refusal};
use super::put;
use super::range;
use super::read_budget::ReadBudget;
use super::validate::check_duplicates;
use super::writer::KvWriter;
use super::{delete_range, validate::InvalidTxn};
use headwater_storage::StorageError;
use headwater_storage::state::{NEWEST, ReadView, StateReader, Table, Version};
use headwater_types::{
    Compare, CompareOp, CompareTarget, KeyRange, RangeDone, RangeQuery, ReadAt, Refusal, Txn, TxnDone, TxnOp,
    TxnOpDone, ValueChoice,
};

/// Values that a compare loads at a time, count.
const COMPARE_BATCH: usize = 256;

/// The result of a transaction's compares, and those of the transactions nested in the chosen list,
/// in order.
struct Branch {
    succeeded: bool,
    nested: Vec<Self>,
}

impl Branch {
    fn ops<'t>(&self, txn: &'t Txn) -> &'t [TxnOp] {
        if self.succeeded { &txn.success } else { &txn.failure }
    }
}

/// Evaluates a transaction that changes nothing ([`Txn::is_read_only`]).
///
/// # Errors
///
/// The outer one if the disk failed, the inner one if a requested revision cannot be read or the
/// transaction reads too much.
///
/// # Panics
///
/// If the transaction could change something: it has to be replicated.
pub fn read_txn(view: &ReadView<'_>, txn: &Txn) -> Result<Result<TxnDone, Refusal>, StorageError> {
    assert!(txn.is_read_only(), "invariant: what may write is replicated");
    split_refusal(read(view, txn))
}

fn read(view: &ReadView<'_>, txn: &Txn) -> Result<TxnDone, FsmError> {
    let branch = decide(view, txn, &mut ReadBudget::of_txn())?;
    check_ranges(view, txn, &branch)?;
    check_result_size(view, txn, &branch)?;
    let mut responses = Vec::with_capacity(branch.ops(txn).len());
    for op in branch.ops(txn) {
        if let TxnOp::Range(query) = op {
            let result = range::run(view, query)?;
            responses.push(TxnOpDone::Range(RangeDone { revision: view.revision(), result }));
        }
    }
    Ok(TxnDone { succeeded: branch.succeeded, responses })
}

/// Applies a replicated transaction. A refusal is an error ([`FsmError::Refused`]), and nothing is
/// written then. Without `want` the result has no values.
pub(super) fn apply(writer: &mut KvWriter<'_, '_>, txn: &Txn, want: bool) -> Result<TxnDone, FsmError> {
    check_legal(txn)?;
    let branch = decide(&*writer.txn, txn, &mut ReadBudget::of_txn())?;
    check_puts(writer, txn, &branch)?;
    check_ranges(&*writer.txn, txn, &branch)?;
    check_result_size(&*writer.txn, txn, &branch)?;
    writer.txn.count(|done| done.txns += 1);
    match execute(writer, txn, &branch, want) {
        Err(FsmError::Refused(refusal)) => unreachable!("invariant: checked before anything was written: {refusal}"),
        result => result,
    }
}

/// Refuses ([`Refusal::DuplicateKey`]) a transaction that could change a key twice. Two deletions
/// of a key are legal. The proposer has checked it; a violation would break streams for ever.
pub(super) fn check_legal(txn: &Txn) -> Result<(), FsmError> {
    match check_duplicates(txn) {
        Err(InvalidTxn::DuplicateKey) => Err(Refusal::DuplicateKey.into()),
        Err(InvalidTxn::TooManyOps | InvalidTxn::EmptyKey) | Ok(()) => Ok(()),
    }
}

/// Whether the compares hold, and the operations that will run, in order. The operations of a
/// nested transaction replace it.
pub(super) fn chosen(writer: &KvWriter<'_, '_>, txn: &Txn) -> Result<(bool, Vec<TxnOp>), FsmError> {
    let branch = decide(&*writer.txn, txn, &mut ReadBudget::of_txn())?;
    let mut ops = Vec::new();
    each_op(txn, &branch, &mut |op| {
        ops.push(op.clone());
        Ok(())
    })?;
    Ok((branch.succeeded, ops))
}

fn decide(state: &impl StateReader, txn: &Txn, budget: &mut ReadBudget) -> Result<Branch, FsmError> {
    let mut succeeded = true;
    for compare in &txn.compares {
        if !holds(state, compare, budget)? {
            succeeded = false;
            break;
        }
    }
    let mut branch = Branch { succeeded, nested: Vec::new() };
    for op in branch.ops(txn) {
        if let TxnOp::Txn(inner) = op {
            branch.nested.push(decide(state, inner, budget)?);
        }
    }
    Ok(branch)
}

/// Visits the operations that will run, in order, those of nested transactions included. The nested
/// transactions themselves are not visited.
fn each_op<'t>(
    txn: &'t Txn,
    branch: &Branch,
    visit: &mut impl FnMut(&'t TxnOp) -> Result<(), FsmError>,
) -> Result<(), FsmError> {
    let mut nested = branch.nested.iter();
    for op in branch.ops(txn) {
        match op {
            TxnOp::Txn(inner) => each_op(inner, nested.next().expect("invariant: decided"), visit)?,
            TxnOp::Range(_) | TxnOp::Put(_) | TxnOp::DeleteRange(_) => visit(op)?,
        }
    }
    Ok(())
}

fn check_puts(writer: &KvWriter<'_, '_>, txn: &Txn, branch: &Branch) -> Result<(), FsmError> {
    each_op(txn, branch, &mut |op| match op {
        TxnOp::Put(put) => {
            put::check_present(writer, put)?;
            put::check_lease(writer, put)
        }
        TxnOp::Range(_) | TxnOp::DeleteRange(_) | TxnOp::Txn(_) => Ok(()),
    })
}

fn check_ranges(state: &impl StateReader, txn: &Txn, branch: &Branch) -> Result<(), FsmError> {
    each_op(txn, branch, &mut |op| match op {
        TxnOp::Range(query) => Ok(range::check(state.head(), query.at)?),
        TxnOp::Put(_) | TxnOp::DeleteRange(_) | TxnOp::Txn(_) => Ok(()),
    })
}

/// Refuses a transaction with too large a result, from versions alone. A range is measured on the
/// state before the transaction: keys put by earlier operations count in addition, and keys deleted
/// by them still count.
fn check_result_size(state: &impl StateReader, txn: &Txn, branch: &Branch) -> Result<(), FsmError> {
    let mut budget = ReadBudget::of_txn();
    let mut puts = BTreeMap::<Bytes, usize>::new();
    each_op(txn, branch, &mut |op| {
        let fits = match op {
            TxnOp::Range(query) => {
                let sees_puts = query.at == ReadAt::Current;
                let mut put = puts.iter().filter(|(key, _)| sees_puts && query.range.contains(key));
                range::try_charge(state, query, &mut budget)?
                    && put.all(|(key, len)| budget.take_result(key.len() + len))
            }
            TxnOp::Put(put) => {
                let stored = match put.prev_kv || put.value == ValueChoice::Keep {
                    true => state.lookup(Table::Kv, &put.key, NEWEST)?.map_or(0, |version| version.value_len as usize),
                    false => 0,
                };
                let len = match &put.value {
                    ValueChoice::Set(value) => value.len(),
                    ValueChoice::Keep => stored,
                };
                puts.insert(put.key.clone(), len);
                !put.prev_kv || budget.take_result(put.key.len() + stored)
            }
            TxnOp::DeleteRange(delete) if delete.prev_kv => {
                range::try_charge(state, &RangeQuery::new(delete.range.clone()), &mut budget)?
            }
            TxnOp::DeleteRange(_) | TxnOp::Txn(_) => true,
        };
        check_fits(fits)
    })
}

fn execute(writer: &mut KvWriter<'_, '_>, txn: &Txn, branch: &Branch, want: bool) -> Result<TxnDone, FsmError> {
    let ops = branch.ops(txn);
    let ranges = ops.iter().filter(|op| matches!(op, TxnOp::Range(_))).count() as u64;
    writer.txn.count(|done| done.ranges += ranges);
    let mut nested = branch.nested.iter();
    let mut responses = Vec::with_capacity(if want { ops.len() } else { 0 });
    for op in ops {
        let done = match op {
            // An unwanted result is not computed: a range has no effect on the state.
            TxnOp::Range(_) if !want => continue,
            TxnOp::Range(query) => {
                let result = range::run(&*writer.txn, query)?;
                TxnOpDone::Range(RangeDone { revision: writer.revision(), result })
            }
            TxnOp::Put(put) => TxnOpDone::Put(put::run(writer, put, want)?),
            TxnOp::DeleteRange(delete) => TxnOpDone::DeleteRange(delete_range::run(writer, delete, want)?),
            TxnOp::Txn(inner) => {
                TxnOpDone::Txn(execute(writer, inner, nested.next().expect("invariant: decided"), want)?)
            }
        };
        if want {
            responses.push(done);
        }
    }
    Ok(TxnDone { succeeded: branch.succeeded, responses })
}

/// Whether every live key of the interval satisfies the compare; an interval without any is
/// compared once as an absent key: all its numbers are 0. No compare of values holds for an absent
/// key.
pub(super) fn holds(state: &impl StateReader, compare: &Compare, budget: &mut ReadBudget) -> Result<bool, FsmError> {
    match &compare.target {
        CompareTarget::Value(given) => {
            values_hold(state, &compare.range, budget, |value| satisfies(compare.op, value.cmp(given.as_ref())))
        }
        CompareTarget::Version(given) => numbers_hold(state, compare, budget, *given, |version| version.version),
        CompareTarget::CreateRevision(given) => {
            numbers_hold(state, compare, budget, *given, |version| version.create_revision.get())
        }
        CompareTarget::ModRevision(given) => {
            numbers_hold(state, compare, budget, *given, |version| version.mod_revision.get())
        }
        CompareTarget::Lease(given) => numbers_hold(state, compare, budget, *given, |version| version.lease.get()),
    }
}

fn numbers_hold(
    state: &impl StateReader,
    compare: &Compare,
    budget: &mut ReadBudget,
    given: i64,
    field: impl Fn(&Version) -> i64,
) -> Result<bool, FsmError> {
    let test = |stored: i64| satisfies(compare.op, stored.cmp(&given));
    let (mut any, mut all, mut fits) = (false, true, true);
    range::visit(state, &compare.range, NEWEST, |_, version| {
        any = true;
        all = test(field(&version));
        fits = budget.take_read(0);
        all && fits
    })?;
    check_fits(fits)?;
    Ok(if any { all } else { test(0) })
}

fn values_hold(
    state: &impl StateReader,
    range: &KeyRange,
    budget: &mut ReadBudget,
    test: impl Fn(&[u8]) -> bool,
) -> Result<bool, FsmError> {
    let (mut versions, mut fits) = (Vec::new(), true);
    range::visit(state, range, NEWEST, |_, version| {
        versions.push(version);
        fits = budget.take_read(version.value_len as usize);
        fits
    })?;
    check_fits(fits)?;
    for batch in versions.chunks(COMPARE_BATCH) {
        if !state.load(batch)?.iter().all(|record| test(&record.kv.value)) {
            return Ok(false);
        }
    }
    // An absent key has no value, so no comparison holds.
    Ok(!versions.is_empty())
}

fn check_fits(fits: bool) -> Result<(), FsmError> {
    if fits { Ok(()) } else { Err(Refusal::TooMuchRead.into()) }
}

/// Whether the ordering of the stored value to the given one satisfies the operator.
fn satisfies(op: CompareOp, stored: Ordering) -> bool {
    match op {
        CompareOp::Equal => stored.is_eq(),
        CompareOp::Greater => stored.is_gt(),
        CompareOp::Less => stored.is_lt(),
        CompareOp::NotEqual => stored.is_ne(),
    }
}
