//! Delivery of committed changes to the services that follow them: all events to the event
//! publisher, lease changes to the lease keeper, written resources of built-in types to the reaper,
//! changes of tokens and rights to `authority`.
//!
//! Owns the order of delivery. Never waits: it runs between a commit and its answers.

use std::sync::Arc;

use crate::authority::Authority;
use crate::lease::LeaseKeeper;
use crate::resource::ReaperNotify;
use headwater_stream::{EventPublisher, Publisher, StatePoint};
use headwater_types::auth::TokenChange;
use headwater_types::{CommandEvents, LeaseChange, LogIndex};

/// The state machine's publisher on a node: passes each commit to every service.
pub(crate) struct CommitFanOut {
    pub(crate) events: Arc<EventPublisher>,
    pub(crate) leases: Arc<LeaseKeeper>,
    pub(crate) reaper: Arc<ReaperNotify>,
    pub(crate) authority: Arc<Authority>,
}

impl Publisher for CommitFanOut {
    fn publish(&self, commits: Vec<CommandEvents>) {
        self.reaper.notify(&commits);
        self.events.publish(commits);
    }

    fn leases_changed(&self, changes: &[LeaseChange]) {
        self.leases.leases_changed(changes);
    }

    fn rights_changed(&self, rights: LogIndex, acl: LogIndex, tokens: &[TokenChange]) {
        self.authority.changed(rights, acl, tokens);
    }

    fn reset(&self, point: StatePoint) {
        self.authority.reset(point.index);
        // Only a follower installs a snapshot: the table of an earlier leadership is obsolete.
        self.leases.reset();
        self.leases.metrics().count_after(point.index);
        self.events.reset(point);
    }
}
