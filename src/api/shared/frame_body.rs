//! The body of a gRPC answer that consists of frames.
//!
//! tonic's own body would copy every message into a buffer of its stream. This one copies heads and
//! small tails, so that many small messages are one frame of HTTP/2, and passes a large tail by
//! reference: a thousand streams send the same memory.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use http::HeaderMap;
use http_body::{Body, SizeHint};
use tonic::Status;

use super::frames::{EncodedFields, Frame, Frames};
use super::grpc_messages::HEAD_BYTES;

/// Initial size of a stream's send buffer, bytes: idle streams are many.
const BUFFER_BYTES: usize = 512;
/// Size of gathered messages at which they are passed to HTTP/2, bytes.
const GATHERED_BYTES: usize = 32 << 10;
/// Size from which a tail is passed by reference, bytes: the largest frame that most clients take.
/// It is a frame of its own, and so a system call of its own.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// Messages as the body of an answer; see the module. It ends with the status of the stream.
pub(crate) struct FrameBody {
    frames: Frames,
    /// Heads and small tails that were copied, not yet passed to HTTP/2.
    gathered: BytesMut,
    /// A large tail that follows `gathered`.
    large: Option<Bytes>,
    /// The rest of the current message.
    tails: smallvec::IntoIter<[Bytes; 1]>,
    end: End,
}

/// Whether a stream has ended.
enum End {
    Open,
    /// It has ended with this status, which is to be sent.
    Ended(Status),
    /// The status was sent.
    Sent,
}

impl FrameBody {
    pub(crate) fn new(frames: Frames) -> Self {
        let gathered = BytesMut::with_capacity(BUFFER_BYTES);
        Self { frames, gathered, large: None, tails: EncodedFields::new().into_iter(), end: End::Open }
    }

    /// Gathers the length and the head of a message.
    fn begin(&mut self, frame: Frame) -> Result<(), Status> {
        let bytes = u32::try_from(frame.len())
            .map_err(|_| Status::resource_exhausted("a message of more than 4 GiB cannot be sent"))?;
        let small = frame.tails.iter().map(Bytes::len).take_while(|bytes| *bytes < SHARED_BYTES_MIN).sum::<usize>();
        self.gathered.reserve(usize::from(HEAD_BYTES) + frame.head.len() + small);
        self.gathered.put_u8(0);
        self.gathered.put_u32(bytes);
        self.gathered.put_slice(&frame.head);
        self.tails = frame.tails.into_iter();
        Ok(())
    }

    /// Gathers tails up to a large one, or to the end of the message. Returns the part that is
    /// complete; `None` if the next message may still be added.
    fn gather(&mut self) -> Option<Bytes> {
        if let Some(large) = self.large.take() {
            return Some(large);
        }
        for tail in self.tails.by_ref() {
            if tail.len() < SHARED_BYTES_MIN {
                self.gathered.put_slice(&tail);
            } else if self.gathered.is_empty() {
                return Some(tail);
            } else {
                self.large = Some(tail);
                return self.take_gathered();
            }
        }
        // Frees the list of a message with many tails, whose memory an idle stream would keep.
        self.tails = EncodedFields::new().into_iter();
        if self.gathered.len() >= GATHERED_BYTES { self.take_gathered() } else { None }
    }

    /// The gathered bytes; `None` if there are none.
    fn take_gathered(&mut self) -> Option<Bytes> {
        (!self.gathered.is_empty()).then(|| self.gathered.split().freeze())
    }
}

impl Body for FrameBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            if let Some(data) = this.gather() {
                return Poll::Ready(Some(Ok(http_body::Frame::data(data))));
            }
            match mem::replace(&mut this.end, End::Sent) {
                End::Open => this.end = End::Open,
                End::Ended(status) => {
                    let mut trailers = HeaderMap::new();
                    let trailers = status.add_header(&mut trailers).map(|()| http_body::Frame::trailers(trailers));
                    return Poll::Ready(Some(trailers));
                }
                End::Sent => return Poll::Ready(None),
            }
            let status = match this.frames.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(frame))) => match this.begin(frame) {
                    Ok(()) => continue,
                    Err(status) => status,
                },
                Poll::Ready(Some(Err(status))) => status,
                Poll::Ready(None) => Status::ok(""),
                Poll::Pending => match this.take_gathered() {
                    Some(data) => return Poll::Ready(Some(Ok(http_body::Frame::data(data)))),
                    None => return Poll::Pending,
                },
            };
            this.end = End::Ended(status);
            if let Some(data) = this.take_gathered() {
                return Poll::Ready(Some(Ok(http_body::Frame::data(data))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Sent)
    }

    /// The lower bound is the memory of the current message that was not passed yet: the account of
    /// unread answers is charged with it.
    fn size_hint(&self) -> SizeHint {
        let waiting = self.large.iter().chain(self.tails.as_slice()).map(Bytes::len).sum::<usize>();
        let mut hint = SizeHint::default();
        hint.set_lower(waiting as u64);
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::stream;
    use headwater_proto::pb::etcdserverpb::ResponseHeader;
    use prost::Message;
    use tonic::Code;

    use super::*;

    fn head(revision: i64) -> ResponseHeader {
        ResponseHeader { revision, ..Default::default() }
    }

    fn tail(byte: u8, bytes: usize) -> Bytes {
        vec![byte; bytes].into()
    }

    /// The message of `frame` as it is sent.
    fn sent(frame: &Frame) -> Vec<u8> {
        let message = frame.to_bytes();
        [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat()
    }

    fn body_of(frames: &[Frame], end: Option<Status>) -> FrameBody {
        let frames: Vec<_> = frames.iter().cloned().map(Ok).chain(end.map(Err)).collect();
        FrameBody::new(stream::iter(frames).boxed())
    }

    /// The parts of a body, and the status of its trailers.
    async fn read(mut body: FrameBody) -> (Vec<Bytes>, Status) {
        let mut parts = Vec::new();
        loop {
            assert!(!body.is_end_stream());
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
            match frame.into_data() {
                Ok(data) => parts.push(data),
                Err(trailers) => {
                    assert!(body.is_end_stream());
                    assert!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_none());
                    return (parts, Status::from_header_map(&trailers.into_trailers().unwrap()).unwrap());
                }
            }
        }
    }

    #[tokio::test]
    async fn small_messages_are_one_part() {
        let frames: Vec<_> = (0..100).map(|n| Frame::with_tails(&head(n), vec![tail(1, 20), tail(2, 30)])).collect();
        let (parts, status) = read(body_of(&frames, None)).await;
        assert_eq!(parts, [frames.iter().flat_map(sent).collect::<Vec<_>>()]);
        assert_eq!(status.code(), Code::Ok);
    }

    #[tokio::test]
    async fn no_part_gathers_much() {
        let frames = vec![Frame::with_tails(&head(1), vec![tail(1, SHARED_BYTES_MIN - 1)]); 20];
        let (parts, _) = read(body_of(&frames, None)).await;
        assert_eq!(parts.concat(), frames.iter().flat_map(sent).collect::<Vec<_>>());
        assert!(parts.iter().all(|part| part.len() < GATHERED_BYTES + SHARED_BYTES_MIN + 100));
        assert!(parts.len() > 3);
    }

    #[tokio::test]
    async fn large_tails_are_handed_on_as_they_are_and_in_their_place() {
        let large = [tail(1, SHARED_BYTES_MIN), tail(2, 3 * SHARED_BYTES_MIN)];
        let frames = [
            Frame::with_tails(&head(1), vec![tail(8, 20), large[0].clone(), large[1].clone(), tail(9, 30)]),
            Frame::with_tails(&head(2), vec![large[0].clone()]),
        ];
        let (parts, status) = read(body_of(&frames, None)).await;
        assert_eq!(parts.concat(), frames.iter().flat_map(sent).collect::<Vec<_>>());
        let shared = |part: &Bytes| large.iter().position(|large| large.as_ptr() == part.as_ptr());
        assert_eq!(parts.iter().map(shared).collect::<Vec<_>>(), [None, Some(0), Some(1), None, Some(0)]);
        assert_eq!(status.code(), Code::Ok);
    }

    #[tokio::test]
    async fn an_error_is_the_status_after_what_came_before_it() {
        let frame = Frame::new(&head(7));
        let (parts, status) = read(body_of(std::slice::from_ref(&frame), Some(Status::data_loss("gone")))).await;
        assert_eq!(parts, [sent(&frame)]);
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "gone"));
        let large = Frame::with_tails(&head(8), vec![tail(1, SHARED_BYTES_MIN)]);
        let (parts, status) = read(body_of(std::slice::from_ref(&large), Some(Status::data_loss("gone")))).await;
        assert_eq!((parts.concat(), status.code()), (sent(&large), Code::DataLoss));
        let (parts, status) = read(body_of(&[], Some(Status::aborted("at once")))).await;
        assert_eq!((parts.len(), status.code()), (0, Code::Aborted));
    }

    #[tokio::test]
    async fn nothing_is_held_back_while_a_stream_waits() {
        let frame = Frame::new(&head(7));
        let frames = stream::iter([Ok(frame.clone())]).chain(stream::pending());
        let mut body = FrameBody::new(frames.boxed());
        let part = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
        assert_eq!(part.into_data().unwrap(), sent(&frame));
        assert!(futures::poll!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).is_pending());
    }

    #[tokio::test]
    async fn what_waits_of_a_message_is_stated() {
        let (small, large) = (tail(1, 20), tail(2, SHARED_BYTES_MIN));
        let frame = Frame::with_tails(&head(1), vec![small, large.clone(), large.clone()]);
        let mut body = body_of(&[frame], None);
        let mut waiting = vec![body.size_hint().lower() as usize / large.len()];
        while !body.is_end_stream() {
            poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
            waiting.push(body.size_hint().lower() as usize / large.len());
            assert_eq!(body.size_hint().upper(), None);
        }
        assert_eq!(waiting, [0, 2, 1, 0, 0]);
    }

    #[test]
    fn a_message_reads_as_it_was_written() {
        let frame = Frame::new(&head(7));
        let mut body = body_of(&[], None);
        body.begin(frame).unwrap();
        let sent = body.take_gathered().unwrap();
        assert_eq!(ResponseHeader::decode(&sent[usize::from(HEAD_BYTES)..]).unwrap(), head(7));
    }
}
