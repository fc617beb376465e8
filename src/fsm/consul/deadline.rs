//! What happens when a deadline has run out (`docs/consul-kv.md`).

use super::draft::Draft;
use crate::fsm::stop::Stop;
use crate::fsm::writer::Writer;
use crate::storage::state::ConsulReader;
use crate::types::consul::Deadline;
use crate::types::{LeaseId, LogIndex};

/// Ends a deadline that has run out, in the command at `index`; how many keys went with it.
pub(in crate::fsm) fn due(writer: &mut Writer<'_, '_>, index: LogIndex, id: LeaseId) -> Result<u64, Stop> {
    let about = writer.txn.about_deadline(id)?.expect("invariant: a deadline that runs is about something");
    writer.txn.end_deadline(&about)?;
    match about {
        Deadline::Session(session) => {
            let mut draft = Draft::new(&*writer.txn, index);
            draft.end_session(&session)?;
            draft.into_changes().write(writer)
        }
        // It is over: the lock may be taken.
        Deadline::LockDelay(_) => Ok(0),
        Deadline::TtlCheck { .. } | Deadline::CriticalService { .. } => Ok(0),
    }
}
