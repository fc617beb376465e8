//! Follows the owner of a name: every owner that history still has, and every value of its key, in
//! order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

use super::turn::{begin_again, is_compacted, is_transient};
use super::{Locks, oldest, prefix_of};
use crate::{Consistency, KeyWatch, NodeError, Read, RequestContext, WatchQuery};
use headwater_stream::{CloseReason, Item, Kv, Session};
use headwater_types::{Access, ChangeKind, KeyRange, KeyValue, LogIndex, RangeQuery, ReadAt, Revision, Space};

/// Timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Owners and values that wait for a slow reader, count.
const QUEUED: usize = 16;

/// The key and value of an owner, with log index and revision of the state or change that has them.
pub type Observed = Read<KeyValue>;

type Sink = mpsc::Sender<Result<Observed, NodeError>>;

/// The owner of a name or its absence, as the last read or change shows it.
enum Known {
    Owner(Observed),
    /// The name had no owner at this revision.
    Nobody(Revision),
}

impl Locks<'_> {
    /// Yields the owner of the name as soon as there is one, then every change of the owner or of
    /// its value. Ends after an error.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] if too many requests observe or contend already.
    pub async fn observe(
        self,
        ctx: &RequestContext,
        name: &[u8],
    ) -> Result<impl Stream<Item = Result<Observed, NodeError>> + Send + use<>, NodeError> {
        self.node.admit(ctx).await?;
        let permit = self.node.contender_permit(ctx.client)?;
        let (sink, observed) = mpsc::channel(QUEUED);
        let (node, asker, prefix) = (self.node.clone(), self.node.stream_context(ctx)?, prefix_of(name));
        tokio::spawn(async move {
            let _permit = permit;
            let error = tokio::select! {
                biased;
                () = sink.closed() => return,
                () = node.streams_closing() => NodeError::Stopped,
                _ = node.inner.consensus.ended() => NodeError::Stopped,
                Err(error) = node.locks().send_owners(&asker, prefix, &sink) => error,
            };
            let _reader_gone = sink.send(Err(error)).await.is_err();
        });
        Ok(ReceiverStream::new(observed))
    }

    async fn send_owners(
        self,
        asker: &RequestContext,
        prefix: Bytes,
        sink: &Sink,
    ) -> Result<std::convert::Infallible, NodeError> {
        let mut known = self.find_owner(asker, &prefix, None).await?;
        loop {
            known = match known {
                Known::Owner(owner) => {
                    let (key, after) = (owner.value.key.clone(), owner.revision);
                    // The send fails if the reader has gone away; `observe` then cancels this task.
                    let _reader_gone = sink.send(Ok(owner)).await.is_err();
                    match self.send_values(asker, &key, after, sink).await? {
                        // Reads at the revision of the removal, so that no owner is skipped.
                        Some(removed_at) => self.find_owner(asker, &prefix, Some(removed_at)).await?,
                        None => self.find_owner(asker, &prefix, None).await?,
                    }
                }
                Known::Nobody(revision) => match self.first_put(asker, &prefix, revision).await? {
                    Some(owner) => Known::Owner(owner),
                    None => self.find_owner(asker, &prefix, None).await?,
                },
            };
        }
    }

    /// The owner of the name at the revision `at`. The current owner if `at` is `None` or was
    /// compacted.
    async fn find_owner(
        self,
        asker: &RequestContext,
        prefix: &Bytes,
        at: Option<Revision>,
    ) -> Result<Known, NodeError> {
        let mut at = at;
        loop {
            let ctx = asker.within_stream(READ_TIMEOUT);
            let (consistency, read_at) = match at {
                Some(revision) => (Consistency::Serializable, ReadAt::Revision(revision)),
                None => (Consistency::Linearizable, ReadAt::Current),
            };
            let query = RangeQuery { at: read_at, ..oldest(prefix.clone()) };
            match self.node.keys().range(&ctx, consistency, query).await {
                Ok(read) => {
                    let revision = at.unwrap_or(read.revision);
                    return Ok(match read.value.kvs.into_iter().next() {
                        Some(value) => Known::Owner(Read { index: read.index, revision, value }),
                        None => Known::Nobody(revision),
                    });
                }
                // The current owner, then: history has lost the owners in between.
                Err(error) if is_compacted(&error) => at = None,
                Err(error) if is_transient(&error) => self.pause().await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the values of the owner's key that were written after the revision `after`, until the
    /// key is removed. Returns the revision of the removal. `None` if history no longer has the
    /// changes since `after`, or the state is of another lineage: the caller must read the state.
    async fn send_values(
        self,
        asker: &RequestContext,
        key: &Bytes,
        after: Revision,
        sink: &Sink,
    ) -> Result<Option<Revision>, NodeError> {
        let mut changes = self.changes(asker, KeyRange::One(key.clone()), after);
        while let Some(item) = changes.next().await? {
            let Some(revision) = item.commit().revision() else { continue };
            for event in item.events() {
                if event.kind != ChangeKind::Put {
                    return Ok(Some(revision));
                }
                let _reader_gone =
                    sink.send(Ok(Read { index: item.index(), revision, value: event.kv.clone() })).await.is_err();
            }
        }
        Ok(None)
    }

    /// The key and value of the first contender after the revision `after`, at which there was
    /// none. Waits until there is one. `None` if history no longer has the changes since `after`,
    /// or the state is of another lineage: the caller must read the state.
    async fn first_put(
        self,
        asker: &RequestContext,
        prefix: &Bytes,
        after: Revision,
    ) -> Result<Option<Observed>, NodeError> {
        let mut changes = self.changes(asker, KeyRange::prefix(prefix.clone()), after);
        while let Some(item) = changes.next().await? {
            let Some(revision) = item.commit().revision() else { continue };
            if let Some(event) = item.events().find(|event| event.kind == ChangeKind::Put) {
                return Ok(Some(Read { index: item.index(), revision, value: event.kv.clone() }));
            }
        }
        Ok(None)
    }
}

impl<'a> Locks<'a> {
    fn changes(self, asker: &'a RequestContext, range: KeyRange, after: Revision) -> Changes<'a> {
        let (judged, rights) = (self.node.rights_changed(), self.node.rights_changes());
        Changes { locks: self, asker, range, after, open: None, judged, rights }
    }
}

/// The changes of an interval after a revision, in order. A watch that cannot be opened now is
/// opened later; one that was reset is opened again after the last change.
struct Changes<'a> {
    locks: Locks<'a>,
    asker: &'a RequestContext,
    range: KeyRange,
    after: Revision,
    open: Option<(Arc<Session>, KeyWatch)>,
    /// Log index of the last change of rights that the asker was checked against.
    judged: LogIndex,
    rights: WatchStream<LogIndex>,
}

impl Changes<'_> {
    /// The next commit that changes the interval; waits until there is one. `None` if history no
    /// longer has it, or the state is of another lineage: the caller must read the state.
    async fn next(&mut self) -> Result<Option<Item<Kv>>, NodeError> {
        loop {
            let Some((session, watch)) = &mut self.open else {
                match self.watch().await {
                    Ok((judged, open)) => (self.judged, self.open) = (judged, Some(open)),
                    Err(error) if is_compacted(&error) => return Ok(None),
                    Err(error) if is_transient(&error) => self.locks.pause().await,
                    Err(error) => return Err(error),
                }
                continue;
            };
            match watch.try_next() {
                Ok(Some(item)) => {
                    self.reauthorize()?;
                    self.after = item.commit().revision().unwrap_or(self.after);
                    return Ok(Some(item));
                }
                Ok(None) => tokio::select! {
                    _ = session.raised() => {}
                    _ = self.rights.next() => self.reauthorize()?,
                },
                Err(CloseReason::Reset) => self.open = None,
                Err(reason) => return begin_again(reason).map(|()| None),
            }
        }
    }

    /// Checks the asker's right again if any rights have changed since the last check.
    ///
    /// # Errors
    ///
    /// If the asker's right is gone.
    fn reauthorize(&mut self) -> Result<(), NodeError> {
        let changed = self.locks.node.rights_changed();
        if changed != self.judged {
            self.locks.node.authorize(self.asker, Space::Kv, &self.range, Access::READ)?;
            self.judged = changed;
        }
        Ok(())
    }

    /// A watch, with the log index of the last change of rights before the asker's right was
    /// checked for it.
    async fn watch(&self) -> Result<(LogIndex, (Arc<Session>, KeyWatch)), NodeError> {
        let (session, judged) = (Session::new(), self.locks.node.rights_changed());
        let ctx = self.asker.within_stream(READ_TIMEOUT);
        let query = WatchQuery { range: self.range.clone(), start: Some(self.after.next()) };
        let watch = self.locks.node.follow().keys(&ctx, query, &session, 0).await?;
        Ok((judged, (session, watch)))
    }
}
