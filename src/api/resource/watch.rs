//! `WatchList`: a list, its end, then every change.
//!
//! A stream pulls: untaken events are not in memory. Each change is encoded once for all streams.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::Stream;
use futures::stream::{self, StreamExt};
use prost::Message;
use tonic::{Response, Status};

use super::errors::{Failure, closed};
use super::service::{Call, ResourceService};
use super::{metadata, validate};
use crate::shared::context::{self, HEADWATER_EPOCH, HEADWATER_INDEX};
use crate::shared::frames::Frame;
use crate::shared::patience::{Over, Patience, expired};
use crate::shared::stream_metrics::{StreamGuard, WatchMetrics};
use crate::shared::watch_service::Frames;
use headwater_node::{CloseReason, Item, ResourceWatch, Resources, Session, Told, WatchStart};
use headwater_proto::pb::pbresource as pb;
use headwater_proto::pb::pbresource::watch_event::{Delete, EndOfSnapshot, Event, Upsert};
use headwater_types::resource::{Resource, Tenancy, WILDCARD};
use headwater_types::{ChangeKind, LogIndex, ResourceEvent};

/// Begins a stream.
pub(super) async fn open(
    service: ResourceService,
    call: Call<pb::WatchListRequest>,
) -> Result<Response<Frames>, Failure> {
    let pb::WatchListRequest { r#type, tenancy, name_prefix } = call.message;
    let everywhere = Tenancy::new(WILDCARD, WILDCARD);
    let selector = validate::selector(r#type, tenancy, name_prefix, Some(everywhere))?;
    let start = metadata::watch_start(&call.metadata)?;
    let until = context::patience(&call.metadata)?;
    let session = Session::new();
    let watch = service.node.watch_resources(&call.context, selector, start, &session, listed).await?;
    let index = *service.node.applied().borrow();
    let mut queue = VecDeque::new();
    if let WatchStart::After(position) = start {
        // Whoever waits for the end of a list before they go on has it.
        queue.push_back(end_of_list(position.index));
    }
    let stream = WatchStream {
        watch,
        patience: Patience::new(&service.node, session, until),
        queue,
        _counted: service.metrics.stream(),
        metrics: service.metrics,
    };
    let mut response = Response::new(stream.into_frames().boxed());
    let headers = response.metadata_mut().as_mut();
    headers.insert(HEADWATER_INDEX, index.get().into());
    if let Some(epoch) = service.node.epoch() {
        headers.insert(HEADWATER_EPOCH, context::write_epoch(epoch));
    }
    Ok(response)
}

struct WatchStream {
    watch: ResourceWatch,
    patience: Patience,
    /// Encoded and not yet taken: the rest of one command.
    queue: VecDeque<Frame>,
    _counted: StreamGuard,
    metrics: WatchMetrics,
}

impl WatchStream {
    fn into_frames(self) -> impl Stream<Item = Result<Frame, Status>> + Send + 'static {
        stream::unfold(Some(self), |stream| async {
            let mut stream = stream?;
            match stream.next().await {
                Ok(frame) => Some((Ok(frame), Some(stream))),
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Frame, Status> {
        loop {
            if let Some(frame) = self.queue.pop_front() {
                return Ok(frame);
            }
            match self.watch.try_next().map_err(|reason| closed(&reason))? {
                Some(Told::Listed(encoded)) => return Ok(whole(encoded)),
                Some(Told::EndOfList(index)) => return Ok(end_of_list(index)),
                Some(Told::Changed(item)) => {
                    self.metrics.events_sent(item.len());
                    self.queue.extend(frames(&item));
                }
                None => self.wait().await?,
            }
        }
    }

    /// Waits until there may be something to read.
    async fn wait(&mut self) -> Result<(), Status> {
        self.patience.wait().await.map_err(|over| match over {
            Over::Stopping => closed(&CloseReason::Stopping),
            Over::Expired => expired(),
        })
    }
}

/// A message that was encoded as a whole.
fn whole(encoded: Bytes) -> Frame {
    Frame::with_tails(&pb::WatchEvent::default(), [encoded])
}

/// A resource of the list, encoded.
fn listed(resource: Resource) -> Bytes {
    let event = Event::Upsert(Upsert { resource: Some(resource.into()) });
    pb::WatchEvent { event: Some(event), headwater_index: 0 }.encode_to_vec().into()
}

fn end_of_list(index: LogIndex) -> Frame {
    Frame::new(&pb::WatchEvent { event: Some(Event::EndOfSnapshot(EndOfSnapshot {})), headwater_index: index.get() })
}

/// The changes of one command, each encoded once for all streams.
fn frames(item: &Item<Resources>) -> Vec<Frame> {
    let commit = item.commit();
    let encoded = |position: usize| {
        let event = &commit.events()[position];
        commit.encoded(position, || changed(event, commit.index())).clone()
    };
    item.positions().map(|position| whole(encoded(position))).collect()
}

fn changed(event: &ResourceEvent, index: LogIndex) -> Bytes {
    let resource = Some(Resource::clone(&event.resource).into());
    let event = match event.kind {
        ChangeKind::Put => Event::Upsert(Upsert { resource }),
        ChangeKind::Delete | ChangeKind::Expire => Event::Delete(Delete { resource }),
    };
    pb::WatchEvent { event: Some(event), headwater_index: index.get() }.encode_to_vec().into()
}
