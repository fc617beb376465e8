//! A user's name and password, and the token that they were exchanged for.
//!
//! Owns the exchange: once for all clones, again when a server no longer knows the token.
//! Invariant: neither password nor token is printed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use zeroize::Zeroizing;

use headwater_proto::pb::etcdserverpb::AuthenticateRequest;
use headwater_proto::pb::etcdserverpb::auth_client::AuthClient;

/// A user with a password.
#[derive(Clone)]
pub struct Credentials {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    password: Zeroizing<String>,
    known: Mutex<Option<Known>>,
}

/// The answer of a server: a token, or that none is needed.
#[derive(Clone)]
struct Known(Option<Token>);

/// A token, as metadata.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) MetadataValue<Ascii>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Credentials {
    /// A user with a password. Nothing is sent yet.
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        let password = Zeroizing::new(password.into());
        Self { inner: Arc::new(Inner { name: name.into(), password, known: Mutex::default() }) }
    }

    /// The token. The first call exchanges the password for it at the server of `channel`. After a
    /// success, later calls return the same result until [`renew_after`](Self::renew_after) forgets
    /// it. `None` if authentication was off at that server. `limit` bounds the wait for the
    /// exchange of another call, and then that for this one. Calls `give_up` if the server does not
    /// answer this one.
    ///
    /// # Errors
    ///
    /// The status with which the server refused the exchange, or of a failed call; `UNAVAILABLE` if
    /// there is no token in time.
    pub(crate) async fn token(
        &self,
        channel: &Channel,
        limit: Duration,
        give_up: impl FnOnce(),
    ) -> Result<Option<Token>, Status> {
        let late = || Status::unavailable("no token in time");
        // The other call may ask another server: it says nothing about this one.
        let mut known = timeout(limit, self.inner.known.lock()).await.map_err(|_| late())?;
        if let Some(Known(token)) = &*known {
            return Ok(token.clone());
        }
        let request =
            AuthenticateRequest { name: self.inner.name.clone(), password: String::clone(&self.inner.password) };
        let answered = timeout(limit, AuthClient::new(channel.clone()).authenticate(Request::new(request))).await;
        let token = match answered.map_err(|_| {
            give_up();
            late()
        })? {
            Ok(response) => {
                let mut token: MetadataValue<Ascii> = response
                    .into_inner()
                    .token
                    .parse()
                    .map_err(|_| Status::internal("the server gave a token that is no text"))?;
                token.set_sensitive(true);
                Some(Token(token))
            }
            Err(status) if status.message() == "etcdserver: authentication is not enabled" => None,
            Err(status) => return Err(status),
        };
        *known = Some(Known(token.clone()));
        Ok(token)
    }

    /// Forgets the result of the exchange if `status` may mean that it no longer holds: any
    /// `UNAUTHENTICATED`, an old auth revision, or a missing user name. Returns whether it did.
    pub(crate) async fn renew_after(&self, status: &Status) -> bool {
        let is_stale = match status.code() {
            Code::Unauthenticated => true,
            Code::InvalidArgument => matches!(
                status.message(),
                "etcdserver: revision of auth store is old" | "etcdserver: user name is empty"
            ),
            _ => false,
        };
        if is_stale {
            *self.inner.known.lock().await = None;
        }
        is_stale
    }
}
