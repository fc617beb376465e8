//! Members whose state came as a snapshot.

use futures::{StreamExt, stream};

use headwater::types::LogIndex;

use crate::cluster::{Cluster, Settings, put};
use crate::gateway::client::metric;

/// Writes at once while a member is away. openraft removes no fewer than 1024 entries from the log at once, and snapshots come
/// a little late.
const MISSED: usize = 2000;
/// More than so many are never needed.
const MISSED_MAX: usize = 20 * MISSED;

/// Members that make snapshots often, and keep little behind them.
pub fn settings() -> Settings {
    Settings { snapshot_every: 300, keep: 50, ..Settings::default() }
}

/// Writes keys until a member that has come as far as the leader now has can only be sent a snapshot: `key/0`, `key/1`, … Returns
/// how many.
pub async fn write_past(cluster: &Cluster, leader: usize, key: &str) -> usize {
    let status = || cluster.node(leader).status().unwrap();
    let there: LogIndex = status().applied;
    let mut written = 0;
    while status().log_from <= there.next() {
        assert!(written < MISSED_MAX, "the log keeps everything");
        let write = |number: usize| {
            let mut kv = cluster.kv(leader);
            async move { kv.put(put(format!("{key}/{number}"), "x")).await.unwrap() }
        };
        stream::iter(written..written + MISSED).map(write).buffered(32).for_each(|_| async {}).await;
        written += MISSED;
    }
    written
}

/// Says whether a member that was started anew has skipped what it missed. A member that lags a little is sent entries, and
/// everything would hold at it just as well.
pub async fn assert_skipped(cluster: &Cluster, index: usize, missed: usize) {
    let entries = metric(&cluster.client_url(index), "headwater_log_batch_entries_sum").await;
    assert!(entries < missed as i64, "{entries} entries came one by one");
}

/// Lets a member that does not run miss so much that its state comes as a snapshot, starts it, and waits until it is there.
pub async fn install(cluster: &mut Cluster, index: usize) {
    let leader = cluster.leader().await;
    let missed = write_past(cluster, leader, "before").await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    cluster.hashes().await;
    assert_skipped(cluster, index, missed).await;
}
