//! The answers of a streaming method: one line for each as soon as it is available, then a line
//! with the error, if there is one.

use std::convert::Infallible;
use std::future::Future;

use bytes::Bytes;
use futures::stream;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Status, Streaming};

use super::answer::AnswerWriter;
use headwater_api_shared::context::grpc_timeout;
use headwater_api_shared::errors::InvalidMetadata;
use headwater_api_shared::http_errors;

/// The deadline of a call, enforced here. gRPC's own clients enforce it themselves.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// The deadline that `Grpc-Timeout` sets, from now; none without it.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if it cannot be read.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Status> {
        let Some(value) = headers.get("grpc-timeout") else { return Ok(Self(None)) };
        let timeout = grpc_timeout(value).ok_or(InvalidMetadata::Timeout)?;
        // A time beyond the clock's range is no deadline.
        Ok(Self(Instant::now().checked_add(timeout)))
    }

    /// The result of `doing`; `DEADLINE_EXCEEDED` if the deadline passes first.
    pub(super) async fn within<T>(self, doing: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        match self.0 {
            // `timeout_at` would return a ready result even after the deadline.
            Some(at) if at <= Instant::now() => Err(exceeded()),
            Some(at) => tokio::time::timeout_at(at, doing).await.unwrap_or_else(|_| Err(exceeded())),
            None => doing.await,
        }
    }
}

fn exceeded() -> Status {
    Status::deadline_exceeded("context deadline exceeded")
}

/// The lines of a stream of answers that begins with `first`; `None` if there was no answer. Ends
/// with the answers, or with the line of an error, also at the deadline. Dropping it ends the call.
pub(super) fn lines(first: Option<Bytes>, answers: Streaming<Bytes>, deadline: Deadline, writer: AnswerWriter) -> Body {
    let lines = stream::unfold((first, Some((answers, writer))), move |(first, answers)| async move {
        let (mut answers, writer) = answers?;
        let answer = match first {
            Some(first) => Ok(Some(first)),
            None => deadline.within(answers.message()).await,
        };
        let line = match answer {
            Ok(Some(answer)) => writer.write_result(&answer).await.map(Some),
            Ok(None) => Ok(None),
            Err(status) => Err(status),
        };
        let (line, goes_on) = match line {
            Ok(line) => (line?, Some((answers, writer))),
            Err(status) => (http_errors::line(&status), None),
        };
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), (None, goes_on)))
    });
    Body::new(StreamBody::new(lines))
}
