//! Makes a session (spec: consul §8.3).

use super::draft::whole_seconds;
use crate::fsm::stop::Stop;
use crate::fsm::writer::Writer;
use crate::storage::state::ConsulReader;
use crate::types::LogIndex;
use crate::types::consul::{ConsulOutcome, Deadline, Session, SessionCreate, SessionRefusal};

pub(super) fn create(
    writer: &mut Writer<'_, '_>,
    index: LogIndex,
    create: &SessionCreate,
) -> Result<ConsulOutcome, Stop> {
    let session = Session { created: index, ..create.session.clone() };
    if writer.txn.session(&session.id)?.is_some() {
        return Err(SessionRefusal::Exists.into());
    }
    writer.txn.put_session(&session);
    if session.ttl_ms > 0 {
        writer.txn.begin_deadline(&Deadline::Session(session.id), whole_seconds(session.ttl_ms))?;
    }
    Ok(ConsulOutcome::SessionCreated)
}
