//! Members that receive their state as a snapshot.

use std::time::Instant;

use futures::{StreamExt, stream};

use headwater::types::LogIndex;

use crate::cluster::{Cluster, Settings, TIMEOUT, put, within};
use crate::gateway::client::metric;

/// Least number of writes while a member is away. openraft removes at least 1024 entries from the
/// log at once.
const MISSED: usize = 2000;
/// Number of writes between two checks of the log.
const BATCH: usize = 500;

/// Settings of members that make snapshots often, and keep few log entries behind them.
pub fn settings() -> Settings {
    Settings { snapshot_every: 300, keep: 50, ..Settings::default() }
}

/// Writes the keys `KEY/0`, `KEY/1`, … until the leader's log lacks the entries after its present
/// state: a member that stopped before needs a snapshot. Returns the number of writes.
pub async fn write_past(cluster: &Cluster, leader: usize, key: &str) -> usize {
    let status = || cluster.node(leader).status().unwrap();
    let there: LogIndex = status().applied;
    // One connection: one for each of the writes would cost more than the writes.
    let kv = cluster.kv(leader);
    let mut written = 0;
    let give_up = Instant::now() + TIMEOUT;
    // Snapshots come late if the disk is slow, and only writes cause the next one: their number is
    // not bounded.
    while written < MISSED || status().log_from <= there.next() {
        assert!(Instant::now() < give_up, "the log keeps everything from {there} on: {:?}", status());
        let write = |number: usize| {
            let mut kv = kv.clone();
            async move { kv.put(put(format!("{key}/{number}"), "x")).await.unwrap() }
        };
        stream::iter(written..written + BATCH).map(write).buffered(32).for_each(|_| async {}).await;
        written += BATCH;
    }
    written
}

/// Asserts that a restarted member got fewer log entries than it had missed, so that it got a
/// snapshot. A member that lags a little gets entries, and would pass all other checks as well.
pub async fn assert_skipped(cluster: &Cluster, index: usize, missed: usize) {
    let entries = metric(&cluster.client_url(index), "headwater_log_batch_entries_sum").await;
    assert!(entries < missed as i64, "{entries} entries came one by one");
}

/// Writes so much that the stopped member `index` needs a snapshot, starts it, and waits until it
/// has the state.
pub async fn install(cluster: &mut Cluster, index: usize) {
    let leader = cluster.leader().await;
    let missed = write_past(cluster, leader, "before").await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    cluster.hashes().await;
    assert_skipped(cluster, index, missed).await;
}

/// A member that joins serves only once it has everything that was committed before it joined. It
/// may replace another member, from which clients have read a newer state than its snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_joins_serves_nothing_older_than_the_cluster_was() {
    let mut cluster = Cluster::start(settings()).await;
    let leader = cluster.leader().await;
    write_past(&cluster, leader, "before").await;
    // The last snapshot lacks these, or most of them.
    for _ in 0..200 {
        cluster.kv(leader).put(put("after", "x")).await.unwrap();
    }
    let committed = cluster.node(leader).status().unwrap().applied;
    let joined = cluster.new_node(true).await;
    cluster.restart(joined).await;
    let mut serving = cluster.node(joined).serving();
    within("the member serves", serving.wait_for(|serving| *serving)).await.unwrap();
    let applied = cluster.node(joined).status().unwrap().applied;
    assert!(applied >= committed, "it serves {applied}, and {committed} was committed before it joined");
}
