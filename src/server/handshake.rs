//! TLS connections: the handshake, the client's identity on each request, and the end of a
//! connection when the client's certificate becomes invalid.
//!
//! Invariants: a handshake ends after at most [`headwater_tls::HANDSHAKE_TIMEOUT`]; a connection
//! ends at most [`TRUST_INTERVAL`] after the client's certificate becomes invalid.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use tower::Service;

use headwater_api::Connected;
use headwater_node::ClientKey;
use headwater_tls::{Identity, ServerTls};
use headwater_types::limits::DNS_CONNECTIONS_MAX;

/// Most connections of one IPv4 address, or one /64 of IPv6, in their TLS handshake on one port at
/// once, count. More than a machine with a few thousand clients opens within a second.
pub(super) const HALF_OPEN_MAX: usize = 1024;
/// Most connections of one IPv4 address, or one /64 of IPv6, in their TLS handshake on the port of
/// DNS over TLS at once, count. A fraction of all DNS connections, so that one address cannot take
/// them all by handshakes that it never ends.
pub(super) const DNS_HALF_OPEN_MAX: usize = DNS_CONNECTIONS_MAX / 4;
/// Time between two checks of the client's certificate of an open connection. One more check
/// follows when the port has loaded changed certificate files.
const TRUST_INTERVAL: Duration = Duration::from_secs(20);

/// A service that adds the other end of its connection to the extensions of each request: client,
/// address and certificate.
#[derive(Clone, Debug)]
pub(super) struct Identified<S> {
    service: S,
    identity: Option<Identity>,
    connected: Connected,
}

impl<S> Identified<S> {
    /// The service of a connection in plain text.
    pub(super) fn plain(service: S, client: ClientKey, address: Option<SocketAddr>) -> Self {
        Self { service, identity: None, connected: Connected { client, address, certificate: None } }
    }

    /// The service of a TLS connection. If the certificate has a name, requests count for that
    /// name, otherwise for `client`. The common name also counts as a user, but only if the server
    /// requires certificates.
    pub(super) fn new(
        service: S,
        client: ClientKey,
        address: Option<SocketAddr>,
        identity: Option<Identity>,
        tls: &ServerTls,
    ) -> Self {
        let common_name = identity.as_ref().map(Identity::common_name).filter(|name| !name.is_empty());
        let first_name = || identity.as_ref()?.names().first().map(String::as_str);
        let name = common_name.or_else(first_name).filter(|name| !name.is_empty());
        let client = name.map_or(client, ClientKey::of_name);
        let certificate = common_name.filter(|_| tls.requires_clients()).map(Into::into);
        Self { service, identity, connected: Connected { client, address, certificate } }
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
        if let Some(identity) = &self.identity {
            request.extensions_mut().insert(identity.clone());
        }
        request.extensions_mut().insert(self.connected.clone());
        self.service.call(request)
    }
}

/// Resolves with the reason once the client's certificate is no longer valid. Never if `identity`
/// is `None`.
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
