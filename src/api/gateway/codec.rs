//! The codec of calls from the gateway to a service: requests are encoded already, answers stay
//! encoded.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

/// The status with which the encoder of requests failed. tonic replaces it by a text of its own, so
/// this carries it past tonic.
#[derive(Clone, Default)]
pub(super) struct Fault(Arc<Mutex<Option<Status>>>);

impl Fault {
    /// `body`, which fails with the encoder's status instead of tonic's error. A status `CANCELLED`
    /// becomes `ABORTED`.
    pub(super) fn explain(&self, body: Body) -> Body {
        let fault = self.clone();
        Body::new(body.map_err(move |error| fault.0.lock().take().map_or(error, aborted_if_cancelled)))
    }
}

/// Turns `CANCELLED` into `ABORTED`. tonic takes a cancelled request for a complete one, and a
/// watch would continue without its client.
fn aborted_if_cancelled(status: Status) -> Status {
    match status.code() {
        Code::Cancelled => Status::aborted(status.message()),
        _ => status,
    }
}

/// The codec of one call.
pub(super) struct EncodedCodec {
    fault: Fault,
}

impl EncodedCodec {
    pub(super) fn new(fault: Fault) -> Self {
        Self { fault }
    }
}

impl Codec for EncodedCodec {
    /// An error ends the request, and the service answers with it.
    type Encode = Result<Bytes, Status>;
    type Decode = Bytes;
    type Encoder = EncodedMessages;
    type Decoder = EncodedAnswers;

    fn encoder(&mut self) -> EncodedMessages {
        EncodedMessages { fault: self.fault.clone() }
    }

    fn decoder(&mut self) -> EncodedAnswers {
        EncodedAnswers
    }
}

/// Initial size of tonic's buffer, bytes: most requests are small.
const BUFFER_BYTES: usize = 1024;

/// Passes on messages that are encoded already.
pub(super) struct EncodedMessages {
    fault: Fault,
}

impl Encoder for EncodedMessages {
    type Item = Result<Bytes, Status>;
    type Error = Status;

    fn encode(&mut self, message: Self::Item, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let message = message.inspect_err(|status| *self.fault.0.lock() = Some(status.clone()))?;
        to.reserve(message.len());
        to.put(message);
        Ok(())
    }

    /// Every message is sent alone: an error would drop the buffered messages before it.
    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, 1)
    }
}

/// Passes on answers as they are encoded.
pub(super) struct EncodedAnswers;

impl Decoder for EncodedAnswers {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
