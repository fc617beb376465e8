//! Evaluates compares, then runs one of two lists of operations (spec: etcd §1.6).
//!
//! In three steps that do not overlap: decide all compares, nested ones too, against the state
//! before; check everything on the chosen path that could refuse it; only then write. The reads of
//! compares must fit one [`Room`], the results of ranges and previous pairs another. Every member
//! computes both, also if the outcome is not wanted. Invariant: a refused transaction has written
//! nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::put;
use super::range;
use super::room::Room;
use super::stop::{Stop, settle};
use super::validate::check_duplicates;
use super::writer::Writer;
use super::{delete_range, validate::InvalidTxn};
use headwater_storage::StorageError;
use headwater_storage::state::{NEWEST, ReadView, StateReader, Table, Version};
use headwater_types::{
    Compare, CompareOp, CompareTarget, KeyRange, RangeQuery, Ranged, ReadAt, Refusal, Txn, TxnDone, TxnOp, TxnOpDone,
    ValueChoice,
};

/// Values that a compare loads at a time, count.
const COMPARE_BATCH: usize = 256;

/// Which list runs, and the paths of the transactions nested in it, in order.
struct Path {
    succeeded: bool,
    nested: Vec<Self>,
}

impl Path {
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
    settle(read(view, txn))
}

fn read(view: &ReadView<'_>, txn: &Txn) -> Result<TxnDone, Stop> {
    let path = decide(view, txn, &mut Room::of_txn())?;
    check_ranges(view, txn, &path)?;
    check_told(view, txn, &path)?;
    let mut responses = Vec::with_capacity(path.ops(txn).len());
    for op in path.ops(txn) {
        if let TxnOp::Range(query) = op {
            let result = range::run(view, query)?;
            responses.push(TxnOpDone::Range(Ranged { revision: view.revision(), result }));
        }
    }
    Ok(TxnDone { succeeded: path.succeeded, responses })
}

/// Applies a replicated transaction.
pub(super) fn apply(writer: &mut Writer<'_, '_>, txn: &Txn, want: bool) -> Result<TxnDone, Stop> {
    check_legal(txn)?;
    let path = decide(&*writer.txn, txn, &mut Room::of_txn())?;
    check_puts(writer, txn, &path)?;
    check_ranges(&*writer.txn, txn, &path)?;
    check_told(&*writer.txn, txn, &path)?;
    writer.txn.count(|done| done.txns += 1);
    match execute(writer, txn, &path, want) {
        Err(Stop::Refused(refusal)) => unreachable!("invariant: checked before anything was written: {refusal}"),
        result => result,
    }
}

/// Refuses a key that changes twice. The proposer has checked it; a violation would break streams
/// for ever, so it is checked again.
pub(super) fn check_legal(txn: &Txn) -> Result<(), Stop> {
    match check_duplicates(txn) {
        Err(InvalidTxn::DuplicateKey) => Err(Refusal::DuplicateKey.into()),
        Err(InvalidTxn::TooManyOps | InvalidTxn::EmptyKey) | Ok(()) => Ok(()),
    }
}

/// Whether the compares hold, and the operations that will run, in order, with the operations of
/// nested transactions in the place of these.
pub(super) fn chosen(writer: &Writer<'_, '_>, txn: &Txn) -> Result<(bool, Vec<TxnOp>), Stop> {
    let path = decide(&*writer.txn, txn, &mut Room::of_txn())?;
    let mut ops = Vec::new();
    each_op(txn, &path, &mut |op| {
        ops.push(op.clone());
        Ok(())
    })?;
    Ok((path.succeeded, ops))
}

fn decide(state: &impl StateReader, txn: &Txn, room: &mut Room) -> Result<Path, Stop> {
    let mut succeeded = true;
    for compare in &txn.compares {
        if !holds(state, compare, room)? {
            succeeded = false;
            break;
        }
    }
    let mut path = Path { succeeded, nested: Vec::new() };
    for op in path.ops(txn) {
        if let TxnOp::Txn(inner) = op {
            path.nested.push(decide(state, inner, room)?);
        }
    }
    Ok(path)
}

/// Visits the operations that will run, in order, those of nested transactions included. The nested
/// transactions themselves are not visited.
fn each_op<'t>(txn: &'t Txn, path: &Path, visit: &mut impl FnMut(&'t TxnOp) -> Result<(), Stop>) -> Result<(), Stop> {
    let mut nested = path.nested.iter();
    for op in path.ops(txn) {
        match op {
            TxnOp::Txn(inner) => each_op(inner, nested.next().expect("invariant: decided"), visit)?,
            TxnOp::Range(_) | TxnOp::Put(_) | TxnOp::DeleteRange(_) => visit(op)?,
        }
    }
    Ok(())
}

fn check_puts(writer: &Writer<'_, '_>, txn: &Txn, path: &Path) -> Result<(), Stop> {
    each_op(txn, path, &mut |op| match op {
        TxnOp::Put(put) => {
            put::check_present(writer, put)?;
            put::check_lease(writer, put)
        }
        TxnOp::Range(_) | TxnOp::DeleteRange(_) | TxnOp::Txn(_) => Ok(()),
    })
}

fn check_ranges(state: &impl StateReader, txn: &Txn, path: &Path) -> Result<(), Stop> {
    each_op(txn, path, &mut |op| match op {
        TxnOp::Range(query) => Ok(range::check(state.head(), query.at)?),
        TxnOp::Put(_) | TxnOp::DeleteRange(_) | TxnOp::Txn(_) => Ok(()),
    })
}

/// Refuses a transaction with too large a result, from versions alone. A range is measured on the
/// state before the transaction: keys put by earlier operations count in addition, and keys deleted
/// by them still count.
fn check_told(state: &impl StateReader, txn: &Txn, path: &Path) -> Result<(), Stop> {
    let mut room = Room::of_txn();
    let mut puts = BTreeMap::<Bytes, usize>::new();
    each_op(txn, path, &mut |op| {
        let fits = match op {
            TxnOp::Range(query) => {
                let sees_puts = query.at == ReadAt::Current;
                let mut put = puts.iter().filter(|(key, _)| sees_puts && query.range.contains(key));
                range::fits(state, query, &mut room)? && put.all(|(key, len)| room.tell(key.len() + len))
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
                !put.prev_kv || room.tell(put.key.len() + stored)
            }
            TxnOp::DeleteRange(delete) if delete.prev_kv => {
                range::fits(state, &RangeQuery::new(delete.range.clone()), &mut room)?
            }
            TxnOp::DeleteRange(_) | TxnOp::Txn(_) => true,
        };
        check_fits(fits)
    })
}

fn execute(writer: &mut Writer<'_, '_>, txn: &Txn, path: &Path, want: bool) -> Result<TxnDone, Stop> {
    let ops = path.ops(txn);
    let ranges = ops.iter().filter(|op| matches!(op, TxnOp::Range(_))).count() as u64;
    writer.txn.count(|done| done.ranges += ranges);
    let mut nested = path.nested.iter();
    let mut responses = Vec::with_capacity(if want { ops.len() } else { 0 });
    for op in ops {
        let done = match op {
            // An unwanted result is not computed: a range has no effect on the state.
            TxnOp::Range(_) if !want => continue,
            TxnOp::Range(query) => {
                let result = range::run(&*writer.txn, query)?;
                TxnOpDone::Range(Ranged { revision: writer.revision(), result })
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
    Ok(TxnDone { succeeded: path.succeeded, responses })
}

/// Whether every live key of the interval satisfies the compare; an interval without any is
/// compared once as an absent key.
fn holds(state: &impl StateReader, compare: &Compare, room: &mut Room) -> Result<bool, Stop> {
    match &compare.target {
        CompareTarget::Value(given) => {
            values_hold(state, &compare.range, room, |value| satisfies(compare.op, value.cmp(given.as_ref())))
        }
        CompareTarget::Version(given) => numbers_hold(state, compare, room, *given, |version| version.version),
        CompareTarget::CreateRevision(given) => {
            numbers_hold(state, compare, room, *given, |version| version.create_revision.get())
        }
        CompareTarget::ModRevision(given) => {
            numbers_hold(state, compare, room, *given, |version| version.mod_revision.get())
        }
        CompareTarget::Lease(given) => numbers_hold(state, compare, room, *given, |version| version.lease.get()),
    }
}

fn numbers_hold(
    state: &impl StateReader,
    compare: &Compare,
    room: &mut Room,
    given: i64,
    field: impl Fn(&Version) -> i64,
) -> Result<bool, Stop> {
    let test = |stored: i64| satisfies(compare.op, stored.cmp(&given));
    let (mut any, mut all, mut fits) = (false, true, true);
    range::visit(state, &compare.range, NEWEST, |_, version| {
        any = true;
        all = test(field(&version));
        fits = room.look(0);
        all && fits
    })?;
    check_fits(fits)?;
    Ok(if any { all } else { test(0) })
}

fn values_hold(
    state: &impl StateReader,
    range: &KeyRange,
    room: &mut Room,
    test: impl Fn(&[u8]) -> bool,
) -> Result<bool, Stop> {
    let (mut versions, mut fits) = (Vec::new(), true);
    range::visit(state, range, NEWEST, |_, version| {
        versions.push(version);
        fits = room.look(version.value_len as usize);
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

fn check_fits(fits: bool) -> Result<(), Stop> {
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
