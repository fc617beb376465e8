//! Where the state machine tells what commits did: changes of keys to the event publisher, changes of leases to their
//! keeper, and what may have to be reaped to the reaper.

use std::sync::Arc;

use super::keeper::LeaseKeeper;
use crate::resource::ReaperBell;
use headwater_stream::{EventPublisher, Publisher, StatePoint};
use headwater_types::{CommitEvents, LeaseChange};

/// Passes on what it is told.
pub(crate) struct Outlet {
    pub(crate) events: Arc<EventPublisher>,
    pub(crate) leases: Arc<LeaseKeeper>,
    pub(crate) reaper: Arc<ReaperBell>,
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
