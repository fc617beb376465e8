//! The part of a commit that concerns Consul's keys and sessions.

use super::cascade::cascade_with;
use super::draft::{Changes, Draft};
use super::kv;
use crate::catalog::CatalogEffect;
use crate::error::FsmError;
use crate::read_budget::ReadBudget;
use crate::writer::KvWriter;
use headwater_storage::StorageError;
use headwater_storage::state::StateReader;
use headwater_types::LogIndex;
use headwater_types::consul::{KvOp, TxnFaultReason};

/// Staged operations of a commit on Consul's keys and sessions.
pub(crate) struct CommitPart<'a, S> {
    draft: Draft<'a, S>,
    budget: ReadBudget,
}

impl<'a, S: StateReader> CommitPart<'a, S> {
    pub(crate) fn new(state: &'a S, index: LogIndex) -> Self {
        Self { draft: Draft::new(state, index), budget: ReadBudget::of_consul_command(false) }
    }

    /// Stages an operation on a key.
    pub(crate) fn run(&mut self, op: &KvOp) -> Result<Result<(), TxnFaultReason>, FsmError> {
        Ok(kv::run(&mut self.draft, op, &mut self.budget)?.map(drop))
    }

    /// Stages the end of a session, if there is one.
    pub(crate) fn end_session(&mut self, id: &str) -> Result<(), StorageError> {
        self.draft.end_session(id)
    }

    /// The staged changes, to be written.
    pub(crate) fn into_changes(self) -> PartChanges {
        PartChanges(self.draft.into_changes())
    }
}

/// Staged changes of a commit.
pub(crate) struct PartChanges(Changes);

impl PartChanges {
    /// Writes the changes, together with the effects of `effect` on sessions and deadlines.
    pub(crate) fn write(
        self,
        writer: &mut KvWriter<'_, '_>,
        index: LogIndex,
        effect: &CatalogEffect,
    ) -> Result<(), FsmError> {
        cascade_with(writer, index, self.0, effect).map(drop)
    }
}
