//! One follower of an entity: its first group, then the changes of commits.
//!
//! Owns the order of delivery. A follower that keeps up gets a group for each commit, computed once
//! for all followers. A follower that has fallen behind gets the combined changes of many commits.
//! Invariant: on either path, a client that applies the changes has the state at the position of
//! every closed group.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::listing::Sending;
use super::space::Space;
use super::watched::{Derived, Watched, position};
use crate::Position;
use headwater_storage::StorageError;
use headwater_stream::{CloseReason, Item, Subscription};
use headwater_types::LogIndex;
use headwater_types::limits::{ENTITY_BACKLOG_MAX, ENTITY_MERGED_CHANGES_MAX, ENTITY_MERGED_COMMITS_MAX};

/// No limit: above every index.
const EVERYTHING: LogIndex = LogIndex(u64::MAX);

/// Encoded changes, in order. Each item is a whole group or a part of one; the change that closes a
/// group says so itself.
pub type ChangeGroups = Vec<Arc<[Bytes]>>;

/// A follower of an entity in any space.
pub(super) trait EntityFollower: Send {
    /// The next changes; `None` if there are none now. The error is the reason for which the stream
    /// ended.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ChangeGroups>, CloseReason>>;
}

/// The stage of a follower's delivery.
pub(super) enum Phase {
    /// The state is being sent.
    State(Box<Sending>),
    /// The missed changes are being sent, as one group that ends at `through`. `held` is a change
    /// that is not sent yet, because the last one must close the group.
    Missed { through: LogIndex, held: Option<Bytes> },
    /// This group is sent next, before the changes of commits.
    First(Arc<[Bytes]>),
    /// The changes of new commits are sent as they come.
    Live,
}

pub(super) struct Follower<S: Space> {
    pub(super) watched: Arc<Watched<S>>,
    pub(super) subscription: Subscription<S::Topic>,
    pub(super) phase: Phase,
}

/// The close reason for a failed read of the state.
fn unreadable(error: StorageError) -> CloseReason {
    CloseReason::Failed(error.to_string())
}

impl<S: Space> EntityFollower for Follower<S> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ChangeGroups>, CloseReason>> {
        Box::pin(async move {
            match &mut self.phase {
                Phase::State(sending) => {
                    let (page, is_last) = sending.page(&*self.watched.encoder);
                    if is_last {
                        self.phase = Phase::Live;
                    }
                    Ok(Some(vec![page]))
                }
                Phase::First(group) => {
                    let group = Arc::clone(group);
                    self.phase = Phase::Live;
                    Ok(Some(vec![group]))
                }
                Phase::Missed { through, .. } => {
                    let through = *through;
                    self.missed(through).await
                }
                Phase::Live => self.live().await,
            }
        })
    }
}

impl<S: Space> Follower<S> {
    /// Takes the next waiting commits, at most `count`, none beyond `through`. Stops early once
    /// they have `ENTITY_MERGED_CHANGES_MAX` changes.
    fn take(&mut self, count: usize, through: LogIndex) -> Result<Vec<Item<S::Topic>>, CloseReason> {
        let mut items = Vec::new();
        let mut changes = 0;
        while items.len() < count && changes < ENTITY_MERGED_CHANGES_MAX {
            match self.subscription.try_next_through(through)? {
                Some(item) => {
                    changes += item.len();
                    items.push(item);
                }
                None => break,
            }
        }
        Ok(items)
    }

    async fn live(&mut self) -> Result<Option<ChangeGroups>, CloseReason> {
        loop {
            let items = self.take(ENTITY_BACKLOG_MAX, EVERYTHING)?;
            if items.is_empty() {
                return Ok(None);
            }
            let mut groups = ChangeGroups::new();
            if items.len() >= ENTITY_BACKLOG_MAX {
                let (changes, position) = self.together(items, EVERYTHING).await?;
                groups.push(self.watched.encode_group(&changes, Some(position)));
            } else {
                for (number, item) in items.iter().enumerate() {
                    match self.watched.group(item).await.map_err(unreadable)? {
                        Derived::Done(group) => groups.push(group),
                        Derived::Behind(_) => {
                            let (changes, position) = self.together(items[number..].to_vec(), EVERYTHING).await?;
                            groups.push(self.watched.encode_group(&changes, Some(position)));
                            break;
                        }
                    }
                }
            }
            groups.retain(|group| !group.is_empty());
            if !groups.is_empty() {
                return Ok(Some(groups));
            }
        }
    }

    /// The combined changes of `items` and of further waiting commits up to `limit`, and the
    /// position after them. If the state after them was compacted, the commits up to the compaction
    /// point are included, even beyond `limit`.
    async fn together(
        &mut self,
        mut items: Vec<Item<S::Topic>>,
        limit: LogIndex,
    ) -> Result<(Vec<super::tree::ElementChange>, Position), CloseReason> {
        let more = self.take(ENTITY_MERGED_COMMITS_MAX.saturating_sub(items.len()), limit)?;
        items.extend(more);
        let mut through = items.last().map_or(LogIndex::ZERO, Item::index);
        loop {
            let (watched, shared) = (Arc::clone(&self.watched), items.clone());
            match run_blocking(move || watched.changes(&shared, through)).await? {
                Derived::Done(changes) => return Ok(changes),
                Derived::Behind(index) => {
                    let more = self.take(usize::MAX, index)?;
                    if !self.subscription.is_through(index) && more.is_empty() {
                        // The missing commits were compacted, too.
                        let revision = self.watched.store.current().head().compaction.map(|point| point.revision);
                        return Err(CloseReason::Compacted { revision: revision.unwrap_or_default() });
                    }
                    items.extend(more);
                    if self.subscription.is_through(index) {
                        through = index.max(through);
                    }
                }
            }
        }
    }

    async fn missed(&mut self, mut through: LogIndex) -> Result<Option<ChangeGroups>, CloseReason> {
        loop {
            let items = self.take(ENTITY_BACKLOG_MAX, through)?;
            if items.is_empty() {
                if !self.subscription.is_through(through) {
                    return Ok(None);
                }
                return Ok(Some(vec![self.close_missed(through)?]));
            }
            let mut changes = Vec::new();
            let mut rest = if items.len() < ENTITY_BACKLOG_MAX { None } else { Some(items.clone()) };
            if rest.is_none() {
                let watched = Arc::clone(&self.watched);
                let shared = items.clone();
                let (done, behind) = run_blocking(move || {
                    let mut changes = Vec::new();
                    for (number, item) in shared.iter().enumerate() {
                        match watched.changes(std::slice::from_ref(item), item.index())? {
                            Derived::Done((more, _)) => changes.extend(more),
                            Derived::Behind(_) => return Ok((changes, Some(number))),
                        }
                    }
                    Ok((changes, None))
                })
                .await?;
                changes = done;
                rest = behind.map(|number| items[number..].to_vec());
            }
            if let Some(rest) = rest {
                let (more, position) = self.together(rest, through).await?;
                changes.extend(more);
                // Commits up to the compaction point may be included: the group must not close
                // below them.
                through = through.max(position.index);
            }
            let Phase::Missed { held, through: end } = &mut self.phase else { return Ok(None) };
            *end = through;
            let mut encoded: Vec<Bytes> = held.take().into_iter().collect();
            encoded.extend(self.watched.encode_group(&changes, None).iter().cloned());
            *held = encoded.pop();
            if !encoded.is_empty() {
                return Ok(Some(vec![encoded.into()]));
            }
        }
    }

    /// Closes the group of missed changes at `through`: returns its last change, with the position.
    /// Without missed changes that is the state of the entity itself, because a first group must
    /// not be empty.
    fn close_missed(&mut self, through: LogIndex) -> Result<Arc<[Bytes]>, CloseReason> {
        let Phase::Missed { held, .. } = &mut self.phase else { return Ok(Vec::new().into()) };
        let held = held.take();
        let last = self
            .watched
            .store
            .read(|view| {
                let at = position(view, through);
                Ok(match held {
                    Some(held) => self.watched.encoder.close(held, at),
                    None => {
                        let itself = self.watched.itself(view, through.max(view.head().compacted_index()))?;
                        self.watched.encoder.encode(&itself, Some(at))
                    }
                })
            })
            .map_err(unreadable)?;
        self.phase = Phase::Live;
        Ok(vec![last].into())
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, CloseReason> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(unreadable),
        Err(_) => Err(CloseReason::Stopping),
    }
}
