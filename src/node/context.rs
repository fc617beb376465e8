//! The context that every request carries from `api` into `node`.

use std::time::{Duration, Instant};

use super::ClientKey;
use headwater_types::LogIndex;

/// The client's identity, and the bounds of its request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The client.
    pub principal: Principal,
    /// The party for which the request counts where clients get equal shares.
    pub client: ClientKey,
    /// The request fails at this time, with an error that says whether it may have taken effect.
    pub deadline: Instant,
    /// The answer must come from a state at or past this index (`headwater-min-index`).
    pub min_index: Option<LogIndex>,
    /// Fail at once when this node knows no leader (etcd's `hasleader`).
    pub require_leader: bool,
}

/// The client's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Principal {
    /// No identity; authorisation is not built yet.
    #[default]
    Anonymous,
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
        }
    }

    /// A request of the node itself, which no client's requests crowd out.
    pub fn own(timeout: Duration) -> Self {
        Self { client: ClientKey::Own, ..Self::within(timeout) }
    }

    /// The context of one step of a stream that this request opened. The step may take `timeout`
    /// from now, and does not require a leader: its long absence ends the stream as a whole.
    pub fn within_stream(&self, timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, require_leader: false, ..self.clone() }
    }
}

/// The required freshness of a read (ARCHITECTURE.md §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Sees every write that was acknowledged before the read began, wherever it was acknowledged.
    #[default]
    Linearizable,
    /// This node's applied state at once; never goes backwards on one node.
    Serializable,
}
