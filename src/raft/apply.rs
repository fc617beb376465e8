//! Applies one log entry to the state. Used by a running member for each committed entry, and by
//! salvage for the entries that the state on disk lacks.
//!
//! Passes each command to `fsm` and depends on no kind of command. After an error the transaction
//! must be dropped.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::membership;
use super::roster::member_events;
use super::types::{StoredMembership, log_id};
use headwater_proto::codec::raft::RecordKind;
use headwater_proto::codec::{self, CodecError};
use headwater_storage::log::LogRecord;
use headwater_storage::{AppliedState, StateReader, StateStore, StorageError, WriteTxn};
use headwater_types::{Authorship, Feature, LogIndex, NodeId, Outcome, Term};

/// A log entry that this member cannot apply.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// This program cannot decode the command or the membership of the entry, or the membership of
    /// the state to which the entry was to be applied.
    #[error("log entry {index} cannot be applied: {error}")]
    Undecodable {
        /// Log index of the entry.
        index: LogIndex,
        /// The reason.
        error: CodecError,
    },
    /// The state could not be read or written, or would rise to a version that this program does
    /// not support.
    #[error("log entry {index} was not applied: {error}")]
    State {
        /// Log index of the entry.
        index: LogIndex,
        /// The reason.
        error: StorageError,
    },
}

impl ApplyError {
    /// Log index of the entry that could not be applied.
    pub fn index(&self) -> LogIndex {
        match self {
            Self::Undecodable { index, .. } | Self::State { index, .. } => *index,
        }
    }
}

/// An applied command, for its proposer and for metrics.
pub(super) struct AppliedCommand {
    pub(super) outcome: Outcome,
    /// Kind of the command (`Command::kind`), whether it was accepted, and the time that its
    /// apply took. `None` if no command ran: the entry is blank, was skipped, or needs a newer
    /// version than the cluster's.
    pub(super) measured: Option<(usize, bool, Duration)>,
}

/// Applies `command`, the content of the log entry of `term` at `index`. The outcome is
/// [`Outcome::Nothing`] for an empty command, for an unknown one that is marked as skippable, and
/// if `want_outcome` is false.
pub(super) fn apply_command(
    txn: &mut WriteTxn<'_>,
    term: Term,
    index: LogIndex,
    command: Bytes,
    want_outcome: bool,
) -> Result<AppliedCommand, ApplyError> {
    let unmeasured = |outcome| AppliedCommand { outcome, measured: None };
    // An empty command is a blank entry that a follower proposed (`stalled`).
    let Some(needs) = codec::proposal_needs(&command) else { return Ok(unmeasured(Outcome::Nothing)) };
    if needs > txn.head().version.version {
        return Ok(unmeasured(headwater_fsm::refuse_newer(txn, index, needs, want_outcome)));
    }
    let proposal =
        codec::decode_proposal(command, txn.supported()).map_err(|error| ApplyError::Undecodable { index, error })?;
    // A newer version marked it as safe to skip.
    let Some(proposal) = proposal else { return Ok(unmeasured(Outcome::Nothing)) };
    let (began, refused) = (Instant::now(), txn.operations().refused);
    let outcome = headwater_fsm::apply(txn, term, index, &proposal, want_outcome)
        .map_err(|error| ApplyError::State { index, error })?;
    let success = txn.operations().refused == refused;
    Ok(AppliedCommand { outcome, measured: Some((proposal.command.kind(), success, began.elapsed())) })
}

/// Applies the membership `stored` of the entry at `index`; `before` is the previous one. Adds the
/// events of the difference, removes the programs of former members, and marks the uses of
/// invitations by nodes that are members now.
pub(super) fn apply_membership(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    before: &StoredMembership,
    stored: &StoredMembership,
) -> Result<(), StorageError> {
    // Subscribers get the difference.
    let events = member_events(before, stored);
    txn.begin_command(index, 0);
    if Feature::Authors.is_in(txn.head().version.version) {
        txn.set_authorship(Authorship::NODE);
    }
    events.into_iter().for_each(|event| txn.add_cluster_event(event));
    txn.end_command();
    let members = stored.membership().nodes().map(|(id, _)| NodeId(*id)).collect();
    txn.retain_programs(&members)?;
    txn.note_joined(|incarnation| stored.membership().nodes().any(|(_, info)| info.incarnation == incarnation))
}

/// Applies `records`, which must follow the state without a gap, to the state of a node that does
/// not run. An entry for which `is_skipped` holds only moves the applied index. Everything before a
/// failing entry is committed.
///
/// # Errors
///
/// [`ApplyError`] about the first entry that cannot be applied.
pub fn replay(
    store: &StateStore,
    records: &[LogRecord],
    is_skipped: impl Fn(LogIndex) -> bool,
) -> Result<(), ApplyError> {
    let Err(failed) = replay_all(store, records, &is_skipped) else { return Ok(()) };
    // The transaction of the failed entry is dropped with everything before it.
    let applicable = records.iter().take_while(|record| record.index < failed.index());
    let applicable: Vec<LogRecord> = applicable.cloned().collect();
    replay_all(store, &applicable, &is_skipped)?;
    Err(failed)
}

fn replay_all(
    store: &StateStore,
    records: &[LogRecord],
    is_skipped: &impl Fn(LogIndex) -> bool,
) -> Result<(), ApplyError> {
    let Some(first) = records.first() else { return Ok(()) };
    let on_state = |index: LogIndex| move |error| ApplyError::State { index, error };
    let undecodable = |index: LogIndex| move |error| ApplyError::Undecodable { index, error };
    let db = store.current();
    let applied = db.applied_state().map_err(on_state(first.index))?;
    let (mut members, mut highest) = match applied.and_then(|applied| applied.membership) {
        Some(record) => membership::decode_applied(&record).map_err(undecodable(first.index))?,
        None => (StoredMembership::default(), NodeId(0)),
    };
    let mut txn = store.begin(&db).map_err(on_state(first.index))?;
    for record in records {
        let index = record.index;
        let mut changed = None;
        match record.kind {
            _ if is_skipped(index) => {}
            RecordKind::Blank => {}
            RecordKind::Normal => {
                apply_command(&mut txn, record.term, index, record.payload.clone(), false)?;
            }
            RecordKind::Membership => {
                let decoded = membership::decode(&record.payload).map_err(undecodable(index))?;
                let stored = StoredMembership::new(Some(log_id(record.term.get(), index.get())), decoded);
                apply_membership(&mut txn, index, &members, &stored).map_err(on_state(index))?;
                highest = highest.max(membership::highest_id(stored.membership()));
                changed = Some(membership::encode_applied(&stored, highest));
                members = stored;
            }
        }
        txn.set_applied(&AppliedState { term: record.term, index, membership: changed });
    }
    let last = records.last().map_or(first.index, |record| record.index);
    txn.commit().map(drop).map_err(on_state(last))
}
