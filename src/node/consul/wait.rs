//! Waits for a change of keys: a subscription of the KV feed, without polling.

use std::time::Instant;

use bytes::Bytes;

use super::Consul;
use crate::NodeError;
use headwater_stream::{CloseReason, Session, Start};
use headwater_types::consul::{CONSUL_PREFIX, consul_key};
use headwater_types::{KeyRange, LogIndex};

/// The keys of one wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsulSubject {
    /// The key at this path.
    Key(Bytes),
    /// All keys with paths that begin with this prefix.
    Tree(Bytes),
}

impl ConsulSubject {
    fn range(&self) -> KeyRange {
        match self {
            Self::Key(path) => KeyRange::One(consul_key(path)),
            Self::Tree(prefix) => KeyRange::prefix([CONSUL_PREFIX, prefix].concat().into()),
        }
    }
}

impl Consul<'_> {
    /// Waits until a key of `subject` has changed after the log entry `after`, in this node's
    /// applied state. False if there was no change before the deadline. Also true if the changes
    /// are unknown, because they were compacted or the state was replaced: read again.
    ///
    /// # Errors
    ///
    /// [`NodeError::Stopped`], [`NodeError::Storage`].
    pub async fn wait_for_change(
        self,
        subject: &ConsulSubject,
        after: LogIndex,
        deadline: Instant,
    ) -> Result<bool, NodeError> {
        let session = Session::new();
        let opened = self.node.inner.follow.events.kv().subscribe(subject.range(), Start::After(after), &session, 0);
        let mut subscription = match opened {
            Ok(subscription) => subscription,
            Err(reason) => return anew(reason),
        };
        loop {
            match subscription.try_next() {
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                Err(reason) => return anew(reason),
            }
            tokio::select! {
                _ = session.raised() => {}
                () = tokio::time::sleep_until(deadline.into()) => return Ok(false),
            }
        }
    }
}

/// The result of a wait whose subscription has ended: `true`, the state must be read again; never
/// `false`. An error if the node stops or history cannot be read.
fn anew(reason: CloseReason) -> Result<bool, NodeError> {
    match reason {
        CloseReason::Compacted { .. } | CloseReason::EpochChanged | CloseReason::Reset => Ok(true),
        CloseReason::Stopping | CloseReason::Failed(_) => Err(reason.into()),
    }
}
