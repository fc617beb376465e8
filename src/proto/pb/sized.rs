//! The codec of public services: protobuf, as tonic's own codec, with two differences. The buffer
//! of a message gets its size at once; tonic's grows by doubling, and copies what it has each time.
//! And a call begins with buffers for a small message, not with two of 8 KiB: those of hundreds of
//! calls at once exceed a thread's cache of freed memory, and go to the allocator's arenas.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Initial size of the buffers of a call, bytes. A received message of up to half of it fits: tonic
/// makes room for its length once more when it has read the length.
const BUFFER_BYTES: usize = 1 << 10;
/// Size of gathered messages at which they are passed to HTTP/2, bytes.
const GATHERED_BYTES: usize = 32 << 10;

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES)
}

/// Decodes the messages of a call, most of which are small.
pub fn small_decoder<U>() -> ProstDecoder<U> {
    ProstDecoder::new(buffers())
}

/// The codec of one side of a call: sends `T`, receives `U`.
pub struct SizedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SizedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SizedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SizedEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> SizedEncoder<T> {
        SizedEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        small_decoder()
    }
}

/// Encodes the messages that this side sends.
pub struct SizedEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SizedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode_raw(buffer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}
