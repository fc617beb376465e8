//! TTL checks: a sign of life that changes nothing writes nothing.

use crate::node::{Consistency, Node, NodeError, RequestContext};
use crate::storage::state::ConsulReader;
use crate::types::LeaseQuestion;
use crate::types::catalog::canonical;
use crate::types::consul::Deadline;

impl Node {
    /// Starts the time of a TTL check anew, which writes nothing; false if no time runs for it, so that how it stands has to be
    /// written.
    ///
    /// # Errors
    ///
    /// As [`Node::lease_keep_alive`]; asking again is safe.
    pub async fn check_keep_alive(&self, ctx: &RequestContext, node: &str, check: &str) -> Result<bool, NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        let about = Deadline::TtlCheck { node: canonical(node), check: check.to_owned() };
        let deadline = self.read(true, ctx.deadline, move |view| Ok(Ok(view.deadline(&about)?))).await?.value;
        match deadline {
            Some(deadline) => {
                Ok(self.ask_about_lease(LeaseQuestion::KeepAlive(deadline), ctx.deadline).await?.is_some())
            }
            None => Ok(false),
        }
    }
}
