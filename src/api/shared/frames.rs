//! Messages that are encoded before they reach the codec, so that one encoding serves many streams.
//!
//! A frame has a head of its own, and tails that it shares by reference. tonic gathers messages in
//! one buffer for each stream, so a tail is copied once for each stream that sends it, from the
//! shared bytes into that buffer; from there it goes to the HTTP/2 frame by reference.

use std::marker::PhantomData;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use smallvec::SmallVec;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use headwater_proto::pb::small_decoder;

/// An encoded message: a head that belongs to this frame, then tails whose bytes other frames may
/// share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    head: BytesMut,
    tails: EncodedFields,
}

/// Encoded fields of a message, in their order; most often one.
pub type EncodedFields = SmallVec<[Bytes; 1]>;

/// Initial size of a stream's send buffer, bytes. tonic's default would be more than half of the
/// memory of an idle stream.
const BUFFER_BYTES: usize = 512;
/// Size of gathered messages at which they are passed to HTTP/2, bytes.
const GATHERED_BYTES: usize = 32 << 10;

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
    fn len(&self) -> usize {
        self.head.len() + self.tails.iter().map(Bytes::len).sum::<usize>()
    }

    /// The whole message, copied. For tests: a stream copies a frame into its buffer only.
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

/// tonic's codec of a method that answers with frames: decodes requests as protobuf, and copies
/// frames.
pub(crate) struct FrameCodec<M>(PhantomData<M>);

impl<M> Default for FrameCodec<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: Message + Default + Send + 'static> Codec for FrameCodec<M> {
    type Encode = Frame;
    type Decode = M;
    type Encoder = FrameEncoder;
    type Decoder = ProstDecoder<M>;

    fn encoder(&mut self) -> FrameEncoder {
        FrameEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<M> {
        small_decoder()
    }
}

/// Copies frames into tonic's buffer.
pub(crate) struct FrameEncoder;

impl Encoder for FrameEncoder {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(frame.len());
        to.put_slice(&frame.head);
        for tail in &frame.tails {
            to.put_slice(tail);
        }
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES)
    }
}

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
