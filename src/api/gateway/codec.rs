//! Messages between the gateway and a service: encoded ones in, dynamic ones out.

use bytes::{BufMut, Bytes};
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The codec of one method.
pub(super) struct DynamicCodec {
    output: MessageDescriptor,
}

impl DynamicCodec {
    pub(super) fn new(output: MessageDescriptor) -> Self {
        Self { output }
    }
}

impl Codec for DynamicCodec {
    /// An error ends the request, and the service answers with it.
    type Encode = Result<Bytes, Status>;
    type Decode = DynamicMessage;
    type Encoder = EncodedMessages;
    type Decoder = DynamicDecoder;

    fn encoder(&mut self) -> EncodedMessages {
        EncodedMessages
    }

    fn decoder(&mut self) -> DynamicDecoder {
        DynamicDecoder { output: self.output.clone() }
    }
}

/// Hands on what is encoded already.
pub(super) struct EncodedMessages;

impl Encoder for EncodedMessages {
    type Item = Result<Bytes, Status>;
    type Error = Status;

    fn encode(&mut self, message: Self::Item, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let message = message?;
        to.reserve(message.len());
        to.put(message);
        Ok(())
    }
}

/// Decodes by descriptor.
pub(super) struct DynamicDecoder {
    output: MessageDescriptor,
}

impl Decoder for DynamicDecoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        DynamicMessage::decode(self.output.clone(), from)
            .map(Some)
            .map_err(|error| Status::internal(format!("headwater: an answer cannot be decoded: {error}; report this")))
    }
}
