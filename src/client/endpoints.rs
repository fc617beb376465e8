//! Endpoints of one cluster, and the failover between them.
//!
//! * **Order:** every endpoint once, in the order in which they were named, the preferred one
//!   first. At first that is the first that was named; then it is the one that answered a call
//!   last.
//! * **Failover:** after a failure the next endpoint is preferred. Calls that fail together at one
//!   endpoint move on by one, not by one each.
//! * **Repetition:** a request goes to the next endpoint if it was certainly not carried out: there
//!   was no connection, or a status says so. If its outcome is unknown, it does so only with
//!   [`Repeat::Harmless`]. A refusal is final.
//! * **Deadlines:** 2 s for a connection, then the caller's timeout for each answer.
//!   [`Endpoints::call`] does not pause, and asks an endpoint twice only with a new token: the
//!   caller decides on pauses and repetitions.
//! * **Connections:** all clones share one to each endpoint. An answer that does not come in time
//!   gives it up, because it may be what does not answer: the next attempt makes a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic::{Response, Status, TimeoutExpired};

use super::address::{Address, BadEndpoint};
use super::attempt::Attempt;
use super::credentials::Credentials;
use super::verdict::{Verdict, is_caused_by, judge};
use headwater_tls::Dialer;

/// Longest wait for the answer that opens a stream. Servers refuse what they cannot answer after
/// `limits.request-timeout`, 7 s by default.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether repeating a request can do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Reads, and writes that do no harm when they are carried out several times.
    Harmless,
    /// Writes that may do harm when they are carried out twice.
    Harmful,
}

/// The failure of a call at one endpoint.
#[derive(Clone, Debug)]
pub enum Failure {
    /// No connection, or the status of the call. Only [`Endpoints::call_each`] also reports
    /// refusals here.
    Status(Status),
    /// No answer came within the timeout.
    Timeout(Duration),
}

impl Failure {
    /// The failure as a status; a timeout is `DEADLINE_EXCEEDED`.
    #[must_use]
    pub fn into_status(self) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Timeout(_) => Status::deadline_exceeded("no answer in time"),
        }
    }
}

/// The failure of a call at one endpoint, before or after the request was sent.
enum NoAnswer {
    /// There was no connection, or no token: the request was not sent, or refused for its old
    /// token.
    NotSent(Status),
    /// The call was made, and has failed: by a status, which may be a refusal, or by a timeout. A
    /// status tells whether the request may have been carried out ([`judge`]).
    Sent(Failure),
}

impl NoAnswer {
    fn into_failure(self) -> Failure {
        match self {
            Self::NotSent(status) => Failure::Status(status),
            Self::Sent(failure) => failure,
        }
    }
}

/// A call that failed at one endpoint.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    /// The name of the endpoint.
    pub endpoint: String,
    /// The failure of the call.
    pub failure: Failure,
}

/// The failure of a call at the endpoints of a cluster.
#[derive(Clone, Debug)]
pub enum CallError {
    /// A server refused the request, or the user's password. Nothing changed, except that with
    /// [`Repeat::Harmless`] an earlier attempt may have been carried out.
    Refused {
        /// The endpoint that refused.
        endpoint: String,
        /// The status with which the server refused.
        status: Status,
    },
    /// The request was sent, repeating it could do harm, and no answer shows its outcome: it may
    /// have been carried out, or may yet be.
    Indeterminate(FailedAttempt),
    /// Every endpoint failed; the failures are in the order of the attempts. With
    /// [`Repeat::Harmful`] the request was certainly not carried out; with [`Repeat::Harmless`] it
    /// may have been, or may yet be.
    Unreachable(Vec<FailedAttempt>),
}

impl CallError {
    /// The status of the last endpoint that was asked.
    #[must_use]
    pub fn into_status(self) -> Status {
        match self {
            Self::Refused { status, .. } => status,
            Self::Indeterminate(tried) => tried.failure.into_status(),
            Self::Unreachable(mut tried) => match tried.pop() {
                Some(last) => last.failure.into_status(),
                None => Status::unavailable("no endpoint"),
            },
        }
    }
}

/// Endpoints of one cluster. Clones share connections; each has its own preferred endpoint, so that
/// the failover of one does not move others.
#[derive(Debug)]
pub struct Endpoints {
    members: Arc<[Member]>,
    preferred: AtomicUsize,
    user: Option<Credentials>,
}

#[derive(Debug)]
struct Member {
    address: Address,
    /// The connection, which reconnects by itself. `None` until an attempt has connected, and after
    /// an answer that did not come in time.
    channel: Mutex<Option<Arc<Channel>>>,
}

impl Member {
    /// The connection, or a new one.
    async fn connect(&self) -> Result<Arc<Channel>, Status> {
        let known = self.channel.lock().clone();
        if let Some(channel) = known {
            return Ok(channel);
        }
        let made = self.address.connect().await.map_err(|error| Status::from_error(error.into()))?;
        // Attempts that connected together share the first connection.
        Ok(Arc::clone(self.channel.lock().get_or_insert_with(|| Arc::new(made))))
    }

    /// Gives up `unanswered`, unless another connection is in its place already.
    fn give_up(&self, unanswered: &Arc<Channel>) {
        self.channel.lock().take_if(|channel| Arc::ptr_eq(channel, unanswered));
    }
}

impl Clone for Endpoints {
    fn clone(&self) -> Self {
        let preferred = AtomicUsize::new(self.preferred());
        Self { members: Arc::clone(&self.members), preferred, user: self.user.clone() }
    }
}

impl Endpoints {
    /// Checks the form of the names: `HOST:PORT`, or `unix:///PATH`. Connects to none of them yet.
    ///
    /// # Errors
    ///
    /// [`BadEndpoint`] for the first that is malformed, or if there is none.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, BadEndpoint> {
        Self::by(names, &Dialer::default())
    }

    /// As [`new`](Self::new), with the connections of `dialer`. If it has TLS, names may be
    /// `https://HOST:PORT`, and a name without a scheme means `https://`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn by<S: AsRef<str>>(names: impl IntoIterator<Item = S>, dialer: &Dialer) -> Result<Self, BadEndpoint> {
        let member =
            |name: S| Ok(Member { address: Address::parse(name.as_ref(), dialer)?, channel: Mutex::default() });
        let members = names.into_iter().map(member).collect::<Result<Arc<[Member]>, _>>()?;
        if members.is_empty() {
            return Err(BadEndpoint::Missing);
        }
        Ok(Self { members, preferred: AtomicUsize::default(), user: None })
    }

    /// The same endpoints, asked as this user; `None` for requests without a user. Tokens are
    /// fetched with the first request, and again when a server no longer knows them.
    #[must_use]
    pub fn as_user(self, user: Option<Credentials>) -> Self {
        Self { user, ..self }
    }

    /// The user of all requests, if there is one.
    #[must_use]
    pub fn user(&self) -> Option<Credentials> {
        self.user.clone()
    }

    /// Forgets the user's token if `status` may mean that the server no longer accepts it. Returns
    /// whether it did: the request should then be sent again by a new [`Attempt`], which gets a new
    /// token.
    pub async fn renew_token_after(&self, status: &Status) -> bool {
        match &self.user {
            Some(user) => user.renew_after(status).await,
            None => false,
        }
    }

    /// Names in the order in which they were given, as `HOST:PORT`, `https://HOST:PORT` or
    /// `unix:///PATH`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.address.name.as_str())
    }

    /// The name of an endpoint, by its number in [`names`](Self::names).
    ///
    /// # Panics
    ///
    /// If there is no such number.
    #[must_use]
    pub fn name(&self, number: usize) -> &str {
        &self.members[number].address.name
    }

    /// The number of the endpoint that is asked first, in the order of [`names`](Self::names).
    #[must_use]
    pub fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// Numbers of all endpoints, the preferred one first.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.preferred(), self.members.len());
        (0..count).map(move |offset| (first + offset) % count)
    }

    /// Prefers the endpoint after `number`, which has failed. Changes nothing if `number` is no
    /// longer preferred.
    pub fn fail_over(&self, number: usize) {
        let next = (number + 1) % self.members.len();
        // An error means that another call has already failed over.
        _ = self.preferred.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Connects to one endpoint, by its number, or takes the existing connection. Also gets the
    /// user's token if there is none yet, within `timeout`, or 30 s. Requests by
    /// [`Attempt::request`] carry `timeout` to the server.
    ///
    /// # Errors
    ///
    /// The failure to connect, or to get the token: no request of the caller was sent.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub async fn connect(&self, number: usize, timeout: Option<Duration>) -> Result<Attempt, Status> {
        let member = &self.members[number];
        self.attempt(member, &member.connect().await?, timeout).await
    }

    /// An attempt by `channel`, the connection to `member`.
    async fn attempt(
        &self,
        member: &Member,
        channel: &Arc<Channel>,
        timeout: Option<Duration>,
    ) -> Result<Attempt, Status> {
        let token = match &self.user {
            Some(user) => user.token(channel, timeout.unwrap_or(OPEN_TIMEOUT), || member.give_up(channel)).await?,
            None => None,
        };
        Ok(Attempt::new(Channel::clone(channel), timeout, token))
    }

    /// Asks one endpoint after the other until one answers or refuses. The module's head has the
    /// contract.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn call<T, F>(
        &self,
        repeat: Repeat,
        timeout: Duration,
        call: impl Fn(Attempt) -> F,
    ) -> Result<Response<T>, CallError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_each_once(repeat, Some(timeout), &call).await
    }

    async fn call_each_once<T, F>(
        &self,
        repeat: Repeat,
        timeout: Option<Duration>,
        call: &impl Fn(Attempt) -> F,
    ) -> Result<Response<T>, CallError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut failed = Vec::new();
        for number in self.order() {
            let endpoint = self.name(number).to_owned();
            let (failure, is_sent) = match self.ask(number, timeout, call).await {
                Ok(response) => {
                    self.preferred.store(number, Ordering::Relaxed);
                    return Ok(response);
                }
                Err(NoAnswer::NotSent(status)) => (Failure::Status(status), false),
                Err(NoAnswer::Sent(failure)) => (failure, true),
            };
            let is_undone = match &failure {
                // The request or the user is refused.
                Failure::Status(status) if judge(status) == Verdict::Final => {
                    return Err(CallError::Refused { endpoint, status: failure.into_status() });
                }
                Failure::Status(status) => !is_sent || judge(status) == Verdict::Undone,
                Failure::Timeout(_) => !is_sent,
            };
            self.fail_over(number);
            let attempt = FailedAttempt { endpoint, failure };
            if repeat == Repeat::Harmful && !is_undone {
                return Err(CallError::Indeterminate(attempt));
            }
            failed.push(attempt);
        }
        Err(CallError::Unreachable(failed))
    }

    /// Asks one endpoint; once more with a new token if the refusal may be due to the token: it is
    /// unknown, out of date, or missing. A request that was refused for its token was not carried
    /// out.
    async fn ask<T, F>(
        &self,
        number: usize,
        timeout: Option<Duration>,
        call: &impl Fn(Attempt) -> F,
    ) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let member = &self.members[number];
        let once = async || {
            let channel = member.connect().await.map_err(NoAnswer::NotSent)?;
            let attempt = self.attempt(member, &channel, timeout).await.map_err(NoAnswer::NotSent)?;
            let answered = within(timeout, call(attempt)).await;
            if matches!(answered, Err(Failure::Timeout(_))) {
                member.give_up(&channel);
            }
            answered.map_err(NoAnswer::Sent)
        };
        match once().await {
            Err(NoAnswer::Sent(Failure::Status(status))) if self.renew_token_after(&status).await => once().await,
            answered => answered,
        }
    }

    /// Asks one endpoint, by its number; once more with a new token if the refusal may be due to
    /// the token. Nothing else is repeated: this is for streams. `timeout` bounds the waits for the
    /// token and for the answer that opens the stream. A stream by [`Attempt::request`] would end
    /// with it: add the token by [`Attempt::authorize`] instead.
    ///
    /// # Errors
    ///
    /// The status of the call, or the failure to connect; `DEADLINE_EXCEEDED` if no answer came
    /// within `timeout`.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub async fn open<T, F>(
        &self,
        number: usize,
        timeout: Option<Duration>,
        call: impl Fn(Attempt) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.ask(number, timeout, &call).await.map_err(|failed| failed.into_failure().into_status())
    }

    /// Repeats a call until an endpoint answers or refuses, with a pause after each round in which
    /// all endpoints failed. The answer may take any time, so that it suits a call that waits in a
    /// queue. The call must do no harm when it is repeated.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] only.
    pub async fn call_until_answered<T, F>(
        &self,
        pause: Duration,
        call: impl Fn(Attempt) -> F,
    ) -> Result<Response<T>, CallError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        loop {
            match self.call_each_once(Repeat::Harmless, None, &call).await {
                Err(CallError::Unreachable(_)) => tokio::time::sleep(pause).await,
                answered => return answered,
            }
        }
    }

    /// Asks every endpoint at once; answers in the order of [`names`](Self::names). Each is asked
    /// once more with a new token if its refusal may be due to the token. Nothing else is repeated,
    /// and the preferred endpoint stays.
    pub async fn call_each<T, F>(&self, timeout: Duration, call: impl Fn(Attempt) -> F) -> Vec<Result<T, FailedAttempt>>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let call = &call;
        let one = |number: usize| async move {
            let answer = self.ask(number, Some(timeout), call).await;
            let endpoint = || self.name(number).to_owned();
            let failed = |failed: NoAnswer| FailedAttempt { endpoint: endpoint(), failure: failed.into_failure() };
            answer.map(Response::into_inner).map_err(failed)
        };
        futures::future::join_all((0..self.members.len()).map(one)).await
    }
}

/// The answer, or the failure of one attempt. Without `timeout` the wait has no bound.
async fn within<T>(timeout: Option<Duration>, answer: impl Future<Output = Result<T, Status>>) -> Result<T, Failure> {
    let Some(timeout) = timeout else { return answer.await.map_err(Failure::Status) };
    let answer = tokio::time::timeout(timeout, answer).await;
    answer.map_err(|_| Failure::Timeout(timeout))?.map_err(|status| {
        // By the timeout of [`Attempt::request`], which is as long.
        if is_caused_by::<TimeoutExpired>(&status) { Failure::Timeout(timeout) } else { Failure::Status(status) }
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::error::Error;
    use std::future::{Ready, ready};
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll};

    use tokio::net::{TcpListener, TcpSocket};
    use tonic::Code;
    use tonic::body::Body;
    use tonic::codegen::Service;
    use tonic::server::NamedService;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;

    use super::*;
    use headwater_proto::pb::etcdserverpb::PutRequest;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A port that refuses connections for as long as the socket exists: it is taken, and nothing
    /// listens on it.
    fn refusing() -> (TcpSocket, String) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let name = socket.local_addr().unwrap().to_string();
        (socket, name)
    }

    async fn put(attempt: Attempt) -> Result<Response<()>, Status> {
        let put = attempt.kv().put(attempt.request(PutRequest::default())).await?;
        Ok(put.map(drop))
    }

    #[test]
    fn none_is_refused() {
        assert_eq!(Endpoints::new([""; 0]).unwrap_err(), BadEndpoint::Missing);
        let error = Endpoints::new(["h:1", "h"]).unwrap_err();
        assert!(matches!(error, BadEndpoint::Malformed { name, .. } if name == "h"));
    }

    #[test]
    fn failures_at_one_endpoint_move_on_by_one() {
        let endpoints = Endpoints::new(["h:1", "h:2", "h:3"]).unwrap();
        let apart = endpoints.clone();
        let order = |endpoints: &Endpoints| endpoints.order().collect::<Vec<_>>();
        assert_eq!(order(&endpoints), [0, 1, 2]);
        // Two calls that began together.
        endpoints.fail_over(0);
        endpoints.fail_over(0);
        assert_eq!((order(&endpoints), order(&apart)), (vec![1, 2, 0], vec![0, 1, 2]));
        endpoints.fail_over(1);
        endpoints.fail_over(2);
        assert_eq!(order(&endpoints), [0, 1, 2]);
    }

    #[tokio::test]
    async fn every_endpoint_that_was_tried_is_named() {
        let [(_first, one), (_second, other)] = [refusing(), refusing()];
        let names = [one, other];
        let endpoints = Endpoints::new(&names).unwrap();
        let never = async |_| -> Result<Response<()>, Status> { unreachable!("nobody listens") };
        let CallError::Unreachable(tried) = endpoints.call(Repeat::Harmful, TIMEOUT, never).await.unwrap_err() else {
            panic!("nothing was sent");
        };
        assert_eq!(tried.iter().map(|tried| &tried.endpoint).collect::<Vec<_>>(), names.each_ref());
        let status = CallError::Unreachable(tried).into_status();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.source().is_some(), "the words of the operating system");
    }

    /// Three endpoints that take connections and never answer.
    async fn silent() -> (Vec<TcpListener>, Endpoints) {
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let names: Vec<_> = listeners.iter().map(|it| it.local_addr().unwrap().to_string()).collect();
        (listeners, Endpoints::new(names).unwrap())
    }

    #[tokio::test]
    async fn a_write_goes_to_the_next_endpoint_only_if_it_was_certainly_not_carried_out() {
        let (_listeners, endpoints) = silent().await;
        let ask = async |repeat, status: Status| {
            let asked = AtomicUsize::new(0);
            let call = async |_: Attempt| {
                asked.fetch_add(1, Ordering::Relaxed);
                Err::<Response<()>, _>(status.clone())
            };
            let error = endpoints.call(repeat, TIMEOUT, call).await.unwrap_err();
            (error, asked.into_inner())
        };
        let lost = || Status::unavailable("the leader is gone");
        let outcome = ask(Repeat::Harmful, lost()).await;
        assert!(matches!(outcome, (CallError::Indeterminate(_), 1)), "{outcome:?}");
        assert_eq!(endpoints.preferred(), 1, "the next request begins elsewhere");
        let outcome = ask(Repeat::Harmless, lost()).await;
        assert!(matches!(outcome, (CallError::Unreachable(_), 3)), "{outcome:?}");
        let outcome = ask(Repeat::Harmful, Status::unavailable("etcdserver: no leader")).await;
        assert!(matches!(outcome, (CallError::Unreachable(_), 3)), "{outcome:?}");
        let outcome = ask(Repeat::Harmless, Status::invalid_argument("no")).await;
        assert!(matches!(outcome, (CallError::Refused { .. }, 1)), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_call_is_repeated_until_it_is_refused() {
        let (_listeners, endpoints) = silent().await;
        let asked = AtomicUsize::new(0);
        let call = async |_: Attempt| match asked.fetch_add(1, Ordering::Relaxed) {
            0..4 => Err::<Response<()>, _>(Status::unavailable("the leader is gone")),
            _ => Err(Status::invalid_argument("no")),
        };
        let error = endpoints.call_until_answered(Duration::from_millis(1), call).await.unwrap_err();
        assert!(matches!(error, CallError::Refused { .. }), "{error:?}");
        assert_eq!(asked.into_inner(), 5);
    }

    #[tokio::test]
    async fn a_connection_that_cannot_be_made_again_has_sent_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoints = Endpoints::new([listener.local_addr().unwrap().to_string()]).unwrap();
        endpoints.connect(0, Some(TIMEOUT)).await.unwrap();
        drop(listener);
        // The first request or two may meet the old connection; then there is none.
        for _ in 0..10 {
            match endpoints.call(Repeat::Harmful, TIMEOUT, put).await.unwrap_err() {
                CallError::Indeterminate(_) => {}
                CallError::Unreachable(_) => return,
                error @ CallError::Refused { .. } => panic!("{error:?}"),
            }
        }
        panic!("a refused connection leaves the outcome open");
    }

    /// A server's Auth: authentication is turned off, until the server fails.
    #[derive(Clone, Default)]
    struct Auth {
        is_failing: Arc<AtomicBool>,
    }

    impl NamedService for Auth {
        const NAME: &'static str = "etcdserverpb.Auth";
    }

    impl Service<http::Request<Body>> for Auth {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            let status = match self.is_failing.load(Ordering::Relaxed) {
                true => Status::unavailable("etcdserver: request timed out"),
                false => Status::failed_precondition("etcdserver: authentication is not enabled"),
            };
            ready(Ok(status.into_http()))
        }
    }

    /// The endpoints of `count` servers with `auth`, asked as a user.
    fn serve(auth: &Auth, count: usize) -> Endpoints {
        let mut names = Vec::new();
        for _ in 0..count {
            let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            names.push(incoming.local_addr().unwrap().to_string());
            tokio::spawn(Server::builder().add_service(auth.clone()).serve_with_incoming(incoming));
        }
        Endpoints::new(names).unwrap().as_user(Some(Credentials::new("alice", "secret")))
    }

    #[tokio::test]
    async fn a_write_that_got_no_new_token_was_not_carried_out() {
        let auth = Auth::default();
        let endpoints = serve(&auth, 1);
        let call = async |_: Attempt| {
            auth.is_failing.store(true, Ordering::Relaxed);
            Err::<Response<()>, _>(Status::unauthenticated("etcdserver: invalid auth token"))
        };
        let error = endpoints.call(Repeat::Harmful, TIMEOUT, call).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable(_)), "{error:?}");
    }

    #[tokio::test]
    async fn each_endpoint_that_no_longer_knows_the_token_is_asked_again() {
        let endpoints = serve(&Auth::default(), 3);
        let (asked, all_asked) = (AtomicUsize::new(0), tokio::sync::Barrier::new(3));
        let call = async |_: Attempt| match asked.fetch_add(1, Ordering::Relaxed) {
            0..3 => {
                all_asked.wait().await;
                Err(Status::unauthenticated("etcdserver: invalid auth token"))
            }
            _ => Ok(Response::new(())),
        };
        let answers = endpoints.call_each(TIMEOUT, call).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(asked.into_inner(), 6);
    }
}
