//! The interface that publishes committed changes. The state machine knows only that publishing
//! never waits.

use headwater_types::{CommitEvents, LeaseChange, LogIndex, Revision, StoreEpoch};

/// Takes the changes of every commit, in order.
///
/// # Guarantees that an implementation gives
///
/// It returns at once: it never waits for a reader, takes no lock that a reader can hold for long,
/// and does no I/O.
///
/// # Guarantees that it gets
///
/// Calls come one at a time, in log order, each after its changes can be read and before their
/// proposers are answered.
pub trait Publisher: Send + Sync + 'static {
    /// The changes of one commit, command by command.
    fn publish(&self, commits: Vec<CommitEvents>);

    /// The changes of the leases that one commit touched. Called before [`publish`](Self::publish),
    /// and only if there are any.
    fn leases_changed(&self, changes: &[LeaseChange]);

    /// The state was replaced as a whole (a snapshot was installed) and is now at `point`. Earlier
    /// commits do not connect to later ones.
    fn reset(&self, point: StatePoint);
}

/// A position of a state, with its lineage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatePoint {
    /// The last entry that was applied, or the last commit that was published.
    pub index: LogIndex,
    /// The KV revision there.
    pub revision: Revision,
    /// The lineage, once known.
    pub epoch: Option<StoreEpoch>,
}

/// A publisher without subscribers.
#[derive(Debug, Default)]
pub struct NoSubscribers;

impl Publisher for NoSubscribers {
    fn publish(&self, _commits: Vec<CommitEvents>) {}

    fn leases_changed(&self, _changes: &[LeaseChange]) {}

    fn reset(&self, _point: StatePoint) {}
}
