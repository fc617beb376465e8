//! Consul's keys, transactions and sessions as the face sees them (spec: consul §8.3;
//! `docs/consul-kv.md`).
//!
//! Owns the query indexes of keys and prefixes and the waits for them, the ids of sessions, and the
//! renewal of sessions and TTL checks. The state machine has the rules of locks and of a session's
//! end.

mod check;
mod kv;
mod session;
mod wait;

use super::{Node, NodeError, RequestContext, Unanswered};
use headwater_types::consul::{ConsulCommand, ConsulOutcome};
use headwater_types::{Command, LogIndex, Outcome, Revision};

pub use kv::{ConsulTreeTooLarge, ConsulTxnDone, Seen};
pub use wait::ConsulSubject;

/// Log index and revision of an outcome.
type Decided = (LogIndex, Revision);

/// Handle to Consul's keys, transactions, sessions and TTL checks.
#[derive(Clone, Copy)]
pub struct Consul<'a> {
    pub(super) node: &'a Node,
}

impl Node {
    /// Handle to Consul's keys, transactions, sessions and TTL checks.
    pub fn consul(&self) -> Consul<'_> {
        Consul { node: self }
    }
}

impl Consul<'_> {
    async fn propose(
        self,
        ctx: &RequestContext,
        command: ConsulCommand,
    ) -> Result<(Decided, ConsulOutcome), NodeError> {
        let applied = self.node.propose(ctx, Command::Consul(command)).await?;
        match applied.outcome {
            Outcome::Consul(outcome) => Ok(((applied.index, applied.revision), outcome)),
            outcome => Err(other(&outcome)),
        }
    }
}

/// Logs an outcome that is impossible for the command, and returns the error for it.
fn other(outcome: &dyn std::fmt::Debug) -> NodeError {
    tracing::error!(?outcome, "a command of Consul's API came to something else");
    NodeError::Indeterminate(Unanswered::LeaderFailed)
}
