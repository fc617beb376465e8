//! The store's API: reads at points of the history, and streams of changes that go on at another
//! endpoint where one has stopped.
//!
//! Invariant: a [`History`] yields every change once and in order, whatever endpoints stop, because
//! each message says the position after it.

use std::time::Duration;

use tonic::{Status, Streaming};

use super::backoff::StreamFailures;
use super::endpoints::{CallError, Endpoints, Repeat};
use super::verdict::is_final_for_streams;
use headwater_proto::pb::headwater_v1 as pb;

/// The store as one history, at any of the endpoints.
#[derive(Clone, Debug)]
pub struct Store {
    endpoints: Endpoints,
    timeout: Duration,
}

impl Store {
    /// The store behind these endpoints. A read may take `timeout` at each of them.
    #[must_use]
    pub fn new(endpoints: Endpoints, timeout: Duration) -> Self {
        Self { endpoints, timeout }
    }

    /// Reads one page of entities at one point of the history.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn read(&self, request: pb::ReadRequest) -> Result<pb::ReadResponse, CallError> {
        let request = &request;
        let read = self.endpoints.call(Repeat::Harmless, self.timeout, |attempt| async move {
            attempt.store().read(attempt.request(request.clone())).await
        });
        Ok(read.await?.into_inner())
    }

    /// Reads all pages. They show one state, and come as one answer.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn read_all(&self, request: pb::ReadRequest) -> Result<pb::ReadResponse, CallError> {
        let mut all = self.read(request.clone()).await?;
        while !all.next_page_token.is_empty() {
            let page_token = std::mem::take(&mut all.next_page_token);
            let page = self.read(pb::ReadRequest { page_token, ..request.clone() }).await?;
            all.entities.extend(page.entities);
            all.next_page_token = page.next_page_token;
        }
        Ok(all)
    }

    /// A stream of changes, which begins with the first call of [`History::next`].
    #[must_use]
    pub fn history(&self, request: pb::HistoryRequest) -> History {
        History {
            endpoints: self.endpoints.clone(),
            is_limited: request.limit > 0,
            request,
            stream: None,
            failures: StreamFailures::default(),
            was_answered: false,
        }
    }
}

/// A stream of changes. It goes on at the next endpoint when one stops.
#[derive(Debug)]
pub struct History {
    endpoints: Endpoints,
    /// The request for what is left.
    request: pb::HistoryRequest,
    is_limited: bool,
    stream: Option<Streaming<pb::HistoryResponse>>,
    failures: StreamFailures,
    was_answered: bool,
}

impl History {
    /// The next message; `None` at the end. A live stream has no end.
    ///
    /// # Errors
    ///
    /// The status with which every endpoint refuses the stream: the request is wrong, is not
    /// permitted, or asks for what is not kept. Also the last one if no endpoint has answered, or
    /// if a stream that is not live can go on at none.
    pub async fn next(&mut self) -> Result<Option<pb::HistoryResponse>, Status> {
        loop {
            if self.is_limited && self.request.limit == 0 {
                return Ok(None);
            }
            let read = match self.open().await {
                Ok(stream) => stream.message().await,
                Err(status) => Err(status),
            };
            match read {
                Ok(Some(message)) => {
                    self.failures.reset();
                    self.was_answered = true;
                    self.pass(&message);
                    return Ok(Some(message));
                }
                Ok(None) if !self.request.live => return Ok(None),
                Ok(None) => self.fail(Status::unavailable("the stream ended")).await?,
                Err(status) => self.fail(status).await?,
            }
        }
    }

    /// Notes the position after a message.
    fn pass(&mut self, message: &pb::HistoryResponse) {
        let index = pb::point::Point::Index(message.reached);
        self.request.from = Some(pb::Point { point: Some(index), epoch: message.epoch.clone() });
        if self.is_limited {
            self.request.limit = self.request.limit.saturating_sub(message.commands.len() as u64);
        }
    }

    async fn open(&mut self) -> Result<&mut Streaming<pb::HistoryResponse>, Status> {
        if self.stream.is_none() {
            let request = &self.request;
            let opened = self.endpoints.open(self.endpoints.preferred(), None, |attempt| async move {
                attempt.store().history(attempt.request(request.clone())).await
            });
            self.stream = Some(opened.await?.into_inner());
        }
        Ok(self.stream.as_mut().expect("it was opened above"))
    }

    /// Prepares the next attempt, at the next endpoint.
    async fn fail(&mut self, status: Status) -> Result<(), Status> {
        self.stream = None;
        if is_final(&status) {
            return Err(status);
        }
        let pause = self.failures.add(rand::random());
        let endpoints = self.endpoints.names().count();
        let were_all_asked = usize::try_from(self.failures.count()).is_ok_and(|failures| failures > 2 * endpoints);
        if were_all_asked && !(self.was_answered && self.request.live) {
            return Err(status);
        }
        self.endpoints.fail_over(self.endpoints.preferred());
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Whether every endpoint would answer the same.
fn is_final(status: &Status) -> bool {
    use tonic::Code::{FailedPrecondition, OutOfRange};
    is_final_for_streams(status.code()) || matches!(status.code(), FailedPrecondition | OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(request: pb::HistoryRequest) -> History {
        Store::new(Endpoints::new(["127.0.0.1:1"]).unwrap(), Duration::from_secs(1)).history(request)
    }

    #[test]
    fn a_stream_goes_on_after_its_last_message() {
        let mut history = history(pb::HistoryRequest { limit: 3, direction: 1, ..Default::default() });
        let commands = vec![pb::CommandChanges::default(); 2];
        history.pass(&pb::HistoryResponse { commands, reached: 7, epoch: "e".to_owned(), oldest: 1 });
        let from = pb::Point { point: Some(pb::point::Point::Index(7)), epoch: "e".to_owned() };
        assert_eq!((history.request.from, history.request.limit), (Some(from), 1));
    }

    #[tokio::test]
    async fn a_stream_that_no_endpoint_answers_fails() {
        // Nothing listens there, and the attempts have no long pauses before the end.
        let mut history = history(pb::HistoryRequest { live: true, ..Default::default() });
        assert_eq!(history.next().await.unwrap_err().code(), tonic::Code::Unavailable);
    }

    #[test]
    fn what_is_not_kept_is_not_asked_for_elsewhere() {
        assert!(is_final(&Status::failed_precondition("compacted")));
        assert!(is_final(&Status::out_of_range("the future")));
        assert!(!is_final(&Status::unavailable("stopping")));
    }
}
