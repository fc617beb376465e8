//! Members whose state came as a snapshot.

use std::time::Instant;

use futures::{StreamExt, stream};

use headwater::types::LogIndex;

use crate::cluster::{Cluster, PATIENCE, Settings, put};
use crate::gateway::client::metric;

/// Writes while a member is away. openraft removes no fewer than 1024 entries from the log at once.
const MISSED: usize = 2000;
/// Writes between two looks at the log.
const BATCH: usize = 500;

/// Members that make snapshots often, and keep little behind them.
pub fn settings() -> Settings {
    Settings { snapshot_every: 300, keep: 50, ..Settings::default() }
}

/// Writes keys until a member that has come as far as the leader now has can only be sent a
/// snapshot: `key/0`, `key/1`, … Returns how many.
pub async fn write_past(cluster: &Cluster, leader: usize, key: &str) -> usize {
    let status = || cluster.node(leader).status().unwrap();
    let there: LogIndex = status().applied;
    let mut written = 0;
    let give_up = Instant::now() + PATIENCE;
    // Snapshots come late where the disk is slow, and only writes make the next one: it takes as
    // many as it takes.
    while written < MISSED || status().log_from <= there.next() {
        assert!(Instant::now() < give_up, "the log keeps everything from {there} on: {:?}", status());
        let write = |number: usize| {
            let mut kv = cluster.kv(leader);
            async move { kv.put(put(format!("{key}/{number}"), "x")).await.unwrap() }
        };
        stream::iter(written..written + BATCH).map(write).buffered(32).for_each(|_| async {}).await;
        written += BATCH;
    }
    written
}

/// Says whether a member that was started anew has skipped what it missed. A member that lags a
/// little is sent entries, and everything would hold at it just as well.
pub async fn assert_skipped(cluster: &Cluster, index: usize, missed: usize) {
    let entries = metric(&cluster.client_url(index), "headwater_log_batch_entries_sum").await;
    assert!(entries < missed as i64, "{entries} entries came one by one");
}

/// Lets a member that does not run miss so much that its state comes as a snapshot, starts it, and
/// waits until it is there.
pub async fn install(cluster: &mut Cluster, index: usize) {
    let leader = cluster.leader().await;
    let missed = write_past(cluster, leader, "before").await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    cluster.hashes().await;
    assert_skipped(cluster, index, missed).await;
}
