//! The part of a commit that concerns Consul's keys and sessions.
//!
//! Owns the rule that no end of a session meets another operation. The order of the calls is that
//! of the operations: checks, then writes, then ends. So checks see the state before the commit,
//! and ends find every path that was written.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::cascade::{dependants, update_deadlines};
use super::draft::{Changes, Draft};
use super::kv;
use crate::catalog::CatalogEffect;
use crate::error::FsmError;
use crate::read_budget::ReadBudget;
use crate::writer::KvWriter;
use headwater_storage::StorageError;
use headwater_storage::state::StateReader;
use headwater_types::LogIndex;
use headwater_types::commit::{CommitFault, CommitOpFault};
use headwater_types::consul::{KvOp, consul_key};

/// Staged operations of a commit on Consul's keys and sessions. The numbers are those of
/// operations.
pub(crate) struct CommitPart<'a, S> {
    state: &'a S,
    draft: Draft<'a, S>,
    budget: ReadBudget,
    /// Sessions that operations create, by id.
    created: BTreeMap<&'a str, u32>,
    /// Paths that operations write or remove, each with the number of the last such operation.
    named: BTreeMap<Bytes, u32>,
    /// Prefixes of paths that operations remove.
    trees: Vec<(&'a Bytes, u32)>,
    /// Paths that ended sessions have held, each with the operation that ended the session.
    held: BTreeMap<Bytes, u32>,
}

impl<'a, S: StateReader> CommitPart<'a, S> {
    /// A part without staged operations. `created` are the sessions that operations create.
    pub(crate) fn new(state: &'a S, index: LogIndex, created: BTreeMap<&'a str, u32>) -> Self {
        Self {
            state,
            draft: Draft::new(state, index),
            budget: ReadBudget::of_consul_command(false),
            created,
            named: BTreeMap::new(),
            trees: Vec::new(),
            held: BTreeMap::new(),
        }
    }

    /// Stages an operation on a key or a prefix. Returns a fault if it cannot be done.
    pub(crate) fn run(&mut self, number: u32, op: &'a KvOp) -> Result<Option<CommitFault>, FsmError> {
        if let Err(reason) = kv::run(&mut self.draft, op, &mut self.budget)? {
            return Ok(Some(CommitFault::Operation { operation: number, reason: CommitOpFault::Kv(reason) }));
        }
        if op.verb.is_about_prefix() {
            self.trees.push((&op.path, number));
        } else if !op.verb.is_read() {
            self.named.insert(op.path.clone(), number);
        }
        Ok(None)
    }

    /// Stages the end of a session, if there is one. Returns a fault if an operation creates the
    /// session, or writes or removes a path that it held.
    pub(crate) fn end_session(&mut self, number: u32, id: &str) -> Result<Option<CommitFault>, StorageError> {
        if let Some(other) = self.created.get(id) {
            return Ok(Some(CommitFault::same_entity(number, *other)));
        }
        for path in self.draft.end_session(id)? {
            let tree = || self.trees.iter().find(|(prefix, _)| path.starts_with(prefix));
            if let Some(other) = self.named.get(&path).or_else(|| Some(&tree()?.1)) {
                return Ok(Some(CommitFault::same_entity(number, *other)));
            }
            self.held.insert(path, number);
        }
        Ok(None)
    }

    /// Stages the ends of the sessions that depend on failed or removed checks or on removed nodes.
    /// Returns a fault as [`end_session`](Self::end_session) does.
    pub(crate) fn end_dependants(&mut self, effect: &CatalogEffect) -> Result<Option<CommitFault>, StorageError> {
        for (id, number) in dependants(self.state, effect)? {
            if let Some(fault) = self.end_session(number, &id)? {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    /// The staged changes, to be written.
    pub(crate) fn into_changes(self) -> PartChanges {
        let mut paths = self.named;
        paths.extend(self.held);
        let keys = paths.into_iter().map(|(path, number)| (consul_key(&path), number)).collect();
        PartChanges { changes: self.draft.into_changes(), keys }
    }
}

/// Staged changes of a commit.
pub(crate) struct PartChanges {
    changes: Changes,
    keys: BTreeMap<Bytes, u32>,
}

impl PartChanges {
    /// Writes the changes, together with the effects of `effect` on deadlines. Returns the keys
    /// that operations name, or that an ended session held; each with the number of the operation.
    pub(crate) fn write(
        self,
        writer: &mut KvWriter<'_, '_>,
        effect: &CatalogEffect,
    ) -> Result<BTreeMap<Bytes, u32>, FsmError> {
        update_deadlines(writer, effect)?;
        self.changes.write(writer)?;
        Ok(self.keys)
    }
}
