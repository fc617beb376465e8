//! The client of a request: its credentials, and the other end of its connection. The same on every
//! face.
//!
//! Owns the names of headers, metadata and certificates that carry credentials, and their order:
//!
//! | order | credentials |
//! |---|---|
//! | 1 | the metadata or header `token`, as etcd's clients send it |
//! | 2 | `x-consul-token`, as Consul's clients send it |
//! | 3 | `authorization`: a token, with or without `Bearer`; or user and password (`Basic`) |
//! | 4 | the common name of the certificate that the connection has proven |
//! | 5 | `headwater-peer-url`: the URL of a node that joins, which proves nothing |
//!
//! The first one that is not empty counts, and the others are ignored: wrong credentials do not
//! fall back to weaker ones. A request that a member of another datacenter has passed on
//! ([`FORWARDED`]) has the certificate of that member, which does not count. Knows no user and no
//! token: the node looks them up. Invariant: no secret is printed.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Extensions, HeaderMap, HeaderName, header};

use headwater_node::{AuditTrail, ClientKey, Principal, RequestContext, Secret};
use headwater_types::Face;

/// Metadata of etcd's clients with a token.
const TOKEN: HeaderName = HeaderName::from_static("token");
/// Header of Consul's clients with a token.
const CONSUL_TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// The headers with a token, or with user and password. A request that is passed on to another
/// datacenter keeps them.
pub const CREDENTIALS: [HeaderName; 3] = [TOKEN, CONSUL_TOKEN, header::AUTHORIZATION];
/// Header of a request that a member of another datacenter has passed on.
pub const FORWARDED: HeaderName = HeaderName::from_static("headwater-forwarded");

/// Header of a node that joins, with its peer URL.
pub const HEADWATER_PEER_URL: &str = "headwater-peer-url";
const PEER_URL: HeaderName = HeaderName::from_static(HEADWATER_PEER_URL);

/// The other end of a connection. The listener puts it into the extensions of each request.
#[derive(Clone, Debug, Default)]
pub struct Connected {
    /// The party against which the limits count the connection's requests.
    pub client: ClientKey,
    /// The address; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The common name of the verified certificate of the client; `None` if it has shown none.
    pub certificate: Option<Arc<str>>,
}

/// Credentials as a client shows them.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A token, a certificate's name, the peer URL of a node that joins, or nothing. `Node` looks
    /// up its rights.
    Principal(Principal),
    /// A user with a password. `Node` checks the pair and exchanges it for a token, before the
    /// requirement of the request is checked.
    Password {
        /// The user's name.
        user: String,
        /// The password.
        password: Secret,
    },
}

impl Credentials {
    /// Reads the credentials of a request, in the order of the table above. `certificate` is the
    /// common name that the connection has proven; `None` if it has proven none.
    pub fn read(headers: &HeaderMap, certificate: Option<&Arc<str>>) -> Self {
        // One pass over the few headers of most requests costs less than a look-up of each name.
        if certificate.is_none() && !headers.keys().any(|name| CREDENTIALS.contains(name) || *name == PEER_URL) {
            return Self::Principal(Principal::Anonymous);
        }
        let shown = |name| headers.get(name).filter(|value| !value.is_empty());
        if let Some(token) = shown(TOKEN).or_else(|| shown(CONSUL_TOKEN)) {
            return Self::token(&text(token.as_bytes()));
        }
        if let Some(value) = headers.get(header::AUTHORIZATION).filter(|it| !it.is_empty()) {
            let value = text(value.as_bytes());
            return match scheme(&value) {
                Some(("basic", encoded)) => Self::basic(encoded),
                Some(("bearer", token)) => Self::token(token),
                _ => Self::token(&value),
            };
        }
        Self::Principal(match certificate.filter(|_| !headers.contains_key(FORWARDED)) {
            Some(name) if !name.is_empty() => Principal::Certificate(Arc::clone(name)),
            _ => match headers.get(PEER_URL).filter(|it| !it.is_empty()) {
                Some(url) => Principal::Joining(text(url.as_bytes()).into()),
                None => Principal::Anonymous,
            },
        })
    }

    /// A token, as a client sent it.
    pub fn token(text: &str) -> Self {
        Self::Principal(Principal::Bearer(Secret::new(text)))
    }

    /// User and password in base64. Malformed text becomes a token that does not exist: the request
    /// must not count as anonymous.
    fn basic(encoded: &str) -> Self {
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match decoded.as_deref().and_then(|pair| pair.split_once(':')) {
            Some((user, password)) => Self::Password { user: user.to_owned(), password: Secret::new(password) },
            None => Self::token("Basic"),
        }
    }
}

/// The scheme of the value of `authorization`, in lower case, and the text after it. `None` if it
/// has neither of the known schemes.
fn scheme(value: &str) -> Option<(&'static str, &str)> {
    let (scheme, rest) = value.split_once(' ')?;
    let known = ["basic", "bearer"].into_iter().find(|known| scheme.eq_ignore_ascii_case(known))?;
    Some((known, rest.trim()))
}

/// Bytes of a header as text. Bytes that are not UTF-8 become the replacement character, which no
/// token contains.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The client of a request that `api::access` has admitted. Stored in the extensions of
/// the request.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The identity, which the node looks up.
    pub principal: Principal,
    /// The party against which the limits count the request.
    pub client: ClientKey,
    /// Collects, for the audit log, the key intervals that the node judges. `None` if the request
    /// is not written to the audit log.
    pub trail: Option<AuditTrail>,
    /// The face that history names as the origin of commands of this request; `None` for an API
    /// that proposes no commands.
    pub face: Option<Face>,
}

impl Caller {
    /// The caller of a request; the anonymous one if the request did not pass
    /// `api::access`.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// `context`, with the principal, the client key, the audit trail and the face of this caller.
    pub fn fill(self, context: RequestContext) -> RequestContext {
        RequestContext { principal: self.principal, client: self.client, trail: self.trail, face: self.face, ..context }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)], certificate: Option<&str>) -> String {
        let headers: HeaderMap =
            pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
        match Credentials::read(&headers, certificate.map(Arc::from).as_ref()) {
            Credentials::Principal(Principal::Anonymous) => "anonymous".to_owned(),
            Credentials::Principal(Principal::Bearer(token)) => format!("token {}", token.reveal()),
            Credentials::Principal(Principal::Certificate(name)) => format!("certificate {name}"),
            Credentials::Principal(Principal::Joining(url)) => format!("joining {url}"),
            Credentials::Password { user, password } => format!("{user} with {}", password.reveal()),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_place_of_a_token_is_read_and_the_first_one_counts() {
        for (headers, wanted) in [
            (&[][..], "anonymous"),
            (&[("token", "a.1")], "token a.1"),
            (&[("x-consul-token", "s")], "token s"),
            (&[("authorization", "a.1")], "token a.1"),
            (&[("authorization", "Bearer a.1")], "token a.1"),
            (&[("authorization", "bearer  a.1 ")], "token a.1"),
            (&[("authorization", "Bearer")], "token Bearer"),
            (&[("authorization", "Digest x")], "token Digest x"),
            (&[("authorization", "Basic cm9vdDpwYXNzOndvcmQ=")], "root with pass:word"),
            (&[("authorization", "Basic cm9vdA==")], "token Basic"),
            (&[("authorization", "Basic !")], "token Basic"),
            (&[("token", "")], "anonymous"),
            (&[("token", ""), ("x-consul-token", "s")], "token s"),
            (&[("headwater-peer-url", "http://h:1")], "joining http://h:1"),
            (&[("headwater-peer-url", "http://h:1"), ("token", "a.1")], "token a.1"),
            (&[("token", "first"), ("x-consul-token", "second"), ("authorization", "third")], "token first"),
            (&[("x-consul-token", "second"), ("authorization", "third")], "token second"),
        ] {
            assert_eq!(read(headers, None), wanted, "{headers:?}");
        }
    }

    #[test]
    fn a_certificate_counts_only_without_a_token() {
        assert_eq!(read(&[], Some("alice")), "certificate alice");
        assert_eq!(read(&[], Some("")), "anonymous");
        assert_eq!(read(&[("token", "wrong")], Some("root")), "token wrong");
        // It is that of the member that has passed the request on.
        assert_eq!(read(&[("headwater-forwarded", "true")], Some("root")), "anonymous");
        assert_eq!(read(&[("headwater-forwarded", "true"), ("token", "t")], Some("root")), "token t");
    }

    #[test]
    fn credentials_are_never_printed() {
        let headers = [("authorization", "Basic cm9vdDpjYW5hcnk=")];
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
        for shown in [Credentials::read(&headers, None), Credentials::token("canary")] {
            assert!(!format!("{shown:?}").contains("canary"), "{shown:?}");
        }
    }
}
