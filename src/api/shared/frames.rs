//! Messages of streams, encoded before they are sent, so that one encoding serves many streams.
//!
//! A frame has a head of its own, and tails that it shares by reference. `frame_body` makes them
//! the body of an answer.

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::BoxStream;
use prost::Message;
use smallvec::SmallVec;
use tonic::Status;

/// An encoded message: a head that belongs to this frame, then tails whose bytes other frames may
/// share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub(super) head: BytesMut,
    pub(super) tails: EncodedFields,
}

/// Encoded fields of a message, in their order; most often one.
pub type EncodedFields = SmallVec<[Bytes; 1]>;

impl Frame {
    /// A message with the fields of `head`.
    pub fn new(head: &impl Message) -> Self {
        let mut bytes = BytesMut::with_capacity(head.encoded_len());
        head.encode_raw(&mut bytes);
        Self { head: bytes, tails: EncodedFields::new() }
    }

    /// As [`new`](Self::new), followed by the encoded fields `tails`.
    pub fn with_tails(head: &impl Message, tails: impl Into<EncodedFields>) -> Self {
        Self { tails: tails.into(), ..Self::new(head) }
    }

    /// Length of the message, bytes.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.tails.iter().map(Bytes::len).sum::<usize>()
    }

    /// The whole message, copied. For tests.
    pub fn to_bytes(&self) -> Bytes {
        let mut all = self.head.clone();
        self.tails.iter().for_each(|tail| all.put_slice(tail));
        all.freeze()
    }
}

/// `message` as the field with number `tag` of another message: the field's key, the length and the
/// bytes.
pub fn field(tag: u32, message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.encoded_len() + 12);
    prost::encoding::message::encode(tag, message, &mut bytes);
    bytes.freeze()
}

/// The frames of a stream. An error is the status with which the stream ends, and its last item.
pub type Frames = BoxStream<'static, Result<Frame, Status>>;

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::etcdserverpb::{ResponseHeader, WatchResponse};
    use headwater_proto::pb::mvccpb::{Event, KeyValue};

    #[test]
    fn a_frame_reads_as_the_whole_message() {
        let event = |key: &'static str| Event {
            kv: Some(KeyValue { key: key.into(), value: vec![7; 300].into(), ..Default::default() }),
            ..Default::default()
        };
        let head = WatchResponse {
            header: Some(ResponseHeader { revision: 9, ..Default::default() }),
            watch_id: -1,
            fragment: true,
            ..Default::default()
        };
        let frame = Frame::with_tails(&head, vec![field(11, &event("a")), field(11, &event("b"))]);
        let whole = WatchResponse { events: vec![event("a"), event("b")], ..head };
        assert_eq!(frame.to_bytes(), whole.encode_to_vec());
        assert_eq!(frame.len(), whole.encoded_len());
    }
}
