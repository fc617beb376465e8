//! Connections by TLS: their handshake, the client on their requests, and their end with its
//! certificate.
//!
//! Invariant: a connection holds its place among those that shake hands for at most
//! [`headwater_tls::HANDSHAKE_TIMEOUT`], and outlives its certificate by at most
//! [`TRUST_INTERVAL`].

use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use tower::Service;

use headwater_node::ClientKey;
use headwater_tls::{Identity, ServerTls};

/// Most connections of one address that shake hands at the same time, count. Above what a machine
/// with a few thousand clients opens within a second.
pub(super) const HALF_OPEN_MAX: usize = 1024;
/// Time between two checks of a certificate that is in use. New files are checked against at once.
const TRUST_INTERVAL: Duration = Duration::from_secs(20);

/// A service whose requests carry the client of their connection, and its certificate.
#[derive(Clone, Debug)]
pub(super) struct Identified<S> {
    service: S,
    client: ClientKey,
    identity: Option<Identity>,
}

impl<S> Identified<S> {
    /// `address` stands for a client without a certificate.
    pub(super) fn new(service: S, address: ClientKey, identity: Option<Identity>) -> Self {
        let name = identity.as_ref().map(|identity| match identity.common_name() {
            "" => identity.names().first().map_or("", String::as_str),
            name => name,
        });
        let client = name.filter(|name| !name.is_empty()).map_or(address, ClientKey::of_name);
        Self { service, client, identity }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Identified<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.client);
        if let Some(identity) = &self.identity {
            request.extensions_mut().insert(identity.clone());
        }
        self.service.call(request)
    }
}

/// Resolves with the reason once a certificate is no longer valid; never without one.
pub(super) async fn until_untrusted(tls: &ServerTls, identity: Option<&Identity>) -> String {
    let Some(identity) = identity else { return std::future::pending().await };
    let mut renewals = tls.renewals();
    loop {
        tokio::select! {
            () = tokio::time::sleep(TRUST_INTERVAL) => {}
            Ok(()) = renewals.changed() => {}
        }
        if let Err(why) = tls.check(identity) {
            return why;
        }
    }
}
