//! Commits of the store, over gRPC and JSON, on every kind of member.

mod cases;
mod cli;
mod operations;
mod topologies;
mod trouble;
mod undo;

use headwater::types::Feature;

use crate::cluster::{Cluster, wait_until};

/// Waits until every running member knows a cluster version that has commits.
async fn ready(cluster: &Cluster) {
    wait_until("the version has commits", async || {
        cluster.running().all(|index| Feature::Commits.is_in(cluster.node(index).versions().cluster().version))
    })
    .await;
}
