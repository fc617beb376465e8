//! Where the state machine tells what commits did: changes of keys to the event publisher, changes of leases to their
//! keeper, and what may have to be reaped to the reaper.

use std::sync::Arc;

use super::keeper::LeaseKeeper;
use crate::node::resource::ReaperBell;
use crate::stream::{EventPublisher, Publisher, StatePoint};
use crate::types::{CommitEvents, LeaseChange};

/// Passes on what it is told.
pub(in crate::node) struct Outlet {
    pub(in crate::node) events: Arc<EventPublisher>,
    pub(in crate::node) leases: Arc<LeaseKeeper>,
    pub(in crate::node) reaper: Arc<ReaperBell>,
}

impl Publisher for Outlet {
    fn publish(&self, commits: Vec<CommitEvents>) {
        self.reaper.tell(&commits);
        self.events.publish(commits);
    }

    fn leases_changed(&self, changes: &[LeaseChange]) {
        self.leases.leases_changed(changes);
    }

    fn reset(&self, point: StatePoint) {
        // Only followers are given a state; what a keeper of an earlier reign still holds is of no use to anybody.
        self.leases.forget();
        self.leases.metrics().count_after(point.index);
        self.events.reset(point);
    }
}
