//! Answers: a body, Consul's headers, or an error as plain text (spec: consul §8.1, §8.2).
//!
//! Owns the one table from errors of the node to status codes of this face. Invariant: every
//! answer, other than a refusal, to a request that can wait for a change has two headers.
//! `X-Consul-Index` is never zero; `headwater-index` is the log index of the state that was read.
//! In the answer to a write, `headwater-index` is the log index of the write.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use tonic::body::Body;

use headwater_api_shared::context::{HEADWATER_INDETERMINATE, HEADWATER_INDEX, unindexed};
use headwater_node::{CatalogError, ConsulTreeTooLarge, Node, NodeError, NodeErrorKind};
use headwater_types::acl::AclRefusal;
use headwater_types::catalog::CatalogRefusal;
use headwater_types::{AuthRefusal, LogIndex, Refusal as Refused};

/// `X-Consul-LastContact` of a member that has had no contact with a leader, milliseconds: the
/// longest duration in Go.
const NO_CONTACT_MS: u64 = 9_223_372_036_854;

const X_CONSUL_INDEX: HeaderName = HeaderName::from_static("x-consul-index");
const X_CONSUL_KNOWN_LEADER: HeaderName = HeaderName::from_static("x-consul-knownleader");
const X_CONSUL_LAST_CONTACT: HeaderName = HeaderName::from_static("x-consul-lastcontact");
const X_CONSUL_CONSISTENCY: HeaderName = HeaderName::from_static("x-consul-effective-consistency");
const X_CONSUL_DEFAULT_ACL: HeaderName = HeaderName::from_static("x-consul-default-acl-policy");
const X_CONSUL_FILTERED: HeaderName = HeaderName::from_static("x-consul-results-filtered-by-acls");
const X_CONSUL_REASON: HeaderName = HeaderName::from_static("x-consul-reason");

/// Result of a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Bytes,
    content_type: Option<&'static str>,
    meta: Option<Meta>,
    /// Whether the headers of the contact with the leader are sent. Every read sends them, also
    /// one without `meta`.
    has_contact: bool,
    /// The log index of the state that was read, or of the write; sent as `headwater-index` unless
    /// it is `None`.
    state: Option<LogIndex>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The values of a read's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// Query index, sent as `X-Consul-Index`: a client passes it back to wait for the next change.
    pub(super) index: LogIndex,
    /// The log index of the state that was read.
    pub(super) state: LogIndex,
    /// The consistency of the read: `leader`, `stale` or `consistent`.
    pub(super) consistency: &'static str,
}

impl Answer {
    /// An answer of JSON in one line.
    pub(super) fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("what is answered has texts for keys");
        Self::with(StatusCode::OK, body.into(), Some("application/json"))
    }

    /// An answer of indented JSON with a final newline.
    pub(super) fn pretty(value: &impl Serialize) -> Self {
        let mut body = Vec::new();
        let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut body, indent);
        value.serialize(&mut serializer).expect("what is answered has texts for keys");
        body.push(b'\n');
        Self::with(StatusCode::OK, body.into(), Some("application/json"))
    }

    /// An answer of plain text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::with(StatusCode::OK, text.into().into(), Some("text/plain; charset=utf-8"))
    }

    /// An answer of bytes that are sent unchanged.
    pub(super) fn bytes(body: Bytes, content_type: &'static str) -> Self {
        Self::with(StatusCode::OK, body, Some(content_type))
    }

    /// An answer with an empty body.
    pub(super) fn empty() -> Self {
        Self::with(StatusCode::OK, Bytes::new(), None)
    }

    fn with(status: StatusCode, body: Bytes, content_type: Option<&'static str>) -> Self {
        Self { status, body, content_type, meta: None, has_contact: false, state: None, headers: Vec::new() }
    }

    /// Replaces the status, which is 200 otherwise.
    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Adds the headers of a read: its indexes, its consistency, and the contact with the leader.
    pub(super) fn meta(self, meta: Meta) -> Self {
        Self { meta: Some(meta), ..self.at(meta.state).contact() }
    }

    /// Adds the headers that tell the contact with the leader.
    pub(super) fn contact(self) -> Self {
        Self { has_contact: true, ..self }
    }

    /// Sets `headwater-index`: the log index of the state that was read, or of the write.
    pub(super) fn at(self, state: LogIndex) -> Self {
        Self { state: Some(state), ..self }
    }

    /// Adds a header.
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds the header that tells that elements were left out, because the request may not read
    /// them.
    pub(super) fn filtered(self) -> Self {
        self.header(X_CONSUL_FILTERED, HeaderValue::from_static("true"))
    }

    /// Adds `X-Consul-Reason`, which explains the status of a health endpoint. Left out if `reason`
    /// cannot stand in a header.
    pub(super) fn reason(self, reason: &str) -> Self {
        match HeaderValue::from_str(reason) {
            Ok(value) => self.header(X_CONSUL_REASON, value),
            // A name with control characters cannot stand in a header; the body has the same text.
            Err(_) => self,
        }
    }

    /// The answer as an HTTP response.
    pub(super) fn into_response(self, node: &Node) -> Response<Body> {
        let mut response = Response::new(Body::new(Full::new(self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        let denies = node.acl().is_enabled() && !node.acl().allows_by_default();
        headers.insert(X_CONSUL_DEFAULT_ACL, HeaderValue::from_static(if denies { "deny" } else { "allow" }));
        if let Some(state) = self.state {
            headers.insert(HEADWATER_INDEX, unindexed(state.get()));
        }
        if let Some(meta) = self.meta {
            let index = meta.index.get().max(1);
            headers.insert(X_CONSUL_INDEX, unindexed(index));
            headers.insert(X_CONSUL_CONSISTENCY, HeaderValue::from_static(meta.consistency));
        }
        if self.has_contact {
            let has_leader = if node.live_leader().is_some() { "true" } else { "false" };
            headers.insert(X_CONSUL_KNOWN_LEADER, HeaderValue::from_static(has_leader));
            let silence = node.leader_contact().and_then(|silence| u64::try_from(silence.as_millis()).ok());
            let silence_ms = silence.map_or(NO_CONTACT_MS, |silence| silence.min(NO_CONTACT_MS));
            headers.insert(X_CONSUL_LAST_CONTACT, HeaderValue::from(silence_ms));
        }
        headers.extend(self.headers);
        response
    }
}

/// An error answer to a request: a status, with a text that is sent as plain text. Not only for
/// refusals of the state machine: also for any other error of the node.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: String,
    /// Whether the stored row has changed since the request read it: the request may be retried
    /// with the new row.
    pub(super) is_stale: bool,
    is_indeterminate: bool,
    allow: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), is_stale: false, is_indeterminate: false, allow: None }
    }

    /// A refusal (400) of a request that is malformed, or that a rule forbids.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// A refusal (404) of a request for a name that does not exist.
    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The refusal of a method that the path does not support (405); `allow` lists the supported
    /// ones.
    pub(super) fn method(method: &http::Method, allow: String) -> Self {
        let text = format!("method {method} not allowed");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, text) }
    }

    /// The refusal as an HTTP response.
    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::new(Full::new(Bytes::from(self.text))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self.is_indeterminate {
            headers.insert(HEADWATER_INDETERMINATE, HeaderValue::from_static("true"));
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_str(&allow).expect("names of methods"));
        }
        response
    }
}

impl From<NodeError> for Refusal {
    fn from(error: NodeError) -> Self {
        let text = match &error {
            // Clients look for these texts.
            NodeError::NoLeader => "No cluster leader".to_owned(),
            NodeError::Refused(Refused::Auth(AuthRefusal::PermissionDenied)) => "Permission denied".to_owned(),
            NodeError::Refused(Refused::Auth(AuthRefusal::InvalidToken)) => "ACL not found".to_owned(),
            NodeError::TooManyRequests => "rate limit exceeded, try again later".to_owned(),
            error => error.to_string(),
        };
        let status = match &error {
            NodeError::Refused(refused) => of_refusal(refused),
            error => of_kind(error.kind()),
        };
        let is_indeterminate = matches!(error, NodeError::Indeterminate(_));
        Self { is_indeterminate, ..Self::new(status, text) }
    }
}

impl From<CatalogError> for Refusal {
    fn from(error: CatalogError) -> Self {
        match error {
            // Consul says 500 to some of these, in earlier versions; clients look at 200 alone
            // (spec: consul §8.1).
            CatalogError::Invalid(problem) => Self::bad(problem.to_string()),
            CatalogError::Refused(refusal) => {
                Self { is_stale: refusal == CatalogRefusal::Stale, ..Self::bad(refusal.to_string()) }
            }
            CatalogError::Node(error) => error.into(),
        }
    }
}

impl From<ConsulTreeTooLarge> for Refusal {
    fn from(error: ConsulTreeTooLarge) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
    }
}

/// The status of an error by its kind. A refusal's status is that of [`of_refusal`].
fn of_kind(kind: NodeErrorKind) -> StatusCode {
    match kind {
        NodeErrorKind::Denied | NodeErrorKind::Unauthenticated => StatusCode::FORBIDDEN,
        NodeErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        NodeErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
        NodeErrorKind::Unavailable | NodeErrorKind::Timeout | NodeErrorKind::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        NodeErrorKind::Refused
        | NodeErrorKind::Indeterminate
        | NodeErrorKind::NotLeader
        | NodeErrorKind::Membership
        | NodeErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn of_refusal(refused: &Refused) -> StatusCode {
    match refused {
        Refused::NoSpace | Refused::Corrupt => StatusCode::SERVICE_UNAVAILABLE,
        Refused::Compacted { .. }
        | Refused::FutureRevision { .. }
        | Refused::KeyNotFound
        | Refused::LeaseNotFound
        | Refused::DuplicateKey
        | Refused::TooMuchRead
        | Refused::LeaseExists
        | Refused::LeaseTtlTooLarge
        | Refused::LeaseStale
        | Refused::Resource(_) => StatusCode::BAD_REQUEST,
        Refused::Auth(_) => StatusCode::FORBIDDEN,
        Refused::Acl(AclRefusal::Bootstrapped) => StatusCode::FORBIDDEN,
        Refused::Acl(_) => StatusCode::BAD_REQUEST,
        Refused::NeedsVersion { .. } => StatusCode::CONFLICT,
        // As in Consul: an agent reports a refusal by its server as its own failure.
        Refused::Catalog(_) | Refused::Session(_) | Refused::Version(_) | Refused::Invitation(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::Unanswered;

    #[test]
    fn errors_of_the_node_have_consuls_codes() {
        for (error, status, text) in [
            (NodeError::NoLeader, 503, "No cluster leader"),
            (NodeError::TooManyRequests, 429, "rate limit exceeded, try again later"),
            (NodeError::RequestTooLarge, 413, "request is too large"),
            (NodeError::Stopped, 503, "server stopped"),
            (NodeError::Refused(Refused::NoSpace), 503, "database space exceeded"),
            (NodeError::Storage("disk".into()), 500, "storage failed: disk"),
        ] {
            let refusal = Refusal::from(error);
            assert_eq!((refusal.status.as_u16(), refusal.text.as_str()), (status, text));
            assert!(!refusal.into_response().headers().contains_key(HEADWATER_INDETERMINATE));
        }
        let unknown = Refusal::from(NodeError::Indeterminate(Unanswered::Timeout)).into_response();
        assert_eq!(unknown.status(), 500);
        assert_eq!(unknown.headers()[HEADWATER_INDETERMINATE], "true");
        assert_eq!(unknown.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    }
}
