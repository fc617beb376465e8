//! The interface between the state machine, which commits changes, and the services that follow
//! them.

use headwater_types::auth::TokenChange;
use headwater_types::{CommitEvents, LeaseChange, LogIndex, Revision, StoreEpoch};

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
    /// The changes of one storage commit, one element for each command.
    fn publish(&self, commits: Vec<CommitEvents>);

    /// The lease changes of one storage commit. Called before [`publish`](Self::publish), and only
    /// if there are any.
    fn leases_changed(&self, changes: &[LeaseChange]);

    /// Someone's rights changed, the last time by the command at `rights`; or the access control
    /// lists, by the one at `acl`; or tokens were issued or ended. Called before
    /// [`publish`](Self::publish) of that storage commit.
    fn rights_changed(&self, _rights: LogIndex, _acl: LogIndex, _tokens: &[TokenChange]) {}

    /// The state was replaced as a whole (a snapshot was installed) and is now at `point`. Commits
    /// between the last published one and `point` may never be published.
    fn reset(&self, point: StatePoint);
}

/// A position of the state, with its lineage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatePoint {
    /// Index of the last applied entry, or of the last published commit.
    pub index: LogIndex,
    /// The KV revision at that index.
    pub revision: Revision,
    /// The lineage; `None` before it is known.
    pub epoch: Option<StoreEpoch>,
}

/// A publisher that drops everything.
#[derive(Debug, Default)]
pub struct NoSubscribers;

impl Publisher for NoSubscribers {
    fn publish(&self, _commits: Vec<CommitEvents>) {}

    fn leases_changed(&self, _changes: &[LeaseChange]) {}

    fn reset(&self, _point: StatePoint) {}
}
