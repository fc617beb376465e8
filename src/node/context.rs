//! The context that every request carries from `api` into `node`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::authority::NamedPrincipal;
use super::{AuditTrail, ClientKey};
use headwater_types::{Access, Command, Face, KeyRange, LogIndex, Space, Txn};

/// The client's identity, and the bounds of its request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The identity by which the request's rights are judged.
    pub principal: Principal,
    /// The party that the request counts for, where capacity is divided between clients.
    pub client: ClientKey,
    /// The request fails at this time, with an error that says whether it may have taken effect.
    pub deadline: Instant,
    /// The answer must come from a state at or past this index (`headwater-min-index`).
    pub min_index: Option<LogIndex>,
    /// Whether the request fails at once when this node knows no leader (etcd's `hasleader`).
    pub require_leader: bool,
    /// Collects the intervals of keys that are authorized, for the request's line in the audit log;
    /// `None` if the request gets no line.
    pub trail: Option<AuditTrail>,
    /// The face of the request; commands carry it. `None` if it is unknown.
    pub face: Option<Face>,
}

/// The identity of a request: that of a client, of a joining node, or of this node itself.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Principal {
    /// No identity.
    #[default]
    Anonymous,
    /// The node itself: its own tasks, and requests that it makes for a client with checked rights.
    /// No request that a client sends has it.
    System,
    /// A principal that was looked up when its stream was opened. The stream continues after the
    /// principal's token of etcd's Auth has expired, but not after the principal has lost its
    /// rights.
    Named(Arc<NamedPrincipal>),
    /// The token of a request, as the client sent it: of etcd's Auth or of Consul's ACLs. It is
    /// looked up when the request is judged.
    Bearer(Secret),
    /// The common name of a certificate that the connection has proven.
    Certificate(Arc<str>),
    /// The peer URL of a node that is about to join. The URL proves nothing: the node counts as
    /// anonymous, except that an announced node may read the list of members.
    Joining(Arc<str>),
}

/// A text that `Debug` does not show. Its memory is overwritten when the last clone is dropped.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// Takes a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Arc::new(Zeroizing::new(text.into())))
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl RequestContext {
    /// An anonymous request that may take `timeout` from now.
    pub fn within(timeout: Duration) -> Self {
        Self {
            principal: Principal::Anonymous,
            client: ClientKey::Unknown,
            deadline: Instant::now() + timeout,
            min_index: None,
            require_leader: false,
            trail: None,
            face: None,
        }
    }

    /// A request that the node makes for a client after it has checked the client's rights. Its
    /// deadline is `timeout` from now.
    pub fn system(timeout: Duration) -> Self {
        Self { principal: Principal::System, face: Some(Face::Node), ..Self::within(timeout) }
    }

    /// A request of the node's own tasks, with capacity that clients cannot use up. Its deadline is
    /// `timeout` from now.
    pub fn own(timeout: Duration) -> Self {
        Self { client: ClientKey::Own, ..Self::system(timeout) }
    }

    /// Adds an interval that the request reads to the request's line in the audit log, if it gets
    /// one.
    pub(crate) fn note_read(&self, space: Space, keys: &KeyRange) {
        if let Some(trail) = &self.trail {
            trail.add_all(&[(space, keys, Access::READ)], true);
        }
    }

    /// Adds the intervals of a transaction that is not replicated, because it only reads, to the
    /// request's line in the audit log, if it gets one.
    pub(crate) fn note_read_txn(&self, txn: &Txn) {
        if let Some(trail) = &self.trail {
            trail.add_command(&Command::Txn(txn.clone()), true);
        }
    }

    /// The context of one step of a stream that this request opened. The step may take `timeout`
    /// from now, and does not require a leader: a long absence of the leader ends the whole stream.
    pub fn within_stream(&self, timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, require_leader: false, ..self.clone() }
    }
}

/// The required freshness of a read (ARCHITECTURE.md §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Sees every write that any node acknowledged before the read began.
    #[default]
    Linearizable,
    /// Reads this node's applied state at once. The state may be old; it never goes back on one
    /// node.
    Serializable,
}
