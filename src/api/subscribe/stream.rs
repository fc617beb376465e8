//! The messages of a stream, in the grammar of spec consul §1.6.
//!
//! A stream reads its next events only after the client has taken the earlier ones. A payload is
//! encoded once for all streams; only its index and framing, a few bytes around it, differ between
//! streams.

use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;

use super::errors::stream_ended;
use super::reader::Reader;
use headwater_api_shared::frames::Frame;
use headwater_api_shared::stream::{Outbox, StreamEnd, StreamService};
use headwater_node::{Catalog, CatalogListing, CatalogWatch, Encode, Item, ListingStep, Node, Watching};
use headwater_proto::pb::subscribe::Event;
use headwater_proto::pb::subscribe::event::Payload;
use headwater_types::LogIndex;
use headwater_types::limits::SUBSCRIBE_LIST_BYTES_MAX;

/// Protobuf key (number and wire type) of the field `Event.EventBatch`, which is written by hand.
const EVENT_BATCH: u8 = 4 << 3 | 2;
/// Protobuf key of the field `EventBatch.Events`.
const BATCH_EVENTS: u8 = 1 << 3 | 2;
/// Protobuf key of the field `Event.Index`.
const EVENT_INDEX: u8 = 1 << 3;
/// Upper bound of the overhead of a payload in a batch, bytes: two keys, a length and an index.
const EVENT_HEAD_BYTES_MAX: usize = 24;

/// The stream of one subscription.
pub(super) struct EventStream {
    listing: CatalogListing,
    /// Whether the client must replace its state, and `NewSnapshotToFollow`, which tells it so, is
    /// not sent yet.
    starts_over: bool,
    /// Payloads of a list that is sent in as few messages as possible; `None` if each row of the
    /// list is a message.
    gathered: Option<PayloadBuffer>,
    encode: Encode,
    reader: Reader,
    _watching: Watching,
}

impl EventStream {
    /// The stream of a watch. With `is_of_names`, names are sent together in few messages, because
    /// they are small; otherwise instances are sent one by one (spec: consul §1.6).
    pub(super) fn new(watch: CatalogWatch, encode: Encode, is_of_names: bool, reader: Reader) -> Self {
        let CatalogWatch { listing, starts_over, watching } = watch;
        let gathered = is_of_names.then(PayloadBuffer::default);
        Self { listing, starts_over, gathered, encode, reader, _watching: watching }
    }
}

impl StreamService for EventStream {
    type Request = Infallible;

    fn status(end: StreamEnd) -> Status {
        stream_ended(end)
    }

    async fn advance(&mut self, out: &mut Outbox) -> Result<bool, StreamEnd> {
        if std::mem::take(&mut self.starts_over) {
            out.message(&Event { index: 0, payload: Some(Payload::NewSnapshotToFollow(true)) });
            return Ok(true);
        }
        // Events were committed before they are read: a right that was gone at the commit is known
        // to be gone at this check.
        let step = self.listing.try_next()?;
        self.reader.check()?;
        let Some(step) = step else { return Ok(false) };
        let payloads = match step {
            ListingStep::Listed(payload) => {
                if !self.reader.sees_payload(&payload) {
                    return Ok(true);
                }
                let Some(gathered) = &mut self.gathered else {
                    out.push(single(snapshot_index(&self.listing), payload));
                    return Ok(true);
                };
                gathered.extend([payload]);
                gathered.take_if_full()
            }
            ListingStep::EndOfList(_) => {
                let index = snapshot_index(&self.listing);
                let payloads = self.gathered.as_mut().map(PayloadBuffer::take).unwrap_or_default();
                if !payloads.is_empty() {
                    out.push(message(index, payloads));
                }
                out.message(&Event { index: index.get(), payload: Some(Payload::EndOfSnapshot(true)) });
                return Ok(true);
            }
            ListingStep::Changed(item) => {
                let payloads = payloads(&item, &self.encode, &self.reader);
                if payloads.is_empty() {
                    return Ok(true);
                }
                out.events_sent(payloads.len());
                if !self.listing.is_listing() {
                    out.push(message(item.index(), payloads));
                    return Ok(true);
                }
                match &mut self.gathered {
                    Some(gathered) => {
                        gathered.extend(payloads);
                        gathered.take_if_full()
                    }
                    None => Some(payloads),
                }
            }
        };
        // All messages of a snapshot have the same index, until its end.
        if let Some(payloads) = payloads {
            out.push(message(snapshot_index(&self.listing), payloads));
        }
        Ok(true)
    }

    /// Ends the stream if the rights of its token have changed: the client begins again, with the
    /// list of its new rights.
    fn rejudge(&mut self, _: &Node, _: &mut Outbox) -> Result<(), StreamEnd> {
        self.reader.check()
    }

    async fn handle(&mut self, request: Infallible, _: &mut Outbox) -> Result<(), StreamEnd> {
        match request {}
    }
}

/// Payloads of a snapshot that are sent together: in one message, or in several if they exceed the
/// size of one.
#[derive(Default)]
struct PayloadBuffer {
    payloads: Vec<Bytes>,
    len_bytes: usize,
}

impl PayloadBuffer {
    fn extend(&mut self, payloads: impl IntoIterator<Item = Bytes>) {
        for payload in payloads {
            self.len_bytes += payload.len() + EVENT_HEAD_BYTES_MAX;
            self.payloads.push(payload);
        }
    }

    fn take_if_full(&mut self) -> Option<Vec<Bytes>> {
        (self.len_bytes >= SUBSCRIBE_LIST_BYTES_MAX).then(|| self.take())
    }

    fn take(&mut self) -> Vec<Bytes> {
        std::mem::take(self).payloads
    }
}

/// The index of messages of a snapshot. At least 1, because 0 means "no view" to a client.
fn snapshot_index(listing: &CatalogListing) -> LogIndex {
    listing.index().max(LogIndex(1))
}

/// An event with one payload, which is encoded as a field of it.
fn single(index: LogIndex, payload: Bytes) -> Frame {
    Frame::with_tails(&Event { index: index.get(), payload: None }, [payload])
}

/// The encoded changes of one command that the reader may see.
fn payloads(item: &Item<Catalog>, encode: &Encode, reader: &Reader) -> Vec<Bytes> {
    let commit = item.commit();
    let payload = |position: usize| commit.encoded(position, || encode(&commit.events()[position])).clone();
    item.positions().filter(|position| reader.sees(&commit.events()[*position])).map(payload).collect()
}

/// One payload as an event, or several as a batch of events with the same index.
fn message(index: LogIndex, mut payloads: Vec<Bytes>) -> Frame {
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
        let mut head = BytesMut::with_capacity(EVENT_HEAD_BYTES_MAX);
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

    use super::*;
    use headwater_api_shared::frames::field;
    use headwater_proto::pb::subscribe::{CatalogOp, EventBatch, ServiceListUpdate, SubscribeRequest};

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
