//! Effects of changes of the catalog on sessions and deadlines (spec: consul §2.7, §8.3).
//!
//! Every command that changes the catalog passes through here, in the same log entry.

use super::draft::{Changes, Draft};
use crate::catalog::{CatalogEffect, FailedCheck, TouchedCheck};
use crate::error::FsmError;
use crate::writer::KvWriter;
use headwater_storage::StorageError;
use headwater_storage::state::ConsulReader;
use headwater_types::LogIndex;
use headwater_types::catalog::{Check, CheckStatus, canonical};
use headwater_types::consul::Deadline;
use headwater_types::limits::CRITICAL_SERVICE_SECONDS_MIN;

/// Ends the sessions that depend on failed or removed checks or on removed nodes, and begins and
/// ends the deadlines of checks. Returns the number of removed keys.
pub(crate) fn cascade(writer: &mut KvWriter<'_, '_>, index: LogIndex, effect: &CatalogEffect) -> Result<u64, FsmError> {
    cascade_with(writer, index, Changes::default(), effect)
}

/// As [`cascade`], together with staged changes of keys, which it writes.
pub(super) fn cascade_with(
    writer: &mut KvWriter<'_, '_>,
    index: LogIndex,
    changes: Changes,
    effect: &CatalogEffect,
) -> Result<u64, FsmError> {
    update_deadlines(writer, effect)?;
    let mut draft = Draft::resume(changes, &*writer.txn, index);
    for (id, _) in dependants(&*writer.txn, effect)? {
        draft.end_session(&id)?;
    }
    draft.into_changes().write(writer)
}

/// Ids of the sessions that depend on failed or removed checks or on removed nodes. Each has the
/// number of the operation of a commit that ends it.
pub(super) fn dependants(
    state: &impl ConsulReader,
    effect: &CatalogEffect,
) -> Result<Vec<(String, u32)>, StorageError> {
    let mut ids = Vec::new();
    for FailedCheck { node, id, by } in &effect.failed_checks {
        ids.extend(state.check_sessions(node, id)?.into_iter().map(|id| (id, *by)));
    }
    for (node, by) in &effect.removed_nodes {
        ids.extend(state.node_sessions(node)?.into_iter().map(|id| (id, *by)));
    }
    Ok(ids)
}

/// Begins, restarts and ends the deadlines of the checks that `effect` has touched. One turns a TTL
/// check critical. Another deregisters the instance of a check that stays critical, if the check
/// has a `deregister_critical_after_ns`.
pub(super) fn update_deadlines(writer: &mut KvWriter<'_, '_>, effect: &CatalogEffect) -> Result<(), StorageError> {
    effect.touched_checks.iter().try_for_each(|touched| update_deadlines_of(writer, touched))
}

fn update_deadlines_of(writer: &mut KvWriter<'_, '_>, touched: &TouchedCheck) -> Result<(), StorageError> {
    let TouchedCheck { before, after } = touched;
    let Some(check) = after.as_ref().or(before.as_ref()) else { return Ok(()) };
    // Most checks have neither deadline.
    let rows = || before.iter().chain(after);
    if rows().any(|row| row.definition.ttl_ns > 0) {
        let about = ttl_deadline(check);
        match after {
            // Every write refreshes the check.
            Some(after) if after.definition.ttl_ns > 0 => {
                writer.txn.begin_deadline(&about, seconds(after.definition.ttl_ns))?;
            }
            Some(_) | None => writer.txn.end_deadline(&about)?,
        }
    }
    if rows().any(|row| row.definition.deregister_critical_after_ns > 0) {
        let about = critical_service_deadline(check);
        match after {
            Some(after) if is_deregistered_when_critical(after) => {
                // The time counts from the first critical status.
                if writer.txn.deadline(&about)?.is_none() {
                    let seconds = seconds(after.definition.deregister_critical_after_ns);
                    writer.txn.begin_deadline(&about, seconds.max(CRITICAL_SERVICE_SECONDS_MIN))?;
                }
            }
            Some(_) | None => writer.txn.end_deadline(&about)?,
        }
    }
    Ok(())
}

/// The deadline of a TTL check.
pub(super) fn ttl_deadline(check: &Check) -> Deadline {
    Deadline::TtlCheck { node: canonical(&check.node), check: check.id.clone() }
}

fn critical_service_deadline(check: &Check) -> Deadline {
    Deadline::CriticalService { node: canonical(&check.node), check: check.id.clone() }
}

/// Whether the check is critical now, and its service is deregistered if it stays so.
pub(super) fn is_deregistered_when_critical(check: &Check) -> bool {
    check.status == CheckStatus::Critical
        && !check.service_id.is_empty()
        && check.definition.deregister_critical_after_ns > 0
}

/// Nanoseconds as whole seconds, rounded up: no deadline expires early.
fn seconds(ns: i64) -> i64 {
    ns / 1_000_000_000 + i64::from(ns % 1_000_000_000 > 0)
}
