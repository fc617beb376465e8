//! Responses of the watch service as frames.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use smallvec::{SmallVec, smallvec};

use headwater_api_shared::frames::{EncodedFields, Frame, field};
use headwater_api_shared::key_value::key_value;
use headwater_node::{Encoding, Item, Kv};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::mvccpb::{self, event::EventType};
use headwater_types::{ChangeKind, KeyValue, KvEvent};

/// Number of the field of the events in a response.
const EVENTS: u32 = 11;

/// Change number `position` of its commit, encoded as one `events` field of a `WatchResponse`. The
/// bytes are kept with the commit for all streams, once with `prev_kv` and once without. With
/// `prev_kv`, the caller must have resolved the predecessors of the commit before.
pub(super) fn event(item: &Item<Kv>, position: usize, prev_kv: bool) -> Bytes {
    let commit = item.commit();
    let event = &commit.events()[position];
    if prev_kv {
        let prev = commit.prev(position).flatten();
        commit.encoded(position, Encoding::EtcdWithPrev, || field(EVENTS, &message(event, prev))).clone()
    } else {
        commit.encoded(position, Encoding::Etcd, || field(EVENTS, &message(event, None))).clone()
    }
}

/// Appends the changes of `item`, each as [`event`] encodes it without `prev_kv`.
pub(super) fn append(item: &Item<Kv>, to: &mut BytesMut) {
    item.positions().for_each(|position| to.put_slice(&event(item, position, false)));
}

fn message(event: &KvEvent, prev: Option<&KeyValue>) -> mvccpb::Event {
    let kind = match event.kind {
        ChangeKind::Put => EventType::Put,
        // This API does not distinguish expiry from deletion.
        ChangeKind::Delete | ChangeKind::Expire => EventType::Delete,
    };
    mvccpb::Event { r#type: kind.into(), kv: Some(key_value(event.kv.clone())), prev_kv: prev.cloned().map(key_value) }
}

/// One response with the events, or several if it would have `bytes_max` bytes or more and may be
/// split (spec: etcd §2.1). Each of several has less than `bytes_max` bytes, unless one event alone
/// is larger. All but the last are marked as fragments. An event is never split.
pub(super) fn responses(
    head: pb::WatchResponse,
    events: EncodedFields,
    may_split: bool,
    bytes_max: usize,
) -> SmallVec<[Frame; 1]> {
    let len: usize = events.iter().map(Bytes::len).sum();
    if !may_split || events.len() < 2 || head.encoded_len() + len < bytes_max {
        return smallvec![Frame::with_tails(&head, events)];
    }
    let fragment = pb::WatchResponse { fragment: true, ..head.clone() };
    let head_len = fragment.encoded_len();
    let mut frames = SmallVec::new();
    let mut tails = EncodedFields::new();
    let mut len = head_len;
    for event in events {
        if !tails.is_empty() && len + event.len() >= bytes_max {
            frames.push(Frame::with_tails(&fragment, std::mem::take(&mut tails)));
            len = head_len;
        }
        len += event.len();
        tails.push(event);
    }
    frames.push(Frame::with_tails(&head, tails));
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pieces_but_the_last_say_that_more_follows() {
        let head = pb::WatchResponse { watch_id: 3, ..Default::default() };
        let event = |number: u8| {
            let kv = mvccpb::KeyValue { key: vec![number; 20].into(), ..Default::default() };
            field(EVENTS, &mvccpb::Event { kv: Some(kv), ..Default::default() })
        };
        let events: EncodedFields = (0..5).map(event).collect();
        let fragments = |events: &[Bytes], may_split, bytes_max| {
            let frames = responses(head.clone(), events.iter().cloned().collect(), may_split, bytes_max);
            let fragments = frames.iter().map(|frame| pb::WatchResponse::decode(frame.to_bytes()).unwrap());
            fragments.map(|response| (response.watch_id, response.fragment, response.events.len())).collect::<Vec<_>>()
        };
        assert_eq!(fragments(&events, true, 60), [(3, true, 2), (3, true, 2), (3, false, 1)]);
        assert_eq!(fragments(&events, false, 60), [(3, false, 5)]);
        assert_eq!(fragments(&events, true, 1000), [(3, false, 5)]);
        assert_eq!(fragments(&events[..1], true, 1), [(3, false, 1)]);
        assert_eq!(fragments(&events[..2], true, 1), [(3, true, 1), (3, false, 1)]);
    }
}
