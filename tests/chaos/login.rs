//! A user at one node: name, password, and the token that the node gave for them.
//!
//! Name and password are exchanged for a token: one exchange at a time, and a new one after the
//! node has refused the token, as after a restart. Every request over a [`Line`] carries the token
//! that was known when the line was opened. While authentication is not enabled, requests carry
//! none.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_client::Credentials;
use headwater_proto::pb::etcdserverpb::AuthenticateRequest;
use headwater_proto::pb::etcdserverpb::auth_client::AuthClient;
use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::transport::{Channel, Error};
use tonic::{Code, Status};
use tower::Service;

/// Name of the user with every right.
pub(crate) const ROOT: &str = "root";
/// Name of the metadata field with the token, as etcd's clients send it.
const TOKEN: &str = "token";
/// Longest time of an exchange: a password is hashed, and its token is replicated.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
const NOT_ENABLED: &str = "etcdserver: authentication is not enabled";

/// A user at one node; clones share the token.
#[derive(Clone)]
pub(crate) struct Login {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    password: String,
    token: Mutex<Option<HeaderValue>>,
    /// Locked during an exchange: one at a time.
    exchange: tokio::sync::Mutex<()>,
}

impl Login {
    pub(crate) fn new(name: &str, password: &str) -> Self {
        let (name, password) = (name.to_owned(), password.to_owned());
        let (token, exchange) = Default::default();
        Self { inner: Arc::new(Inner { name, password, token, exchange }) }
    }

    /// Name and password for the client library, which exchanges them for a token by itself.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::new(&*self.inner.name, &*self.inner.password)
    }

    /// The password of this user.
    pub(crate) fn password(&self) -> &str {
        &self.inner.password
    }

    /// Drops the token: the next [`Line`] that is opened gets another one.
    pub(crate) fn renew(&self) {
        *self.inner.token.lock() = None;
    }

    /// Drops a token that the node has refused. A newer one stays.
    fn refused(&self, token: &HeaderValue) {
        self.inner.token.lock().take_if(|known| known == token);
    }

    /// The known token, or a new one by an exchange. `Ok(None)` while authentication is not
    /// enabled.
    async fn token(&self, channel: &Channel) -> Result<Option<HeaderValue>, String> {
        let known = self.inner.token.lock().clone();
        if known.is_some() {
            return Ok(known);
        }
        // A task of its own: a caller that gives up must not undo the work for all others.
        let (inner, channel) = (Arc::clone(&self.inner), channel.clone());
        tokio::spawn(async move { inner.exchange(channel).await }).await.map_err(|error| error.to_string())?
    }
}

impl Inner {
    async fn exchange(&self, channel: Channel) -> Result<Option<HeaderValue>, String> {
        let _turn = self.exchange.lock().await;
        let known = self.token.lock().clone();
        if known.is_some() {
            return Ok(known);
        }
        let request = AuthenticateRequest { name: self.name.clone(), password: self.password.clone() };
        let mut client = AuthClient::new(channel);
        let answered = tokio::time::timeout(EXCHANGE_MAX, client.authenticate(request)).await;
        match answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))) {
            Ok(answer) => {
                let token = HeaderValue::from_str(&answer.into_inner().token).map_err(|error| error.to_string())?;
                *self.token.lock() = Some(token.clone());
                Ok(Some(token))
            }
            Err(status) if status.message() == NOT_ENABLED => Ok(None),
            Err(status) => Err(format!("no token for {}: {} ({:?})", self.name, status.message(), status.code())),
        }
    }
}

/// A gRPC channel that adds the token of a user to each request, if there is one. The token never
/// changes; a refused one is dropped from its [`Login`]. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Line {
    channel: Channel,
    shown: Option<(Login, HeaderValue)>,
}

impl Line {
    /// Wraps `channel`, with a token of `login`: the known one, or a new one by an exchange.
    /// Without a token if `login` is `None` or authentication is not enabled.
    pub(crate) async fn open(channel: Channel, login: Option<&Login>) -> Result<Self, String> {
        let token = match login {
            Some(login) => login.token(&channel).await?.map(|token| (login.clone(), token)),
            None => None,
        };
        Ok(Self { channel, shown: token })
    }

    /// Drops the login's token if it is this line's, and `status`, an answer to a request of this
    /// line, is `Unauthenticated`.
    pub(crate) fn note(&self, status: &Status) {
        if status.code() == Code::Unauthenticated {
            self.refused();
        }
    }

    fn refused(&self) {
        if let Some((login, token)) = &self.shown {
            login.refused(token);
        }
    }
}

impl Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some((_, token)) = &self.shown {
            request.headers_mut().insert(TOKEN, token.clone());
        }
        let (answered, line) = (self.channel.call(request), self.clone());
        Box::pin(async move {
            let response = answered.await?;
            if says_unknown(&response) {
                line.refused();
            }
            Ok(response)
        })
    }
}

/// Whether the status or the headers of a response say that the token is not accepted: HTTP status
/// 401 or 403, or `grpc-status` `Unauthenticated`. Trailers are not read: see [`Line::note`].
fn says_unknown<T>(response: &http::Response<T>) -> bool {
    let unauthenticated = (Code::Unauthenticated as i32).to_string();
    matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        || response.headers().get("grpc-status").is_some_and(|status| status.as_bytes() == unauthenticated.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_dropped_when_it_is_refused_and_a_newer_one_stays() {
        let login = Login::new("u", "p");
        let (old, new) = (HeaderValue::from_static("old"), HeaderValue::from_static("new"));
        *login.inner.token.lock() = Some(new.clone());
        login.refused(&old);
        assert_eq!(*login.inner.token.lock(), Some(new.clone()));
        login.refused(&new);
        assert_eq!(*login.inner.token.lock(), None);
    }

    #[test]
    fn what_says_that_a_token_is_unknown() {
        let grpc = |status: &str| http::Response::builder().header("grpc-status", status).body(()).unwrap();
        let http = |status: u16| http::Response::builder().status(status).body(()).unwrap();
        for (response, wanted) in
            [(grpc("16"), true), (grpc("7"), false), (http(403), true), (http(401), true), (http(200), false)]
        {
            assert_eq!(says_unknown(&response), wanted, "{response:?}");
        }
    }
}
