//! The messages of a stream, in the grammar of spec consul §1.6.
//!
//! A stream pulls: what its client does not take is not in memory. A payload is encoded once for all streams; what differs
//! between them, index and framing, are some bytes around it.

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use futures::stream;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;

use super::super::frames::Frame;
use super::super::patience::{Over, Patience, expired};
use super::super::watch_metrics::{StreamGuard, WatchMetrics};
use super::errors::closed;
use crate::node::{Catalog, CatalogListing, CatalogWatch, CloseReason, Encode, Item, Told};
use crate::pb::subscribe::Event;
use crate::pb::subscribe::event::Payload;
use crate::types::LogIndex;

/// Keys of the fields that are written by hand: `Event.EventBatch`, `EventBatch.Events`, `Event.Index`.
const EVENT_BATCH: u8 = 4 << 3 | 2;
const BATCH_EVENTS: u8 = 1 << 3 | 2;
const EVENT_INDEX: u8 = 1 << 3;

pub(super) struct EventStream {
    listing: CatalogListing,
    /// The client has a state that it must replace, and was not told yet.
    starts_over: bool,
    patience: Patience,
    encode: Encode,
    _counted: StreamGuard,
    metrics: WatchMetrics,
}

impl EventStream {
    pub(super) fn new(watch: CatalogWatch, patience: Patience, metrics: WatchMetrics, encode: Encode) -> Self {
        let CatalogWatch { listing, starts_over } = watch;
        Self { listing, starts_over, patience, encode, _counted: metrics.stream(), metrics }
    }

    pub(super) fn into_frames(self) -> impl Stream<Item = Result<Frame, Status>> + Send + 'static {
        stream::unfold(Some(self), |stream| async {
            let mut stream = stream?;
            match stream.next().await {
                Ok(frame) => Some((Ok(frame), Some(stream))),
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Frame, Status> {
        if std::mem::take(&mut self.starts_over) {
            return Ok(Frame::new(&Event { index: 0, payload: Some(Payload::NewSnapshotToFollow(true)) }));
        }
        loop {
            match self.listing.try_next().map_err(|reason| closed(&reason))? {
                Some(Told::Listed(payload)) => return Ok(single(snapshot_index(&self.listing), payload)),
                Some(Told::EndOfList(_)) => {
                    let index = snapshot_index(&self.listing).get();
                    return Ok(Frame::new(&Event { index, payload: Some(Payload::EndOfSnapshot(true)) }));
                }
                Some(Told::Changed(item)) => {
                    self.metrics.events_sent(item.len());
                    // Before its end a snapshot is of one index, which no message of it is below.
                    let is_snapshot = self.listing.is_listing();
                    let index = if is_snapshot { snapshot_index(&self.listing) } else { item.index() };
                    return Ok(changed(&item, index, &self.encode));
                }
                None => self.patience.wait().await.map_err(|over| match over {
                    Over::Stopping => closed(&CloseReason::Stopping),
                    Over::Expired => expired(),
                })?,
            }
        }
    }
}

/// 0 means "no view" to a client, so that no snapshot may have it.
fn snapshot_index(listing: &CatalogListing) -> LogIndex {
    listing.index().max(LogIndex(1))
}

/// An event with a payload that was encoded as a field of it.
fn single(index: LogIndex, payload: Bytes) -> Frame {
    Frame::with_tails(&Event { index: index.get(), payload: None }, [payload])
}

/// What one command changed: an event, or a batch of several, which all have the same index.
fn changed(item: &Item<Catalog>, index: LogIndex, encode: &Encode) -> Frame {
    let commit = item.commit();
    let payload = |position: usize| commit.encoded(position, || encode(&commit.events()[position])).clone();
    let mut payloads: Vec<Bytes> = item.positions().map(payload).collect();
    match payloads.len() {
        1 => single(index, payloads.remove(0)),
        _ => batch(index, payloads),
    }
}

fn batch(index: LogIndex, payloads: Vec<Bytes>) -> Frame {
    let mut tails = Vec::with_capacity(2 * payloads.len() + 1);
    tails.push(Bytes::new());
    let mut len = 0;
    for payload in payloads {
        let mut head = BytesMut::with_capacity(24);
        let event_len = 1 + encoded_len_varint(index.get()) + payload.len();
        head.put_u8(BATCH_EVENTS);
        encode_varint(event_len as u64, &mut head);
        head.put_u8(EVENT_INDEX);
        encode_varint(index.get(), &mut head);
        len += head.len() + payload.len();
        tails.push(head.freeze());
        tails.push(payload);
    }
    let mut head = BytesMut::with_capacity(12);
    head.put_u8(EVENT_BATCH);
    encode_varint(len as u64, &mut head);
    tails[0] = head.freeze();
    Frame::with_tails(&Event { index: index.get(), payload: None }, tails)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::super::frames::field;
    use super::*;
    use crate::pb::subscribe::{CatalogOp, EventBatch, ServiceListUpdate, SubscribeRequest};

    fn update(name: &str) -> ServiceListUpdate {
        ServiceListUpdate { op: CatalogOp::Deregister.into(), name: name.to_owned(), ..Default::default() }
    }

    #[test]
    fn s39_golden_bytes() {
        let event = |payload| Event { index: 21, payload: Some(payload) }.encode_to_vec();
        assert_eq!(event(Payload::EndOfSnapshot(true)), [0x08, 0x15, 0x10, 0x01]);
        assert_eq!(event(Payload::NewSnapshotToFollow(true)), [0x08, 0x15, 0x18, 0x01]);
        #[expect(deprecated, reason = "older clients send it")]
        let request = SubscribeRequest { topic: 1, key: "web".to_owned(), index: 20, ..Default::default() };
        assert_eq!(request.encode_to_vec(), [0x08, 0x01, 0x12, 0x03, 0x77, 0x65, 0x62, 0x20, 0x14]);
        let announced = Frame::new(&Event { index: 0, payload: Some(Payload::NewSnapshotToFollow(true)) });
        assert_eq!(announced.to_bytes().as_ref(), [0x18, 0x01]);
    }

    #[test]
    fn frames_read_as_the_whole_messages() {
        let names = ["a", "b", "a-longer-name-that-takes-more-than-one-byte-of-length-".repeat(4).leak()];
        for index in [1, 127, 128, u64::MAX] {
            let whole = |name: &str| Event { index, payload: Some(Payload::Service(update(name))) };
            let payloads: Vec<Bytes> = names.iter().map(|name| field(12, &update(name))).collect();
            let one = single(LogIndex(index), payloads[0].clone());
            assert_eq!(Event::decode(one.to_bytes()).unwrap(), whole("a"));
            let all = batch(LogIndex(index), payloads);
            let events = names.iter().map(|name| whole(name)).collect();
            let wanted = Event { index, payload: Some(Payload::EventBatch(EventBatch { events })) };
            assert_eq!(all.to_bytes(), wanted.encode_to_vec());
        }
    }
}
