//! Creates a session (spec: consul §8.3).

use super::draft::whole_seconds;
use crate::error::FsmError;
use crate::writer::KvWriter;
use headwater_storage::state::{CatalogReader, ConsulReader};
use headwater_types::LogIndex;
use headwater_types::catalog::CheckStatus;
use headwater_types::consul::{ConsulOutcome, DEFAULT_CHECK, Deadline, Session, SessionCreate, SessionRefusal};

pub(crate) fn create(
    writer: &mut KvWriter<'_, '_>,
    index: LogIndex,
    create: &SessionCreate,
) -> Result<ConsulOutcome, FsmError> {
    let mut session = Session { created: index, ..create.session.clone() };
    if writer.txn.session(&session.id)?.is_some() {
        return Err(SessionRefusal::Exists.into());
    }
    if create.node_required && writer.txn.node(&session.node)?.value.is_none() {
        return Err(SessionRefusal::NodeUnknown.into());
    }
    if create.default_check && writer.txn.check(&session.node, DEFAULT_CHECK)?.is_some() {
        session.node_checks.push(DEFAULT_CHECK.to_owned());
    }
    for check in session.checks() {
        match writer.txn.check(&session.node, check)? {
            None => return Err(SessionRefusal::CheckUnknown.into()),
            Some(check) if check.row.status == CheckStatus::Critical => {
                return Err(SessionRefusal::CheckCritical.into());
            }
            Some(_) => {}
        }
    }
    writer.txn.put_session(&session);
    writer.txn.mark_sessions_changed();
    if session.ttl_ms > 0 {
        writer.txn.begin_deadline(&Deadline::Session(session.id), whole_seconds(session.ttl_ms))?;
    }
    Ok(ConsulOutcome::SessionCreated)
}
