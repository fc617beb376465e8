//! `WatchList`: a list, its end, then every change that the client may read. A stream that resumes
//! begins with the end of the list.
//!
//! A stream pulls: it buffers no events that its client has not taken. Each change is encoded once
//! for all streams.

use std::convert::Infallible;

use bytes::Bytes;
use prost::Message;
use tonic::{Response, Status};

use super::errors::{Failure, stream_ended};
use super::service::{Call, ResourceService};
use super::{metadata, validate};
use headwater_api_shared::context;
use headwater_api_shared::frames::{Frame, Frames};
use headwater_api_shared::stream::{Driver, Outbox, StreamEnd, StreamService};
use headwater_node::{
    Item, ListingStep, Node, RequestContext, ResourceError, ResourceWatch, Resources, Session, WatchStart,
};
use headwater_proto::pb::pbresource as pb;
use headwater_proto::pb::pbresource::watch_event::{Delete, EndOfSnapshot, Event, Upsert};
use headwater_types::resource::{Resource, Tenancy, WILDCARD};
use headwater_types::{ChangeKind, LogIndex, ResourceEvent};

/// Answers `WatchList` with a stream.
pub(super) async fn open(
    service: ResourceService,
    call: Call<pb::WatchListRequest>,
) -> Result<Response<Frames>, Failure> {
    let pb::WatchListRequest { r#type, tenancy, name_prefix } = call.message;
    let everywhere = Tenancy::new(WILDCARD, WILDCARD);
    let selector = validate::selector(r#type, tenancy, name_prefix, Some(everywhere))?;
    let start = metadata::watch_start(&call.metadata)?;
    let deadline = context::client_deadline(&call.metadata)?;
    let node = &service.node;
    let session = Session::new();
    let context = node.stream_context(&call.context).map_err(ResourceError::from)?;
    let watch = node.follow().resources(&context, selector, start, &session, listed).await?;
    let applied = *node.applied().borrow();
    let mut driver = Driver::new(node, &service.metrics, session, WatchList { watch, context }).until(deadline);
    if let WatchStart::After(position) = start {
        // Clients that wait for the end of a list have it at once.
        driver = driver.begins_with(end_of_list(position.index));
    }
    Ok(context::reply_with_epoch(node.epoch(), applied, driver.into_frames()))
}

struct WatchList {
    watch: ResourceWatch,
    context: RequestContext,
}

impl StreamService for WatchList {
    type Request = Infallible;

    fn status(end: StreamEnd) -> Status {
        stream_ended(end)
    }

    async fn advance(&mut self, out: &mut Outbox) -> Result<bool, StreamEnd> {
        match self.watch.try_next()? {
            Some(ListingStep::Listed(encoded)) => out.push(whole(encoded)),
            Some(ListingStep::EndOfList(index)) => out.push(end_of_list(index)),
            Some(ListingStep::Changed(item)) => {
                push_changes(&self.watch, &item, out);
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    fn rejudge(&mut self, node: &Node, _: &mut Outbox) -> Result<(), StreamEnd> {
        self.watch.rejudge(node, &self.context).map_err(StreamEnd::RightsChanged)
    }

    async fn handle(&mut self, request: Infallible, _: &mut Outbox) -> Result<(), StreamEnd> {
        match request {}
    }
}

/// The frame of a completely encoded message.
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

/// Pushes the changes of one command that the client may read, each encoded once for all streams.
fn push_changes(watch: &ResourceWatch, item: &Item<Resources>, out: &mut Outbox) {
    let commit = item.commit();
    for position in item.positions() {
        let event = &commit.events()[position];
        if !watch.shows(event) {
            continue;
        }
        out.events_sent(1);
        let encoded = commit.encoded(position, || changed(event, commit.index()));
        out.push(whole(encoded.clone()));
    }
}

fn changed(event: &ResourceEvent, index: LogIndex) -> Bytes {
    let resource = Some(Resource::clone(&event.resource).into());
    let event = match event.kind {
        ChangeKind::Put => Event::Upsert(Upsert { resource }),
        ChangeKind::Delete | ChangeKind::Expire => Event::Delete(Delete { resource }),
    };
    pb::WatchEvent { event: Some(event), headwater_index: index.get() }.encode_to_vec().into()
}
