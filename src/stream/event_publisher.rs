//! The event publisher: every commit goes to every topic.
//!
//! Owns the list of topics. A new topic gets a field here and a line in each method that goes
//! through all topics (`docs/adding-a-topic.md`).

use std::sync::Arc;

use super::catalog::Catalog;
use super::cluster::ClusterChanges;
use super::feed::{Feed, FeedOptions, FeedStats};
use super::kv::Kv;
use super::publisher::{Publisher, StatePoint};
use super::resource::Resources;
use super::subscription::CloseReason;
use super::topic::Topic;
use headwater_types::{CommandEvents, LeaseChange};

/// Passes the state machine's commits to the feeds of all topics.
pub struct EventPublisher {
    kv: Arc<Feed<Kv>>,
    resources: Arc<Feed<Resources>>,
    catalog: Arc<Feed<Catalog>>,
    cluster: Arc<Feed<ClusterChanges>>,
}

impl EventPublisher {
    /// A publisher for a state that is at `point`. Later commits are published; earlier ones are
    /// read from history.
    pub fn new(point: StatePoint, options: FeedOptions) -> Self {
        Self {
            kv: Feed::new(point, options),
            resources: Feed::new(point, options),
            catalog: Feed::new(point, options),
            cluster: Feed::new(point, options),
        }
    }

    /// Changes of KV keys.
    pub fn kv(&self) -> &Arc<Feed<Kv>> {
        &self.kv
    }

    /// Changes of resources.
    pub fn resources(&self) -> &Arc<Feed<Resources>> {
        &self.resources
    }

    /// Changes of the service catalog.
    pub fn catalog(&self) -> &Arc<Feed<Catalog>> {
        &self.catalog
    }

    /// Changes of leases and members.
    pub fn cluster(&self) -> &Arc<Feed<ClusterChanges>> {
        &self.cluster
    }

    /// The name of each topic, with the counters of its feed.
    pub fn stats(&self) -> [(&'static str, FeedStats); 4] {
        [
            (Kv::NAME, self.kv.stats()),
            (Resources::NAME, self.resources.stats()),
            (Catalog::NAME, self.catalog.stats()),
            (ClusterChanges::NAME, self.cluster.stats()),
        ]
    }

    /// Ends every subscription with `reason`, and refuses new ones with it.
    pub fn close(&self, reason: CloseReason) {
        self.kv.close(reason.clone());
        self.resources.close(reason.clone());
        self.catalog.close(reason.clone());
        self.cluster.close(reason);
    }
}

impl Publisher for EventPublisher {
    fn publish(&self, commits: Vec<CommandEvents>) {
        self.kv.publish(&commits);
        self.resources.publish(&commits);
        self.catalog.publish(&commits);
        self.cluster.publish(&commits);
    }

    /// Does nothing: lease changes reach subscribers as cluster events of the commit.
    fn leases_changed(&self, _changes: &[LeaseChange]) {}

    fn reset(&self, point: StatePoint) {
        self.kv.reset(point);
        self.resources.reset(point);
        self.catalog.reset(point);
        self.cluster.reset(point);
    }
}
