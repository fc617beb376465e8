//! Frames of messages between members: each has a checksum, its number in the stream, and the id of
//! its call.
//!
//! TCP delivers bytes in order or not at all, but a broken proxy, a tunnel or bad memory between
//! two members may not. HTTP/2 and protobuf have no checksum, so bytes that were lost or swapped
//! may still be a valid message, with another log entry or another vote in it. Every message is
//! sent after a head of 16 bytes, little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | CRC-32C of the message's type name, the rest of the head, and the message |
//! | 4..8 | number of the message in its direction of the call, from 0 |
//! | 8..16 | the call: random, chosen by the caller, repeated by the answering side |
//!
//! A message with a wrong head ends its stream with `DATA_LOSS`. One that is no message of its type
//! ends it with `INVALID_ARGUMENT` on the answering side, and with `INTERNAL` on the caller's side:
//! the caller must not take an answer that it cannot decode for a refusal of its request.
//! Invariant: a receiver gets only messages that were sent in this call, unchanged, in order and
//! without a gap.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, BufMut};
use prost::{Message, Name};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

/// Length of the head before each message, bytes.
const HEAD_BYTES: usize = 16;
/// Most memory that an encoder keeps between messages, bytes.
const SCRATCH_KEPT_MAX: usize = 256 << 10;

/// Random id of a call, shared by encoder and decoder; unset on the answering side until its first
/// message.
type Call = Arc<OnceLock<u64>>;

/// The codec of one side of one call: sends `T`, receives `U`.
pub(crate) struct Checked<T, U> {
    call: Call,
    /// Whether this is the answering side: the decoder was made before the encoder.
    is_answering: bool,
    types: PhantomData<(T, U)>,
}

impl<T, U> Default for Checked<T, U> {
    fn default() -> Self {
        Self { call: Arc::default(), is_answering: false, types: PhantomData }
    }
}

impl<T, U> Codec for Checked<T, U>
where
    T: Message + Name + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = CheckedEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        // tonic makes a caller's encoder before its decoder, and the answering side's after it. A
        // caller chooses the id before it receives anything, so that it accepts no message of
        // another call.
        if !self.is_answering {
            self.call.get_or_init(rand::random);
        }
        CheckedEncoder { call: Arc::clone(&self.call), sent: 0, scratch: Vec::new(), message: PhantomData }
    }

    fn decoder(&mut self) -> Self::Decoder {
        self.is_answering = self.call.get().is_none();
        let malformed = if self.is_answering { Code::InvalidArgument } else { Code::Internal };
        CheckedDecoder { call: Arc::clone(&self.call), received: 0, malformed, message: PhantomData }
    }
}

/// Encodes the messages that this side sends.
pub(crate) struct CheckedEncoder<T> {
    call: Call,
    sent: u32,
    /// Memory for the encoded message: its checksum goes before it.
    scratch: Vec<u8>,
    message: PhantomData<T>,
}

impl<T: Message + Name> Encoder for CheckedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let message = &mut self.scratch;
        message.clear();
        message.reserve(item.encoded_len());
        item.encode_raw(message);
        let rest = rest_of_head(self.sent, *self.call.get_or_init(rand::random));
        self.sent = self.sent.wrapping_add(1);
        buffer.reserve(HEAD_BYTES + message.len());
        buffer.put_u32_le(checksum::<T>(&rest, message));
        buffer.put_slice(&rest);
        buffer.put_slice(message);
        if message.capacity() > SCRATCH_KEPT_MAX {
            *message = Vec::new();
        }
        Ok(())
    }
}

/// Decodes the messages that this side receives.
pub(crate) struct CheckedDecoder<U> {
    call: Call,
    received: u32,
    /// The code for bytes that are no message.
    malformed: Code,
    message: PhantomData<U>,
}

impl<U: Message + Name + Default> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let length = buffer.remaining();
        if length < HEAD_BYTES {
            return Err(damaged("it is too short"));
        }
        let sum = buffer.get_u32_le();
        let mut rest = [0; HEAD_BYTES - 4];
        buffer.copy_to_slice(&mut rest);
        let message = buffer.copy_to_bytes(length - HEAD_BYTES);
        if checksum::<U>(&rest, &message) != sum {
            return Err(damaged("its checksum does not fit"));
        }
        let (mut number, mut call) = (&rest[..4], &rest[4..]);
        let (number, call) = (number.get_u32_le(), call.get_u64_le());
        if number != self.received {
            return Err(damaged("one before it is missing"));
        }
        if *self.call.get_or_init(|| call) != call {
            return Err(damaged("it belongs to another call"));
        }
        self.received = self.received.wrapping_add(1);
        U::decode(message)
            .map(Some)
            .map_err(|error| Status::new(self.malformed, format!("malformed peer message: {error}")))
    }
}

fn rest_of_head(number: u32, call: u64) -> [u8; HEAD_BYTES - 4] {
    let mut rest = [0; HEAD_BYTES - 4];
    rest[..4].copy_from_slice(&number.to_le_bytes());
    rest[4..].copy_from_slice(&call.to_le_bytes());
    rest
}

fn checksum<T: Name>(rest: &[u8], message: &[u8]) -> u32 {
    let named = crc32c::crc32c(T::NAME.as_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(named, rest), message)
}

fn damaged(how: &str) -> Status {
    Status::data_loss(format!("a message between members was damaged on the way: {how}"))
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use http_body_util::BodyExt;
    use tonic::codec::Streaming;

    use super::*;
    use crate::pb::peer as pb;

    /// The bytes of a gRPC stream with one message in it.
    fn framed(body: &[u8]) -> Vec<u8> {
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(body.len() as u32);
        framed.put_slice(body);
        framed.to_vec()
    }

    /// The head and the encoded message, without the prefix of gRPC.
    fn body_of<T: Message + Name + Clone>(number: u32, call: u64, message: &T) -> Vec<u8> {
        let (rest, encoded) = (rest_of_head(number, call), message.encode_to_vec());
        [&checksum::<T>(&rest, &encoded).to_le_bytes()[..], &rest, &encoded].concat()
    }

    async fn read<U: Message + Name + Default + 'static>(
        decoder: CheckedDecoder<U>,
        bytes: Vec<u8>,
    ) -> Result<Vec<U>, Status> {
        let body = http_body_util::Full::new(Bytes::from(bytes)).map_err(|never| match never {});
        let mut stream = Streaming::new_request(decoder, body, None, None);
        let mut messages = Vec::new();
        while let Some(message) = stream.message().await? {
            messages.push(message);
        }
        Ok(messages)
    }

    fn answering<U: Message + Name + Default + Send + 'static>() -> CheckedDecoder<U> {
        Checked::<U, U>::default().decoder()
    }

    fn index(index: u64) -> pb::LogId {
        pb::LogId { term: 3, index }
    }

    #[tokio::test]
    async fn whole_streams_are_read() {
        let stream = [framed(&body_of(0, 9, &index(5))), framed(&body_of(1, 9, &index(6)))].concat();
        assert_eq!(read::<pb::LogId>(answering(), stream).await.unwrap(), [index(5), index(6)]);
        let empty = framed(&body_of(0, 9, &pb::HelloRequest::default()));
        assert_eq!(read::<pb::HelloRequest>(answering(), empty).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn an_encoder_writes_large_and_small_messages_that_are_read_back() {
        let message = |len: usize| pb::ProposeRequest { commands: vec![Bytes::from(vec![7; len])] };
        let sent = [0, 2 * SCRATCH_KEPT_MAX, 3, 1000, 3, 0].map(message);
        let encoder = Checked::<pb::ProposeRequest, pb::ProposeRequest>::default().encoder();
        let source = tokio_stream::iter(sent.clone().map(Ok));
        let body = tonic::codec::EncodeBody::new_client(encoder, source, None, None);
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(read(answering::<pb::ProposeRequest>(), bytes.to_vec()).await.unwrap(), sent);
    }

    #[test]
    fn golden_bytes() {
        // Computed by another program. Members of other versions write and read these bytes.
        let written: String = body_of(0, 9, &index(5)).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, "98d6516d00000000090000000000000008031005");
    }

    #[tokio::test]
    async fn every_swapped_byte_is_noticed() {
        let body = body_of(0, 9, &index(500));
        for at in 0..body.len() {
            let mut swapped = body.clone();
            swapped[at] ^= 1;
            let error = read::<pb::LogId>(answering(), framed(&swapped)).await.unwrap_err();
            assert_eq!(error.code(), tonic::Code::DataLoss, "byte {at}");
            let error = read::<pb::LogId>(answering(), framed(&body[..at])).await.unwrap_err();
            assert_eq!(error.code(), tonic::Code::DataLoss, "cut at {at}");
        }
    }

    #[tokio::test]
    async fn whole_messages_that_are_missing_or_strange_are_noticed() {
        let first = framed(&body_of(0, 9, &index(5)));
        for (second, why) in [
            (framed(&body_of(2, 9, &index(7))), "missing"),
            (framed(&body_of(0, 9, &index(5))), "missing"),
            (framed(&body_of(1, 8, &index(6))), "another call"),
            (framed(&body_of(1, 9, &pb::Accepted { last: None })), "checksum"),
        ] {
            let error = read::<pb::LogId>(answering(), [first.clone(), second].concat()).await.unwrap_err();
            assert_eq!(error.code(), tonic::Code::DataLoss);
            assert!(error.message().contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_message_are_an_invalid_request_or_a_failed_answer() {
        let no_message = |call| {
            let (rest, bytes) = (rest_of_head(0, call), [0x07]);
            framed(&[&checksum::<pb::LogId>(&rest, &bytes).to_le_bytes()[..], &rest, &bytes].concat())
        };
        let error = read::<pb::LogId>(answering(), no_message(9)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        let mut caller = Checked::<pb::LogId, pb::LogId>::default();
        let call = *caller.encoder().call.get().unwrap();
        let error = read::<pb::LogId>(caller.decoder(), no_message(call)).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{error}");
    }

    #[tokio::test]
    async fn a_caller_takes_only_answers_to_its_own_call() {
        let mut codec = Checked::<pb::LogId, pb::LogId>::default();
        let encoder = codec.encoder();
        let call = *encoder.call.get().unwrap();
        let answer = framed(&body_of(0, call, &index(5)));
        assert_eq!(read::<pb::LogId>(codec.decoder(), answer).await.unwrap(), [index(5)]);
        let foreign = framed(&body_of(0, call ^ 1, &index(5)));
        assert!(read::<pb::LogId>(codec.decoder(), foreign).await.unwrap_err().message().contains("another call"));
    }
}
