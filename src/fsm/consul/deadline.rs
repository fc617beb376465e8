//! Effects of expired deadlines (`docs/consul-kv.md`).

use super::cascade::{cascade, is_deregistered_when_critical, ttl_deadline};
use super::draft::Draft;
use crate::catalog::CatalogTxn;
use crate::error::FsmError;
use crate::writer::KvWriter;
use headwater_storage::state::ConsulReader;
use headwater_types::catalog::{Check, CheckStatus};
use headwater_types::consul::Deadline;
use headwater_types::{LeaseId, LogIndex};

/// Output of a TTL check that was not refreshed in time.
pub(crate) const TTL_EXPIRED: &str = "TTL expired";

/// Applies an expired deadline, in the command at `index`. Returns the number of keys that were
/// removed.
pub(crate) fn due(writer: &mut KvWriter<'_, '_>, index: LogIndex, id: LeaseId) -> Result<u64, FsmError> {
    let about = writer.txn.about_deadline(id)?.expect("invariant: a deadline that runs is about something");
    writer.txn.end_deadline(&about)?;
    match about {
        Deadline::Session(session) => {
            let mut draft = Draft::new(&*writer.txn, index);
            draft.end_session(&session)?;
            draft.into_changes().write(writer)
        }
        Deadline::TtlCheck { node, check } => {
            let mut catalog = CatalogTxn::new(writer.txn, index);
            let Some(check) = catalog.check(&node, &check)? else { return Ok(0) };
            let expired =
                Check { status: CheckStatus::Critical, output: TTL_EXPIRED.to_owned(), ..Check::clone(&check) };
            let about = ttl_deadline(&expired);
            catalog.set_check(expired)?;
            let effect = catalog.finish()?;
            let removed = cascade(writer, index, &effect)?;
            // This write does not refresh the check: the deadline begins again with the agent's
            // next report.
            writer.txn.end_deadline(&about)?;
            Ok(removed)
        }
        Deadline::CriticalService { node, check } => {
            let mut catalog = CatalogTxn::new(writer.txn, index);
            let Some(check) = catalog.check(&node, &check)?.filter(|check| is_deregistered_when_critical(check)) else {
                return Ok(0);
            };
            catalog.delete_service(&node, &check.service_id)?;
            let effect = catalog.finish()?;
            cascade(writer, index, &effect)
        }
        // The end of the deadline frees the lock.
        Deadline::LockDelay(_) => Ok(0),
    }
}
