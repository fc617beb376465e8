//! One operation on a path (spec: consul §8.3, the table of `/v1/kv` and the verbs of `/v1/txn`).

use bytes::Bytes;

use super::draft::Draft;
use crate::error::FsmError;
use crate::read_budget::ReadBudget;
use headwater_storage::StorageError;
use headwater_storage::state::StateReader;
use headwater_types::LogIndex;
use headwater_types::consul::{KvEntry, KvOp, KvSide, KvVerb, SessionRefusal, TxnFaultReason};

/// Results of an operation, or the reason why it is not done.
type Done = Result<Vec<KvEntry>, TxnFaultReason>;

/// Runs an operation on a draft. If it is not done, the draft has no changes of it.
pub(super) fn run<S: StateReader>(
    draft: &mut Draft<'_, S>,
    op: &KvOp,
    budget: &mut ReadBudget,
) -> Result<Done, FsmError> {
    let existing = if op.verb.is_about_prefix() { None } else { draft.entry(&op.path)? };
    Ok(match op.verb {
        KvVerb::Set => Ok(set(draft, op, existing)?),
        KvVerb::Cas => match (op.index, &existing) {
            (LogIndex::ZERO, Some(_)) => Err(TxnFaultReason::Stale),
            (LogIndex::ZERO, None) => Ok(set(draft, op, existing)?),
            (index, Some(entry)) if entry.modified == index => Ok(set(draft, op, existing)?),
            (_, Some(_) | None) => Err(TxnFaultReason::Stale),
        },
        KvVerb::Lock => lock(draft, op, existing)?,
        KvVerb::Unlock => unlock(draft, op, existing)?,
        KvVerb::Delete => {
            draft.remove(&op.path)?;
            Ok(Vec::new())
        }
        KvVerb::DeleteCas => match existing {
            Some(entry) if entry.modified != op.index => Err(TxnFaultReason::Stale),
            Some(_) | None => {
                draft.remove(&op.path)?;
                Ok(Vec::new())
            }
        },
        KvVerb::DeleteTree => {
            draft.remove_tree(&op.path)?;
            Ok(Vec::new())
        }
        KvVerb::Get => existing.ok_or(TxnFaultReason::Absent).and_then(|entry| with_value(entry, budget)),
        KvVerb::GetOrEmpty => {
            let empty = || KvEntry { path: op.path.clone(), ..KvEntry::default() };
            with_value(existing.unwrap_or_else(empty), budget)
        }
        KvVerb::GetTree => draft.read_tree(&op.path, budget)?.ok_or(TxnFaultReason::ResultTooLarge),
        KvVerb::CheckIndex => match existing {
            None => Err(TxnFaultReason::Absent),
            Some(entry) if entry.modified != op.index => Err(TxnFaultReason::Stale),
            Some(entry) => Ok(vec![without_value(entry)]),
        },
        KvVerb::CheckSession => match existing {
            None => Err(TxnFaultReason::Absent),
            Some(entry) if entry.side.session != op.session => Err(TxnFaultReason::NotHeld),
            Some(entry) => Ok(vec![without_value(entry)]),
        },
        KvVerb::CheckNotExists => match existing {
            None => Ok(Vec::new()),
            Some(_) => Err(TxnFaultReason::Present),
        },
    })
}

/// Writes value and flags. A lock of the key stays. If nothing is different, the key keeps the log
/// index of its last change.
fn set<S: StateReader>(
    draft: &mut Draft<'_, S>,
    op: &KvOp,
    existing: Option<KvEntry>,
) -> Result<Vec<KvEntry>, StorageError> {
    let side = existing.as_ref().map_or_else(KvSide::default, |entry| entry.side.clone());
    write(draft, op, existing, side)
}

fn lock<S: StateReader>(draft: &mut Draft<'_, S>, op: &KvOp, existing: Option<KvEntry>) -> Result<Done, StorageError> {
    if op.session.is_empty() {
        return Ok(Err(SessionRefusal::Missing.into()));
    }
    if draft.session(&op.session)?.is_none() {
        return Ok(Err(SessionRefusal::Invalid.into()));
    }
    let mut side = existing.as_ref().map_or_else(KvSide::default, |entry| entry.side.clone());
    if side.session != op.session {
        if !side.session.is_empty() {
            return Ok(Err(TxnFaultReason::Held));
        }
        if draft.is_delayed(&op.path)? {
            return Ok(Err(TxnFaultReason::Delayed));
        }
        side.lock_index += 1;
        side.session.clone_from(&op.session);
    }
    write(draft, op, existing, side).map(Ok)
}

fn unlock<S: StateReader>(
    draft: &mut Draft<'_, S>,
    op: &KvOp,
    existing: Option<KvEntry>,
) -> Result<Done, StorageError> {
    if op.session.is_empty() {
        return Ok(Err(SessionRefusal::Missing.into()));
    }
    let Some(entry) = existing.filter(|entry| entry.side.session == op.session) else {
        return Ok(Err(TxnFaultReason::NotHeld));
    };
    let side = KvSide { session: String::new(), ..entry.side.clone() };
    write(draft, op, Some(entry), side).map(Ok)
}

fn write<S: StateReader>(
    draft: &mut Draft<'_, S>,
    op: &KvOp,
    existing: Option<KvEntry>,
    side: KvSide,
) -> Result<Vec<KvEntry>, StorageError> {
    let side = KvSide { flags: op.flags, ..side };
    let written = match existing {
        Some(entry) if entry.value == op.value && entry.side == side => entry,
        _ => draft.write(KvEntry { path: op.path.clone(), value: op.value.clone(), side, modified: LogIndex::ZERO })?,
    };
    Ok(vec![without_value(written)])
}

fn with_value(entry: KvEntry, budget: &mut ReadBudget) -> Done {
    match budget.take_result(entry.path.len() + entry.value.len()) {
        true => Ok(vec![entry]),
        false => Err(TxnFaultReason::ResultTooLarge),
    }
}

fn without_value(entry: KvEntry) -> KvEntry {
    KvEntry { value: Bytes::new(), ..entry }
}
