//! A contender's wait until its key is the oldest of the queue. The contender watches its own key
//! and the one directly before it, so that each removal wakes one contender.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use super::enter::QueuePosition;
use super::{ContestError, Locks, Owner};
use crate::{Consistency, NodeError, NodeErrorKind, RequestContext, WatchQuery};
use headwater_stream::{CloseReason, Session};
use headwater_types::{
    Access, ChangeKind, KeyRange, RangeQuery, Refusal, Revision, RevisionFilter, SortOrder, SortTarget, Space,
};

/// Timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a read is repeated, unless the leader changes first.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Whether a read that failed with `error` may succeed later. A compacted revision counts: the
/// retry reads the current state.
pub(super) fn is_transient(error: &NodeError) -> bool {
    match error.kind() {
        NodeErrorKind::Unavailable | NodeErrorKind::Timeout | NodeErrorKind::Exhausted => true,
        NodeErrorKind::Refused => is_compacted(error),
        NodeErrorKind::Denied
        | NodeErrorKind::Unauthenticated
        | NodeErrorKind::TooLarge
        | NodeErrorKind::Indeterminate
        | NodeErrorKind::NotLeader
        | NodeErrorKind::Membership
        | NodeErrorKind::Stopped
        | NodeErrorKind::Internal => false,
    }
}

/// Whether history no longer has the revision of a read.
pub(super) fn is_compacted(error: &NodeError) -> bool {
    matches!(error, NodeError::Refused(Refusal::Compacted { .. }))
}

impl QueuePosition {
    /// Query for the contender's key, if it is still there, and then the key ahead of it in the
    /// queue. Without values.
    fn neighbours(&self) -> RangeQuery {
        RangeQuery {
            order: SortOrder::Descend,
            target: SortTarget::Create,
            filter: RevisionFilter { max_create: self.token.get(), ..RevisionFilter::default() },
            limit: 2,
            keys_only: true,
            ..RangeQuery::new(KeyRange::prefix(self.prefix.clone()))
        }
    }
}

impl Locks<'_> {
    /// Waits until no other contender is before this one. Retries after transient errors without a
    /// deadline.
    pub(super) async fn wait_until_oldest(
        self,
        asker: &RequestContext,
        position: &QueuePosition,
    ) -> Result<Owner, ContestError> {
        loop {
            let ctx = asker.within_stream(READ_TIMEOUT);
            let read = match self.node.keys().range(&ctx, Consistency::Linearizable, position.neighbours()).await {
                Ok(read) => read,
                Err(error) if is_transient(&error) => {
                    self.pause().await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.permit(asker, position)?;
            let mut neighbours = read.value.kvs.into_iter();
            let is_there =
                neighbours.next().is_some_and(|kv| kv.key == position.key && kv.create_revision == position.token);
            if !is_there {
                return Err(ContestError::PositionLost);
            }
            let Some(before) = neighbours.next() else {
                let (index, revision) = (read.index, read.revision);
                return Ok(Owner {
                    index,
                    revision,
                    key: position.key.clone(),
                    token: position.token,
                    lease: position.lease,
                });
            };
            match self.wait_for_removal(asker, position, &before.key, read.revision).await {
                Err(error) if is_transient(&error) => self.pause().await,
                result => result?,
            }
        }
    }

    pub(super) async fn pause(self) {
        self.node.inner.consensus.leadership().wait_for_change(RETRY_PAUSE).await;
    }

    /// Checks that the asker may still write its key and read the keys of the queue.
    ///
    /// # Errors
    ///
    /// If the asker lacks one of these rights: it leaves the queue then.
    fn permit(self, asker: &RequestContext, position: &QueuePosition) -> Result<(), NodeError> {
        let (own, all) = (KeyRange::One(position.key.clone()), KeyRange::prefix(position.prefix.clone()));
        let wanted = [(Space::Kv, &own, Access::WRITE), (Space::Kv, &all, Access::READ)];
        Ok(self.node.authorizer(asker)?.permit_all(&wanted).map_err(Refusal::Auth)?)
    }

    /// Waits until the key of the contender, or the one `before` it, may have been removed after
    /// `revision`, as far as this member knows.
    async fn wait_for_removal(
        self,
        asker: &RequestContext,
        position: &QueuePosition,
        before: &Bytes,
        revision: Revision,
    ) -> Result<(), NodeError> {
        let (session, keys) = (Session::new(), [before, &position.key]);
        let mut rights = self.node.rights_changes();
        self.permit(asker, position)?;
        let ctx = asker.within_stream(READ_TIMEOUT);
        let mut watches = Vec::with_capacity(keys.len());
        for (token, key) in keys.into_iter().enumerate() {
            let query = WatchQuery { range: KeyRange::One(key.clone()), start: Some(revision.next()) };
            watches.push(self.node.follow().keys(&ctx, query, &session, token as u64).await?);
        }
        loop {
            for watch in &mut watches {
                loop {
                    match watch.try_next() {
                        Ok(None) => break,
                        Ok(Some(item)) if item.events().any(|event| event.kind != ChangeKind::Put) => return Ok(()),
                        Ok(Some(_)) => {}
                        Err(reason) => return begin_again(reason),
                    }
                }
            }
            tokio::select! {
                _ = session.raised() => {}
                Some(_) = rights.next() => self.permit(asker, position)?,
            }
        }
    }
}

/// `Ok` if a contender may read the state again after its watch has ended for `reason`; the error
/// for its client otherwise. A state of another lineage is read, too: the contender keeps its
/// position only if its key is there, created at the same revision.
pub(super) fn begin_again(reason: CloseReason) -> Result<(), NodeError> {
    match reason {
        CloseReason::Compacted { .. } | CloseReason::EpochChanged | CloseReason::Reset => Ok(()),
        CloseReason::Stopping | CloseReason::Failed(_) => Err(reason.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_reads_again_unless_the_node_ends() {
        for (reason, reads_again) in [
            (CloseReason::Compacted { revision: Revision(3) }, true),
            (CloseReason::EpochChanged, true),
            (CloseReason::Reset, true),
            (CloseReason::Stopping, false),
            (CloseReason::Failed("disk".into()), false),
        ] {
            assert_eq!(begin_again(reason.clone()).is_ok(), reads_again, "{reason:?}");
        }
    }

    #[test]
    fn only_a_compacted_revision_is_given_up() {
        let compacted = NodeError::Refused(Refusal::Compacted { compact_revision: Revision(3) });
        for (error, is_retried, is_given_up) in [
            (compacted, true, true),
            (NodeError::TooManyRequests, true, false),
            (NodeError::AnswersUnread, true, false),
            (NodeError::NoLeader, true, false),
            (NodeError::Timeout, true, false),
            (NodeError::Stopped, false, false),
        ] {
            assert_eq!((is_transient(&error), is_compacted(&error)), (is_retried, is_given_up), "{error:?}");
        }
    }
}
