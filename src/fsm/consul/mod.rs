//! Commands of Consul's KV and session API (spec: consul §8.3, §2.7; `docs/consul-kv.md`).
//!
//! Owns the rules of locks and sessions, and the effects of deadlines. Changes of keys and ends of
//! sessions are staged in a [`Draft`] first, and written only when nothing can be refused any more,
//! so that a transaction is all or nothing.

mod cascade;
mod commit;
mod deadline;
mod draft;
mod kv;
mod rows;
mod session;
mod txn;

pub(super) use cascade::cascade;
pub(super) use commit::CommitPart;
pub(super) use deadline::due;
pub(super) use session::create as create_session;
pub use txn::read_txn;

use super::error::FsmError;
use super::read_budget::ReadBudget;
use super::writer::KvWriter;
use headwater_types::consul::{ConsulCommand, ConsulOutcome, SessionRefusal, TxnFaultReason};
use headwater_types::{LogIndex, Refusal};

use draft::Draft;

/// Applies a command of the log entry at `index`. With `want` false the results of a transaction
/// are not collected.
pub(super) fn apply(
    writer: &mut KvWriter<'_, '_>,
    index: LogIndex,
    command: &ConsulCommand,
    want: bool,
) -> Result<ConsulOutcome, FsmError> {
    match command {
        ConsulCommand::Kv(op) => {
            let mut draft = Draft::new(&*writer.txn, index);
            let done = match kv::run(&mut draft, op, &mut ReadBudget::of_consul_command(want))? {
                Ok(_) => true,
                Err(TxnFaultReason::Session(refusal)) => return Err(refusal.into()),
                Err(_) => return Ok(ConsulOutcome::Kv(false)),
            };
            draft.into_changes().write(writer)?;
            Ok(ConsulOutcome::Kv(done))
        }
        ConsulCommand::Txn(ops) => txn::apply(writer, index, ops, want),
        ConsulCommand::SessionCreate(create) => session::create(writer, index, create),
        ConsulCommand::SessionDestroy(id) => {
            let mut draft = Draft::new(&*writer.txn, index);
            draft.end_session(id)?;
            draft.into_changes().write(writer)?;
            Ok(ConsulOutcome::SessionDestroyed)
        }
    }
}

impl From<SessionRefusal> for FsmError {
    fn from(refusal: SessionRefusal) -> Self {
        Self::Refused(Refusal::Session(refusal))
    }
}
