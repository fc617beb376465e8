//! Deletes the dependents of deleted resources, and empties units of tenancy that are being deleted
//! (spec: consul §5.10, §5.4).
//!
//! Runs on the leader. The work to do is in the state: tombstones, and marked units. So the reaper
//! keeps nothing in memory, and a new leader continues where the last one was. Each step is one
//! command, and the state machine decides its effect: two reapers at once do no harm.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use tokio::sync::Notify;

use crate::{Inner, Node, NodeError, RequestContext, tasks};
use headwater_raft::Consensus;
use headwater_storage::state::{StateReader, tombstone_owner};
use headwater_types::resource::{Resource, ResourceRefusal, Tenancy, Type, WILDCARD, builtin_scope};
use headwater_types::{ChangeKind, CommandEvents, Refusal, ResourceEvent};

use super::TypedResources;
use super::error::ResourceError;

/// Timeout of each command and of each search.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an error, and interval of checks without a notification.
const PAUSE: Duration = Duration::from_secs(1);
/// Most resources that one search of the reaper returns, count. A search finds tombstones, marked
/// units, or the resources of one type in one unit.
const ROUND: usize = 256;
/// Tombstones that are handled at once, and resources of a unit that are deleted at once, count.
/// They are few beside the proposals that may be pending.
const AT_ONCE: usize = 16;

/// Notified when a commit may have left work for the reaper. The work itself is in the state.
#[derive(Default)]
pub(crate) struct ReaperNotify(Notify);

impl ReaperNotify {
    /// Wakes the reaper if one of the commits may have left work. Never waits.
    pub(crate) fn notify(&self, commits: &[CommandEvents]) {
        // Tombstones and units are of built-in types, which are rarely written.
        let concerns =
            |event: &ResourceEvent| event.kind == ChangeKind::Put && builtin_scope(&event.resource.id.type_).is_some();
        if commits.iter().any(|commit| commit.resources.iter().any(concerns)) {
            self.0.notify_one();
        }
    }
}

pub(crate) async fn reap(consensus: Consensus, inner: Weak<Inner>, reaper_notify: Arc<ReaperNotify>) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    loop {
        let done = {
            let Some(inner) = inner.upgrade() else { return };
            let node = Node { inner };
            let leads = node.leadership().leader == Some(node.identity().node_id);
            if leads { node.resources().reap_round().await } else { Ok(false) }
        };
        match done {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => {
                tokio::select! {
                    () = reaper_notify.0.notified() => {}
                    // A new leader gets no notification, so it also checks by a timer.
                    () = tokio::time::sleep(PAUSE) => {}
                    _ = consensus.ended() => return,
                }
            }
            Err(error) => {
                tracing::debug!(%error, "reaping goes on later");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    _ = consensus.ended() => return,
                }
            }
        }
    }
}

impl TypedResources<'_> {
    /// Handles some tombstones and marked units. Returns whether the next round may find more work.
    async fn reap_round(self) -> Result<bool, ResourceError> {
        let anywhere = Tenancy::new(WILDCARD, WILDCARD);
        let tombstones = self.search(Type::tombstone(), anywhere, |_| true).await?;
        let reaped: Vec<Result<bool, NodeError>> = stream::iter(tombstones)
            .map(|tombstone| self.reap_one(tombstone))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let reaped = reaped.into_iter().collect::<Result<Vec<bool>, _>>()?.contains(&true);
        let drained = self.drain_units().await?;
        Ok(reaped || drained)
    }

    /// At most [`ROUND`] resources of a type that match `wanted`. Each search has a deadline of its
    /// own: the commands between two searches may take long.
    async fn search(
        self,
        type_: Type,
        tenancy: Tenancy,
        wanted: fn(&Resource) -> bool,
    ) -> Result<Vec<Resource>, NodeError> {
        let ctx = RequestContext::own(STEP_TIMEOUT);
        self.some(&ctx, type_, tenancy, ROUND, wanted).await
    }

    /// Deletes the dependents of the tombstone's owner, step by step. False only if the tombstone
    /// cannot be read.
    async fn reap_one(self, tombstone: Resource) -> Result<bool, NodeError> {
        let Some(owner) = tombstone_owner(&tombstone) else {
            tracing::error!(name = tombstone.id.name, "a tombstone cannot be read; it stays");
            return Ok(false);
        };
        let mut after = Bytes::new();
        loop {
            let ctx = RequestContext::own(STEP_TIMEOUT);
            match self.reap_step(&ctx, &owner, tombstone.version, after).await {
                Ok(reaped) => match reaped.next {
                    Some(next) => after = next,
                    None => return Ok(true),
                },
                // The tombstone was removed or written again: the next round reads it again.
                Err(NodeError::Refused(Refusal::Resource(ResourceRefusal::NothingToReap))) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes some resources of marked units, and the marked units that are empty and have no
    /// finalizers. Returns whether that removed or marked anything.
    async fn drain_units(self) -> Result<bool, ResourceError> {
        let mut freed = false;
        for type_ in [Type::namespace(), Type::partition()] {
            let anywhere = Tenancy::new(WILDCARD, WILDCARD);
            let units = self.search(type_.clone(), anywhere, Resource::is_marked).await?;
            for unit in units {
                let tenancy = if type_ == Type::partition() {
                    Tenancy::new(&unit.id.name, WILDCARD)
                } else {
                    Tenancy::new(&unit.id.tenancy.partition, &unit.id.name)
                };
                freed |= self.drain(&tenancy).await?;
                // A unit with finalizers or content cannot be deleted yet: do not try.
                if unit.finalizers().is_empty() && self.is_empty_unit(tenancy).await? {
                    freed |= self.delete_one(unit).await?;
                }
            }
        }
        Ok(freed)
    }

    /// Whether a unit has no resources.
    async fn is_empty_unit(self, unit: Tenancy) -> Result<bool, NodeError> {
        let ctx = RequestContext::own(STEP_TIMEOUT);
        let read = self.node.read(true, &ctx, move |view| Ok(Ok(view.unit_count(&unit)?))).await?;
        Ok(read.value == 0)
    }

    async fn drain(self, tenancy: &Tenancy) -> Result<bool, ResourceError> {
        let mut freed = false;
        for known in self.types().await?.iter() {
            // A tombstone is removed after the dependents of its owner.
            if known.type_.is_tombstone() || !known.scope.has_partition() {
                continue;
            }
            // A marked namespace is deleted in its own turn, after its content.
            let free = |resource: &Resource| {
                !resource.is_marked() || resource.finalizers().is_empty() && resource.id.type_ != Type::namespace()
            };
            let found = self.search(known.type_.clone(), tenancy.clone(), free).await?;
            let deleted: Vec<Result<bool, ResourceError>> =
                stream::iter(found).map(|resource| self.delete_one(resource)).buffer_unordered(AT_ONCE).collect().await;
            for deleted in deleted {
                freed |= deleted?;
            }
        }
        Ok(freed)
    }

    /// Deletes a resource, if it still has the same uid. Returns whether that removed or marked it;
    /// false also if the state machine refused.
    async fn delete_one(self, resource: Resource) -> Result<bool, ResourceError> {
        use headwater_types::resource::ResourceDeletion;
        let ctx = RequestContext::own(STEP_TIMEOUT);
        match self.delete(&ctx, resource.id, None).await {
            Ok(done) => Ok(done.value != ResourceDeletion::Nothing),
            Err(ResourceError::Node(NodeError::Refused(Refusal::Resource(_)))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
