//! TTL checks: a report that changes no status goes to the leader, and adds nothing to the log.

use super::Consul;
use crate::{Consistency, NodeError, RequestContext};
use headwater_storage::state::{CatalogReader, ConsulReader};
use headwater_types::LeaseQuestion;
use headwater_types::catalog::{Check, canonical};
use headwater_types::consul::Deadline;

impl Consul<'_> {
    /// Restarts the time of a TTL check, without a write. False if the check was changed or removed
    /// since `check` was read, has no TTL, or has expired: then the report must be written. The
    /// caller checks the rights of the principal.
    ///
    /// # Errors
    ///
    /// As [`Leases::keep_alive`](crate::Leases::keep_alive); a repetition is safe.
    pub async fn renew_check(self, ctx: &RequestContext, check: &Check) -> Result<bool, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        let (node, id, modified) = (check.node.clone(), check.id.clone(), check.modified);
        let found = self.node.read(true, ctx, move |view| {
            let is_same = view.check(&node, &id)?.is_some_and(|stored| stored.row.modified == modified);
            let about = Deadline::TtlCheck { node: canonical(&node), check: id };
            Ok(Ok(if is_same { view.deadline(&about)? } else { None }))
        });
        match found.await?.value {
            None => Ok(false),
            Some(deadline) => {
                Ok(self.node.leases().ask_leader(LeaseQuestion::KeepAlive(deadline), ctx.deadline).await?.is_some())
            }
        }
    }
}
