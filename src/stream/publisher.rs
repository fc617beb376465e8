//! The interface between the state machine, which commits changes, and the services that follow
//! them.

use headwater_types::auth::TokenChange;
use headwater_types::{CommandEvents, LeaseChange, LogIndex, Revision, StoreEpoch};

/// Takes the changes of all commits, in order.
///
/// # Guarantees that an implementation gives
///
/// Every call returns at once: it does not wait for a reader, takes no lock that a reader can hold
/// for long, and does no I/O.
///
/// # Guarantees that it gets
///
/// Calls come one at a time, in log order. Changes can be read before they are published, and their
/// proposers are answered afterwards.
pub trait Publisher: Send + Sync + 'static {
    /// Takes the changes of one storage commit: an element for each command with changes or events,
    /// in log order.
    fn publish(&self, commits: Vec<CommandEvents>);

    /// Takes the lease changes of one storage commit. Called before [`publish`](Self::publish), and
    /// only if there are any.
    fn leases_changed(&self, changes: &[LeaseChange]);

    /// Called if a storage commit changed rights or access control lists, or issued or ended
    /// tokens, and before its [`publish`](Self::publish). `rights` and `acl` are the log indexes of
    /// the last commands that changed rights, and lists, in this commit or an earlier one; `tokens`
    /// are the changes of tokens of this commit.
    fn rights_changed(&self, _rights: LogIndex, _acl: LogIndex, _tokens: &[TokenChange]) {}

    /// The state was replaced as a whole (a snapshot was installed) and is now at `point`. Commits
    /// between the last published one and `point` may never be published.
    fn reset(&self, point: StatePoint);
}

/// A point in the history of the state, with its lineage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatePoint {
    /// Log index. Of a state: that of the last applied entry. Of a feed: see
    /// [`Feed::published`](super::Feed::published).
    pub index: LogIndex,
    /// The KV revision at `index`.
    pub revision: Revision,
    /// The lineage; `None` before it is known.
    pub epoch: Option<StoreEpoch>,
}

/// A publisher that drops everything.
#[derive(Debug, Default)]
pub struct NoSubscribers;

impl Publisher for NoSubscribers {
    fn publish(&self, _commits: Vec<CommandEvents>) {}

    fn leases_changed(&self, _changes: &[LeaseChange]) {}

    fn reset(&self, _point: StatePoint) {}
}
