//! The body of a request as encoded messages, with a limit for each.
//!
//! Pulled by the service: if it stops reading, the client is slowed down (backpressure). If the
//! client disconnects, the stream ends with an error.

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use http_body::Body as _;
use http_body_util::BodyExt;
use prost_reflect::MessageDescriptor;
use tonic::Status;
use tonic::body::Body;

use super::json;
use super::split::Splitter;
use headwater_api_shared::timed_body::is_late;

/// The messages of one request, encoded as protobuf. The first error is the last item.
pub(super) type Messages = BoxStream<'static, Result<Bytes, Status>>;

/// Reads a whole body: the JSON text of one message.
///
/// # Errors
///
/// `RESOURCE_EXHAUSTED` if it is longer than `bytes_max`, `DEADLINE_EXCEEDED` if it is late,
/// `CANCELLED` if it breaks off otherwise.
pub(super) async fn read(mut body: Body, bytes_max: usize) -> Result<Bytes, Status> {
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let mut text = BytesMut::with_capacity(announced as usize);
    while let Some(data) = next(&mut body).await? {
        text.extend_from_slice(&data);
        check(text.len(), bytes_max)?;
    }
    Ok(text.freeze())
}

/// A message that was read whole, as the only one of a stream.
pub(super) fn single(message: Bytes) -> Messages {
    stream::iter([Ok(message)]).boxed()
}

/// The messages of a streamed body, each encoded as soon as its JSON is complete. `bytes_max`
/// limits the JSON of one message. Errors are those of [`read()`] and [`json::read`].
pub(super) fn stream(body: Body, input: MessageDescriptor, bytes_max: usize) -> Messages {
    let reader = Reader { body, splitter: Splitter::default(), input, bytes_max };
    stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(message)) => Some((Ok(message), Some(reader))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

struct Reader {
    body: Body,
    splitter: Splitter,
    input: MessageDescriptor,
    bytes_max: usize,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(text) = self.splitter.next() {
                check(text.len(), self.bytes_max)?;
                return json::read(&self.input, &text).map(Some);
            }
            check(self.splitter.len(), self.bytes_max)?;
            match next(&mut self.body).await? {
                Some(data) => self.splitter.push(&data),
                None if self.splitter.is_empty() => return Ok(None),
                // The body ends inside a message: parsing it fails with the position.
                None => return json::read(&self.input, self.splitter.rest()).map(Some),
            }
        }
    }
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Status> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match is_late(&error) {
            true => error,
            false => Status::cancelled(format!("the request was not sent to its end: {error}")),
        })?;
        // Trailers are ignored.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn check(bytes: usize, bytes_max: usize) -> Result<(), Status> {
    if bytes > bytes_max { Err(too_large(bytes_max)) } else { Ok(()) }
}

fn too_large(bytes_max: usize) -> Status {
    Status::resource_exhausted(format!("a request may have at most {bytes_max} bytes of JSON; split it"))
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use prost::Message;
    use prost_reflect::DescriptorPool;
    use tonic::Code;

    use super::*;
    use headwater_proto::pb::PUBLIC_DESCRIPTORS;
    use headwater_proto::pb::etcdserverpb::LeaseKeepAliveRequest;

    const MAX: usize = 3 << 20;

    fn descriptor() -> MessageDescriptor {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
        pool.get_message_by_name("etcdserverpb.LeaseKeepAliveRequest").unwrap()
    }

    fn chunks(chunks: Vec<Bytes>) -> Body {
        let frames = chunks.into_iter().map(|chunk| Ok::<_, Status>(http_body::Frame::data(chunk)));
        Body::new(StreamBody::new(stream::iter(frames)))
    }

    async fn ids(body: Body) -> Vec<Result<i64, Code>> {
        stream(body, descriptor(), MAX)
            .map(|message| {
                message
                    .map(|message| LeaseKeepAliveRequest::decode(message).unwrap().id)
                    .map_err(|status| status.code())
            })
            .collect()
            .await
    }

    #[tokio::test]
    async fn messages_come_one_by_one_and_the_first_error_is_the_last() {
        let text = |texts: &[&'static str]| chunks(texts.iter().map(|chunk| Bytes::from(*chunk)).collect());
        for (body, wanted) in [
            (text(&[]), vec![]),
            (text(&[" \n"]), vec![]),
            (text(&[r#"{"ID":1}{"ID":"2"}"#, r#" {"I"#, r#"D":3}"#]), vec![Ok(1), Ok(2), Ok(3)]),
            (text(&[r#"{"ID":1} x"#, r#"{"ID":2}"#]), vec![Ok(1), Err(Code::InvalidArgument)]),
            (text(&[r#"{"ID":1}{"ID":"#]), vec![Ok(1), Err(Code::InvalidArgument)]),
            (text(&[r#"{"ID":true}{"ID":2}"#]), vec![Err(Code::InvalidArgument)]),
        ] {
            assert_eq!(ids(body).await, wanted);
        }
    }

    #[tokio::test]
    async fn a_body_of_the_limit_is_read_and_one_past_it_is_not() {
        for (bytes, wanted) in [(MAX, None), (MAX + 1, Some(Code::ResourceExhausted))] {
            let text = vec![b' '; bytes];
            let whole = read(Body::new(Full::new(Bytes::from(text.clone()))), MAX).await;
            assert_eq!(whole.map(|text| text.len()).map_err(|status| status.code()).err(), wanted, "{bytes} announced");
            let read = read(chunks(text.chunks(1 << 20).map(Bytes::copy_from_slice).collect()), MAX).await;
            assert_eq!(read.map(|text| text.len()).map_err(|status| status.code()).err(), wanted, "{bytes} in pieces");

            // A message that has begun: its string never ends.
            let mut text = vec![b'a'; bytes];
            text[..7].copy_from_slice(br#"{"ID":""#);
            let found = ids(chunks(text.chunks(1 << 20).map(Bytes::copy_from_slice).collect())).await;
            assert_eq!(found, [Err(wanted.unwrap_or(Code::InvalidArgument))], "{bytes} of a stream");
        }
    }

    #[tokio::test]
    async fn a_stream_may_be_longer_than_any_message() {
        let message = Bytes::from(format!("{}{}", r#"{"ID":7}"#, " ".repeat(1 << 20)));
        let found = ids(chunks(vec![message; 2 * MAX / (1 << 20)])).await;
        assert_eq!(found, vec![Ok(7); 2 * MAX / (1 << 20)]);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_ends_its_request() {
        let broken = || {
            let whole = http_body::Frame::data(Bytes::from_static(b"{\"ID\":1}"));
            Body::new(StreamBody::new(stream::iter([Ok(whole), Err(Status::unknown("reset"))])))
        };
        assert_eq!(ids(broken()).await, [Ok(1), Err(Code::Cancelled)]);
        assert_eq!(read(broken(), MAX).await.unwrap_err().code(), Code::Cancelled);
    }
}
