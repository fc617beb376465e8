//! The store's API: reads at points of the history, and streams of changes that go on at another
//! endpoint when one has stopped.
//!
//! Invariant: a [`History`] yields every change once and in order, even if endpoints stop. Each
//! message names the position after it. Within a command of several messages, the position stays
//! before that command. A new stream then skips the changes that were yielded before; their order
//! is the same at every endpoint.

use std::time::Duration;

use tonic::{Request, Status, Streaming};

use super::backoff::StreamFailures;
use super::endpoints::{CallError, Endpoints, FailedAttempt, Failure, OPEN_TIMEOUT, Repeat};
use super::verdict::is_final_for_streams;
use headwater_proto::pb::headwater_v1 as pb;

/// Client of the store's API, at any of the endpoints.
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
            tried: Vec::new(),
            was_answered: false,
            yielded: 0,
            skipped: 0,
        }
    }
}

/// A stream of changes. It goes on at the next endpoint when one stops.
#[derive(Debug)]
pub struct History {
    endpoints: Endpoints,
    /// Request for the changes that are left.
    request: pb::HistoryRequest,
    is_limited: bool,
    stream: Option<Streaming<pb::HistoryResponse>>,
    failures: StreamFailures,
    /// The last failure at each endpoint since a message came, in the order of the attempts.
    tried: Vec<FailedAttempt>,
    was_answered: bool,
    /// Number of changes that were yielded of a command that continues; 0 between commands.
    yielded: usize,
    /// Number of changes that the present stream will repeat. They are not yielded again.
    skipped: usize,
}

impl History {
    /// The next message; `None` at the end. A live stream ends only at the limit of its request.
    /// The parts of a command that is `continued` come one after the other.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] for a status with which every endpoint would refuse the stream: the
    /// request is wrong, is not permitted, or names a point that cannot be read.
    /// [`CallError::Unreachable`] after more than two consecutive failures for each endpoint. A
    /// live stream that was answered before retries instead.
    pub async fn next(&mut self) -> Result<Option<pb::HistoryResponse>, CallError> {
        loop {
            if self.is_limited && self.request.limit == 0 {
                return Ok(None);
            }
            let read = match self.open().await {
                Ok(stream) => stream.message().await,
                Err(status) => Err(status),
            };
            match read {
                Ok(Some(mut message)) => {
                    self.failures.reset();
                    self.tried.clear();
                    self.was_answered = true;
                    if self.pass(&mut message) {
                        return Ok(Some(message));
                    }
                }
                Ok(None) if !self.request.live => return Ok(None),
                Ok(None) => self.fail(Status::unavailable("the stream ended")).await?,
                Err(status) => self.fail(status).await?,
            }
        }
    }

    /// Records the position after a message, and lowers the limit by its complete commands. Removes
    /// changes that were yielded before. False if the message then has no change left and does not
    /// end their command.
    fn pass(&mut self, message: &mut pb::HistoryResponse) -> bool {
        let mut has_news = true;
        if let Some(first) = message.commands.first_mut().filter(|_| self.skipped > 0) {
            let repeated = self.skipped.min(first.changes.len());
            first.changes.drain(..repeated);
            self.skipped -= repeated;
            has_news = !first.changes.is_empty() || !first.continued;
        }
        match message.commands.last() {
            Some(last) if last.continued => self.yielded += last.changes.len(),
            Some(_) => self.yielded = 0,
            None => {}
        }
        let index = pb::point::Point::Index(message.reached);
        self.request.from = Some(pb::Point { point: Some(index), epoch: message.epoch.clone() });
        if self.is_limited {
            let whole = message.commands.iter().filter(|command| !command.continued).count();
            self.request.limit = self.request.limit.saturating_sub(whole as u64);
        }
        has_news
    }

    async fn open(&mut self) -> Result<&mut Streaming<pb::HistoryResponse>, Status> {
        if self.stream.is_none() {
            let request = &self.request;
            let opened = self.endpoints.open(self.endpoints.preferred(), Some(OPEN_TIMEOUT), |attempt| async move {
                let mut request = Request::new(request.clone());
                attempt.authorize(&mut request);
                attempt.store().history(request).await
            });
            self.stream = Some(opened.await?.into_inner());
            self.skipped = self.yielded;
        }
        Ok(self.stream.as_mut().expect("it was opened above"))
    }

    /// Prepares the next attempt, at the next endpoint and after a pause. The error if there must
    /// be no further attempt.
    async fn fail(&mut self, status: Status) -> Result<(), CallError> {
        self.stream = None;
        let number = self.endpoints.preferred();
        let endpoint = self.endpoints.name(number).to_owned();
        if is_final(&status) {
            return Err(CallError::Refused { endpoint, status });
        }
        self.tried.retain(|failed| failed.endpoint != endpoint);
        self.tried.push(FailedAttempt { endpoint, failure: Failure::Status(status) });
        let pause = self.failures.add(rand::random());
        let endpoints = self.endpoints.names().count();
        let were_all_asked = usize::try_from(self.failures.count()).is_ok_and(|failures| failures > 2 * endpoints);
        if were_all_asked && !(self.was_answered && self.request.live) {
            return Err(CallError::Unreachable(std::mem::take(&mut self.tried)));
        }
        self.endpoints.fail_over(number);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Whether the code means that every endpoint would answer the same.
fn is_final(status: &Status) -> bool {
    use tonic::Code::{FailedPrecondition, OutOfRange};
    is_final_for_streams(status.code()) || matches!(status.code(), FailedPrecondition | OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(request: pb::HistoryRequest) -> History {
        Store::new(Endpoints::new(["127.0.0.1:1", "127.0.0.1:3"]).unwrap(), Duration::from_secs(1)).history(request)
    }

    #[test]
    fn a_stream_goes_on_after_its_last_message() {
        let mut history = history(pb::HistoryRequest { limit: 3, direction: 1, ..Default::default() });
        let commands = vec![pb::CommandChanges::default(); 2];
        history.pass(&mut pb::HistoryResponse { commands, reached: 7, epoch: "e".to_owned(), oldest: 1 });
        let from = pb::Point { point: Some(pb::point::Point::Index(7)), epoch: "e".to_owned() };
        assert_eq!((history.request.from, history.request.limit), (Some(from), 1));
    }

    #[test]
    fn a_command_of_several_messages_goes_on_with_its_next_change() {
        let mut history = history(pb::HistoryRequest { limit: 2, ..Default::default() });
        let mut pass = |paths: &[&str], continued, reached, is_new_stream: bool| {
            let change = |path: &&str| pb::EntityChange { path: (*path).to_owned(), ..Default::default() };
            let changes = paths.iter().map(change).collect();
            let commands = vec![pb::CommandChanges { index: 8, changes, continued, ..Default::default() }];
            let mut message = pb::HistoryResponse { commands, reached, ..Default::default() };
            if is_new_stream {
                history.skipped = history.yielded;
            }
            let has_news = history.pass(&mut message);
            let paths: Vec<_> = message.commands[0].changes.iter().map(|change| change.path.clone()).collect();
            (paths.concat(), has_news, history.request.limit)
        };
        assert_eq!(pass(&["a", "b"], true, 7, false), ("ab".to_owned(), true, 2));
        assert_eq!(pass(&["c"], true, 7, false), ("c".to_owned(), true, 2));
        // Another member makes parts of other sizes.
        assert_eq!(pass(&["a"], true, 7, true), (String::new(), false, 2));
        assert_eq!(pass(&["b", "c", "d"], true, 7, false), ("d".to_owned(), true, 2));
        assert_eq!(pass(&["a", "b", "c", "d", "e"], false, 8, true), ("e".to_owned(), true, 1));
        assert_eq!(pass(&["a"], false, 9, true), ("a".to_owned(), true, 0));
    }

    #[tokio::test]
    async fn a_stream_that_no_endpoint_answers_fails() {
        // Nothing listens there, and the attempts have no long pauses before the end.
        let mut history = history(pb::HistoryRequest { live: true, ..Default::default() });
        let Err(CallError::Unreachable(mut tried)) = history.next().await else { panic!("nobody answers") };
        tried.sort_by(|one, other| one.endpoint.cmp(&other.endpoint));
        assert_eq!(tried.iter().map(|failed| &failed.endpoint[..]).collect::<Vec<_>>(), ["127.0.0.1:1", "127.0.0.1:3"]);
        for failed in tried {
            assert_eq!(failed.failure.into_status().code(), tonic::Code::Unavailable);
        }
    }

    #[test]
    fn what_is_not_kept_is_not_asked_for_elsewhere() {
        assert!(is_final(&Status::failed_precondition("compacted")));
        assert!(is_final(&Status::out_of_range("the future")));
        assert!(!is_final(&Status::unavailable("stopping")));
    }
}
