//! The cluster that a command talks to: [`Endpoints`] with one timeout, and failed calls as texts
//! for people.
//!
//! Knows neither the order of endpoints nor the meaning of a status: `headwater_client` owns both.
//! Invariant: a write without an answer becomes [`CliError::Indeterminate`], unless it is
//! [`Repeat::Harmless`].

use std::error::Error;
use std::time::Duration;

use tonic::{Code, Response, Status};

use super::error::{CliError, Tried, code_name};
use headwater_client::{Attempt, BadEndpoint, CallError, Credentials, Endpoints, FailedAttempt, Failure, Repeat};
use headwater_tls::Dialer;

/// The endpoints that the user named, the timeout of one endpoint's answer, and the identity of the
/// requests.
pub struct Cluster {
    endpoints: Endpoints,
    timeout: Duration,
    /// The secret of a token of Consul's access control lists.
    token: Option<String>,
}

impl Cluster {
    /// Checks the form of the endpoints. Opens no connection. `timeout` is the longest wait for one
    /// endpoint's answer.
    ///
    /// # Errors
    ///
    /// [`CliError::Usage`] for the first malformed endpoint, or if `endpoints` is empty.
    pub fn new(endpoints: &[String], timeout: Duration, dialer: &Dialer) -> Result<Self, CliError> {
        Ok(Self { endpoints: Endpoints::by(endpoints, dialer)?, timeout, token: None })
    }

    /// Sets the secret of a token of Consul's access control lists; `None` for no token.
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// The secret of the token that the user named.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Sends all requests as this user; `None` for no user.
    #[must_use]
    pub fn as_user(self, user: Option<Credentials>) -> Self {
        Self { endpoints: self.endpoints.as_user(user), ..self }
    }

    /// The user of all requests; `None` for no user.
    pub fn user(&self) -> Option<Credentials> {
        self.endpoints.user()
    }

    /// The endpoints.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Longest wait for one endpoint's answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Names of the endpoints, in the order in which the user named them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.endpoints.names()
    }

    /// Asks one endpoint after the other, by the rules of [`Endpoints::call`].
    ///
    /// # Errors
    ///
    /// [`CliError::Refused`], [`CliError::Indeterminate`] or [`CliError::Unreachable`].
    pub async fn call<T, F>(&self, repeat: Repeat, call: impl Fn(Attempt) -> F) -> Result<T, CliError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        Ok(self.endpoints.call(repeat, self.timeout, call).await?.into_inner())
    }

    /// Connects to one endpoint, by its position in [`names`](Self::names), from 0 on. Requests
    /// made by [`Attempt::request`] have the timeout: do not use it for a call that stays open
    /// longer.
    ///
    /// # Errors
    ///
    /// The failure to connect, or to log the user in, as a text for people.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub async fn attempt(&self, number: usize) -> Result<Attempt, String> {
        self.endpoints.connect(number, Some(self.timeout)).await.map_err(|status| describe(&status))
    }

    /// Asks all endpoints at once. Returns their answers in the order of [`names`](Self::names)
    /// ([`Endpoints::call_each`]).
    pub async fn call_each<T, F>(&self, call: impl Fn(Attempt) -> F) -> Vec<Result<T, Tried>>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answers = self.endpoints.call_each(self.timeout, call).await;
        answers.into_iter().map(|answer| answer.map_err(Tried::from)).collect()
    }
}

impl From<BadEndpoint> for CliError {
    fn from(error: BadEndpoint) -> Self {
        Self::Usage(match error {
            BadEndpoint::Missing => "--endpoints names no endpoint".to_owned(),
            BadEndpoint::Malformed { name, reason } => format!(
                "{name:?} is not an endpoint ({reason}); write [https://]HOST:PORT, such as 127.0.0.1:2379, or unix:///PATH"
            ),
        })
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused { endpoint, status } => Self::Refused { endpoint, status: Box::new(status) },
            CallError::Indeterminate(failed) => {
                let Tried { endpoint, reason } = failed.into();
                Self::Indeterminate { endpoint, reason }
            }
            CallError::Unreachable(failed) => Self::Unreachable(failed.into_iter().map(Tried::from).collect()),
        }
    }
}

impl From<FailedAttempt> for Tried {
    fn from(FailedAttempt { endpoint, failure }: FailedAttempt) -> Self {
        let reason = match failure {
            Failure::Status(status) => describe(&status),
            Failure::Timeout(timeout) => format!("no answer within {}", humantime::format_duration(timeout)),
        };
        Self { endpoint, reason }
    }
}

/// The reason of a failed call, as a text for people.
pub fn describe(status: &Status) -> String {
    // The status that the gRPC client itself returns when the deadline of a request has passed.
    if status.code() == Code::Cancelled && status.message() == "Timeout expired" {
        return "no answer in time".to_owned();
    }
    match status.source() {
        Some(source) => innermost(source),
        None => format!("{} ({})", status.message(), code_name(status.code())),
    }
}

/// The text of the innermost source, usually an error of the operating system: the outer errors
/// have only "transport error".
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    #[test]
    fn a_malformed_endpoint_is_wrong_use_with_the_reason() {
        let error = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            let error = Cluster::new(&names, TIMEOUT, &Dialer::default()).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert!(error(&["h:99999"]).contains("65535"), "{}", error(&["h:99999"]));
        assert_eq!(
            error(&["h:1", "h:"]),
            "\"h:\" is not an endpoint (no port); write [https://]HOST:PORT, such as 127.0.0.1:2379, or unix:///PATH"
        );
        assert!(error(&[""]).contains("is not an endpoint"), "{}", error(&[""]));
        assert_eq!(error(&[]), "--endpoints names no endpoint");
    }

    #[tokio::test]
    async fn every_endpoint_that_was_tried_is_named() {
        // Bound ports without a listener refuse connections for as long as the sockets live.
        let refusing = || {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            socket
        };
        let sockets = [refusing(), refusing()];
        let names = sockets.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
        let cluster = Cluster::new(&names, TIMEOUT, &Dialer::default()).unwrap();
        let never = async |_| -> Result<Response<()>, Status> { unreachable!("nobody listens") };
        let error = cluster.call(Repeat::Harmful, never).await.unwrap_err().to_string();
        for name in &names {
            assert!(error.contains(&format!("{name}: Connection refused")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_write_without_an_answer_is_indeterminate() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let cluster = Cluster::new(&[listener.local_addr().unwrap().to_string()], TIMEOUT, &Dialer::default()).unwrap();
        let lost = async |_| Err::<Response<()>, _>(Status::unavailable("etcdserver: leader changed"));
        let error = cluster.call(Repeat::Harmful, lost).await.unwrap_err();
        assert!(matches!(error, CliError::Indeterminate { .. }), "{error:?}");
        assert!(error.to_string().contains("etcdserver: leader changed (Unavailable)"), "{error}");
        let slow = async |_| std::future::pending::<Result<Response<()>, Status>>().await;
        let text = cluster.call(Repeat::Harmless, slow).await.unwrap_err().to_string();
        assert!(text.contains("no answer within 1s"), "{text}");
    }
}
