//! Texts that name an endpoint: `HOST:PORT`, `http://HOST:PORT`, `https://HOST:PORT` or
//! `unix:///PATH`.
//!
//! Owns their grammar and the settings of a connection. Invariant: texts that differ only in the
//! spelling of the scheme and of slashes get the same name.

use std::time::Duration;

use thiserror::Error;
use tonic::transport::{Channel, Endpoint};

use headwater_tls::{Connector, Dialer};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without received data after which a connection with open requests is probed by an HTTP/2
/// `PING`, and longest wait for the answer. A stream is silent for as long as nothing changes: only
/// a probe finds out that the member has stopped. Idle connections are not probed: etcd closes them
/// for it.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// HTTP/2 flow control windows of one stream and of one connection, bytes.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// The reason for which endpoints cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    /// A text without the form of an endpoint, or an `https://` endpoint although no certificate
    /// authority is given.
    #[error("{name:?} is not an endpoint; write HOST:PORT")]
    Malformed {
        /// The text as it was given.
        name: String,
        /// The defect, a few words.
        reason: &'static str,
    },
    /// The list of endpoints is empty.
    #[error("no endpoint is named")]
    Missing,
}

/// An endpoint with a checked text, and the settings of its connections. Not connected.
pub(crate) struct Address {
    /// `HOST:PORT`, `https://HOST:PORT` or `unix:///PATH`.
    pub(crate) name: String,
    /// Settings of its connections.
    endpoint: Endpoint,
    /// Makes its connections; `None` for a Unix socket.
    connector: Option<Connector>,
}

impl Address {
    /// Reads the text of an endpoint. A text without a scheme means `https://` if `dialer` has TLS,
    /// else `http://`.
    ///
    /// # Errors
    ///
    /// [`BadEndpoint::Malformed`] with the defect.
    pub(crate) fn parse(text: &str, dialer: &Dialer) -> Result<Self, BadEndpoint> {
        Self::checked(text, dialer).map_err(|reason| BadEndpoint::Malformed { name: text.to_owned(), reason })
    }

    /// Makes a new connection to the endpoint.
    pub(crate) async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        match &self.connector {
            Some(connector) => self.endpoint.connect_with_connector(connector.clone()).await,
            None => self.endpoint.connect().await,
        }
    }

    fn checked(text: &str, dialer: &Dialer) -> Result<Self, &'static str> {
        if text.starts_with("unix:") || text.starts_with("unixs:") {
            let path = socket_path(text).ok_or("a Unix socket is unix:///PATH")?;
            let name = format!("unix://{path}");
            let endpoint = Endpoint::from_shared(name.clone()).map_err(|_| "malformed")?;
            return Ok(Self { name, endpoint: with_settings(endpoint), connector: None });
        }
        // As in etcdctl: without a scheme, a trusted certificate authority asks for TLS.
        let (is_tls, authority) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(authority), _) => (true, authority),
            (None, Some(authority)) => (false, authority),
            (None, None) => (dialer.has_tls(), text),
        };
        let authority = authority.trim_end_matches('/');
        let uri: http::Uri = format!("http://{authority}").parse().map_err(|_| "malformed")?;
        if uri.path() != "/" || uri.query().is_some() {
            return Err("a path behind the port");
        }
        if uri.port_u16().is_none() {
            let is_number = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| is_number(port));
            return Err(if has_port { "no such port, the last one is 65535" } else { "no port" });
        }
        if is_tls && !dialer.has_tls() {
            return Err("an authority that judges the server is missing: name its certificate by --cacert");
        }
        let name = if is_tls { format!("https://{authority}") } else { authority.to_owned() };
        let url = if is_tls { name.clone() } else { format!("http://{authority}") };
        let (endpoint, connector) = dialer.endpoint(&url, CONNECT_TIMEOUT).map_err(|_| "malformed")?;
        Ok(Self { name, endpoint: with_settings(endpoint), connector: Some(connector) })
    }
}

fn with_settings(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Address").field(&self.name).finish()
    }
}

/// The path of an endpoint that is a Unix socket, `unix:///PATH` or `unix:/PATH`. `None` for every
/// other text, for a relative path, and for a path that ends with a slash.
#[must_use]
pub fn socket_path(name: &str) -> Option<&str> {
    let path = name.strip_prefix("unix://").or_else(|| name.strip_prefix("unix:"))?;
    (path.starts_with('/') && !path.ends_with('/')).then_some(path)
}

/// The URL of an endpoint, for its name as in [`Endpoints::names`](crate::Endpoints::names): a name
/// without a scheme gets `http://`.
#[must_use]
pub fn endpoint_url(name: &str) -> String {
    if name.contains("://") { name.to_owned() } else { format!("http://{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_take_several_forms() {
        for (text, name) in [
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("127.0.0.1:2379", Some("127.0.0.1:2379")),
            ("http://h:2/", Some("h:2")),
            ("http://localhost:2379/", Some("localhost:2379")),
            ("[::1]:2379", Some("[::1]:2379")),
            ("h", None),
            ("localhost", None),
            ("https://h:1", None),
            ("h:99999", None),
            ("h:1/v3", None),
            ("a b:1", None),
            ("", None),
            ("unix:///run/s.sock", Some("unix:///run/s.sock")),
            ("unix:/run/s.sock", Some("unix:///run/s.sock")),
            ("unix://s.sock", None),
            ("unix:///", None),
            ("unixs:///run/s.sock", None),
        ] {
            assert_eq!(
                Address::parse(text, &Dialer::default()).ok().map(|address| address.name).as_deref(),
                name,
                "{text:?}"
            );
        }
        let malformed = |name: &str, reason| BadEndpoint::Malformed { name: name.to_owned(), reason };
        for (text, reason) in [("h:99999", "no such port, the last one is 65535"), ("h:", "no port")] {
            assert_eq!(Address::parse(text, &Dialer::default()).unwrap_err(), malformed(text, reason));
        }
    }
}
