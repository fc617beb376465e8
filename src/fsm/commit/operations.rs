//! The operations of a commit, each by the rule of its face.
//!
//! Owns their order. What others may build on comes first: leases are granted, then the catalog
//! changes, sessions are created, Consul's keys are checked and written, and sessions end; then
//! etcd's keys are written and leases revoked, then resources change in the order of the request.
//! Operations on the catalog, on Consul's keys and the ends of sessions are staged together,
//! because a row and an event must have all changes of the commit. Invariant: no record is written
//! twice, also not by the consequences of operations; such a commit fails and names two operations.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::nodes;
use crate::catalog::{CatalogEffect, CatalogTxn};
use crate::consul::{CommitPart, create_session};
use crate::error::{FsmError, split_refusal};
use crate::read_budget::ReadBudget;
use crate::writer::KvWriter;
use crate::{catalog, delete_range, lease_end, lease_grant, put, range, resource};
use headwater_storage::state::{NEWEST, StateReader, Table, WriteTxn, WrittenTwice};
use headwater_types::commit::{CommitFault, CommitOp, CommitResult, FaceOp};
use headwater_types::resource::ResourceOutcome;
use headwater_types::{DeleteRange, KeyRange, LogIndex, Outcome, Put, RangeQuery, Refusal};

/// Results of the operations, or the reason for which the commit fails.
type Done = Result<Vec<CommitResult>, CommitFault>;

/// Runs the operations of the commit at `index`. After a fault the transaction must be rolled back.
pub(super) fn run(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    operations: &[CommitOp],
    want: bool,
) -> Result<Done, FsmError> {
    let mut run = Run {
        writer: KvWriter::new(txn),
        index,
        want,
        budget: ReadBudget::of_txn(),
        results: operations.iter().map(|_| None).collect(),
        parts: Vec::new(),
        staged: BTreeMap::new(),
    };
    let fault = run.all(operations)?;
    let Run { writer, results, .. } = run;
    if let Some(fault) = fault {
        return Ok(Err(fault));
    }
    writer.finish();
    Ok(Ok(results.into_iter().flatten().collect()))
}

struct Run<'t, 'db> {
    writer: KvWriter<'t, 'db>,
    index: LogIndex,
    want: bool,
    budget: ReadBudget,
    results: Vec<Option<CommitResult>>,
    /// The steps so far: the number of records that the command had written at the end of each, and
    /// the number of its operation.
    parts: Vec<(u32, u32)>,
    /// Keys that staged operations name, or that an ended session held; each with the number of the
    /// operation.
    staged: BTreeMap<Bytes, u32>,
}

/// The operations with their numbers.
fn numbered(operations: &[CommitOp]) -> impl Iterator<Item = (u32, FaceOp<'_>)> {
    (0u32..).zip(operations).map(|(number, operation)| (number, operation.of_face()))
}

impl Run<'_, '_> {
    /// Runs all operations. Returns the first fault; `None` if the commit is done.
    fn all(&mut self, operations: &[CommitOp]) -> Result<Option<CommitFault>, FsmError> {
        for phase in [Self::grants, Self::staged, Self::keys, Self::revocations, Self::resources] {
            if let Some(fault) = phase(self, operations)? {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    /// Runs one operation, and stores its result. The fault is its refusal, or a record that is
    /// written twice.
    fn one(
        &mut self,
        number: u32,
        run: impl FnOnce(&mut Self) -> Result<CommitResult, FsmError>,
    ) -> Result<Option<CommitFault>, FsmError> {
        let done = run(self);
        match split_refusal(done)? {
            Ok(result) => {
                self.results[number as usize] = Some(result);
                Ok(self.end_part(number))
            }
            Err(refusal) => Ok(Some(fault(number, refusal))),
        }
    }

    /// Ends a step of the operation `number`. The fault names the two operations that wrote one
    /// record; `None` if there are none.
    fn end_part(&mut self, number: u32) -> Option<CommitFault> {
        self.parts.push((self.writer.txn.written(), number));
        let WrittenTwice { first, second } = self.writer.txn.written_twice()?;
        let operation = |position| self.parts[self.parts.partition_point(|(end, _)| *end < position)].1;
        Some(CommitFault::same_entity(operation(first), operation(second)))
    }

    /// The fault of the operation `number`, if a staged operation concerns a key of its `range`,
    /// too.
    fn meets_staged(&self, number: u32, range: &KeyRange) -> Option<CommitFault> {
        let (_, other) =
            self.staged.range::<Bytes, _>(range.start()..).next().filter(|(key, _)| range.contains(key))?;
        Some(CommitFault::same_entity(number, *other))
    }

    fn grants(&mut self, operations: &[CommitOp]) -> Result<Option<CommitFault>, FsmError> {
        for (number, operation) in numbered(operations) {
            let FaceOp::LeaseGrant(grant) = operation else { continue };
            let fault = self.one(number, |run| match lease_grant::apply(run.writer.txn, run.index, grant)? {
                Outcome::LeaseGranted { ttl_seconds } => Ok(CommitResult::LeaseGranted { id: grant.id, ttl_seconds }),
                other => unreachable!("invariant: a grant does not come to {other:?}"),
            })?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        Ok(None)
    }

    /// Runs the operations on the catalog, then those on sessions and Consul's keys, which depend
    /// on it.
    fn staged(&mut self, operations: &[CommitOp]) -> Result<Option<CommitFault>, FsmError> {
        let is_staged = |operation: &FaceOp<'_>| match operation {
            FaceOp::Catalog(_) | FaceOp::ConsulKv(_) | FaceOp::SessionDestroy(_) => true,
            FaceOp::Put(_)
            | FaceOp::DeleteRange(_)
            | FaceOp::LeaseGrant(_)
            | FaceOp::LeaseRevoke(_)
            | FaceOp::Resource(_)
            | FaceOp::SessionCreate(_) => false,
        };
        let first = numbered(operations).find(|(_, operation)| is_staged(operation)).map(|(number, _)| number);
        let effect = match self.catalog(operations)? {
            Ok(effect) => effect,
            Err(fault) => return Ok(Some(fault)),
        };
        if let Some(fault) = first.and_then(|first| self.end_part(first)) {
            return Ok(Some(fault));
        }
        let mut created = BTreeMap::new();
        for (number, operation) in numbered(operations) {
            let FaceOp::SessionCreate(create) = operation else { continue };
            created.insert(create.session.id.as_str(), number);
            let fault = self.one(number, |run| {
                create_session(&mut run.writer, run.index, create)?;
                Ok(CommitResult::SessionCreated { id: create.session.id.clone() })
            })?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        let Some(first) = first else { return Ok(None) };
        let mut part = CommitPart::new(&*self.writer.txn, self.index, created);
        for are_checks in [true, false] {
            for (number, operation) in numbered(operations) {
                let FaceOp::ConsulKv(op) = operation else { continue };
                if op.verb.is_read() != are_checks {
                    continue;
                }
                if let Some(fault) = part.run(number, op)? {
                    return Ok(Some(fault));
                }
                self.results[number as usize] = Some(CommitResult::ConsulKv);
            }
        }
        for (number, operation) in numbered(operations) {
            let FaceOp::SessionDestroy(id) = operation else { continue };
            if let Some(fault) = part.end_session(number, id)? {
                return Ok(Some(fault));
            }
            self.results[number as usize] = Some(CommitResult::SessionDestroyed);
        }
        if let Some(fault) = part.end_dependants(&effect)? {
            return Ok(Some(fault));
        }
        self.staged = part.into_changes().write(&mut self.writer, &effect)?;
        Ok(self.end_part(first))
    }

    fn catalog(&mut self, operations: &[CommitOp]) -> Result<Result<CatalogEffect, CommitFault>, FsmError> {
        if !numbered(operations).any(|(_, operation)| matches!(operation, FaceOp::Catalog(_))) {
            return Ok(Ok(CatalogEffect::default()));
        }
        if let Some(fault) = nodes::conflict(self.writer.txn, operations)? {
            return Ok(Err(fault));
        }
        let mut rows = CatalogTxn::new(self.writer.txn, self.index);
        for step in catalog::Step::ALL {
            for (number, operation) in numbered(operations) {
                let FaceOp::Catalog(command) = operation else { continue };
                rows.begin_operation(number);
                if let Err(refusal) = split_refusal(catalog::stage_step(&mut rows, step, command))? {
                    return Ok(Err(fault(number, refusal)));
                }
            }
        }
        let effect = rows.finish()?;
        for (number, operation) in numbered(operations) {
            if matches!(operation, FaceOp::Catalog(_)) {
                self.results[number as usize] = Some(CommitResult::Catalog { changed: effect.changed });
            }
        }
        Ok(Ok(effect))
    }

    fn keys(&mut self, operations: &[CommitOp]) -> Result<Option<CommitFault>, FsmError> {
        for (number, operation) in numbered(operations) {
            let fault = match operation {
                FaceOp::Put(put) => match self.meets_staged(number, &KeyRange::One(put.key.clone())) {
                    None => self.one(number, |run| run.put(put))?,
                    met => met,
                },
                FaceOp::DeleteRange(delete) => match self.meets_staged(number, &delete.range) {
                    None => self.one(number, |run| run.delete_range(delete))?,
                    met => met,
                },
                FaceOp::LeaseGrant(_)
                | FaceOp::LeaseRevoke(_)
                | FaceOp::Resource(_)
                | FaceOp::Catalog(_)
                | FaceOp::ConsulKv(_)
                | FaceOp::SessionCreate(_)
                | FaceOp::SessionDestroy(_) => None,
            };
            if fault.is_some() {
                return Ok(fault);
            }
        }
        Ok(None)
    }

    fn put(&mut self, put: &Put) -> Result<CommitResult, FsmError> {
        if put.prev_kv {
            let stored = self.writer.txn.lookup(Table::Kv, &put.key, NEWEST)?;
            let len = stored.map_or(0, |version| version.value_len as usize);
            check_fits(self.budget.take_result(put.key.len() + len))?;
        }
        let done = put::apply(&mut self.writer, put, self.want)?;
        Ok(CommitResult::Put { prev: done.prev })
    }

    fn delete_range(&mut self, delete: &DeleteRange) -> Result<CommitResult, FsmError> {
        if delete.prev_kv {
            let query = RangeQuery::new(delete.range.clone());
            check_fits(range::try_charge(&*self.writer.txn, &query, &mut self.budget)?)?;
        }
        let done = delete_range::run(&mut self.writer, delete, self.want)?;
        Ok(CommitResult::Deleted { deleted: done.deleted, prev: done.prev })
    }

    fn revocations(&mut self, operations: &[CommitOp]) -> Result<Option<CommitFault>, FsmError> {
        for (number, operation) in numbered(operations) {
            let FaceOp::LeaseRevoke(revoke) = operation else { continue };
            // A key that an operation left as it was is still attached.
            let ends = if self.staged.is_empty() { Vec::new() } else { self.writer.txn.lease_keys(revoke.id)? };
            if let Some(other) = ends.iter().find_map(|key| self.staged.get(key)) {
                return Ok(Some(CommitFault::same_entity(number, *other)));
            }
            let fault = self.one(number, |run| match lease_end::revoke(&mut run.writer, revoke)? {
                Outcome::LeaseEnded { deleted } => Ok(CommitResult::LeaseRevoked { deleted }),
                other => unreachable!("invariant: a revocation does not come to {other:?}"),
            })?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        Ok(None)
    }

    fn resources(&mut self, operations: &[CommitOp]) -> Result<Option<CommitFault>, FsmError> {
        for (number, operation) in numbered(operations) {
            let FaceOp::Resource(command) = operation else { continue };
            let fault = self.one(number, |run| match resource::apply(run.writer.txn, run.index, command, true)? {
                Outcome::Resource(ResourceOutcome::Written(written)) => Ok(CommitResult::ResourceWritten(written)),
                Outcome::Resource(ResourceOutcome::Deleted(deletion)) => Ok(CommitResult::ResourceDeleted(deletion)),
                other => unreachable!("invariant: a write of a resource does not come to {other:?}"),
            })?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        Ok(None)
    }
}

fn fault(operation: u32, refusal: Refusal) -> CommitFault {
    CommitFault::Operation { operation, reason: refusal.into() }
}

fn check_fits(fits: bool) -> Result<(), FsmError> {
    if fits { Ok(()) } else { Err(Refusal::TooMuchRead.into()) }
}
