//! Members whose state came as a snapshot.

use futures::{StreamExt, stream};

use crate::cluster::{Cluster, Settings, put};
use crate::gateway::client::metric;

/// Entries that a member misses. openraft removes no fewer than 1024 from the log at once, and snapshots come a little late.
pub const MISSED: usize = 2000;

/// Members that make snapshots often, and keep little behind them.
pub fn settings() -> Settings {
    Settings { snapshot_every: 300, keep: 50, ..Settings::default() }
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
    let write = |number: usize| {
        let mut kv = cluster.kv(leader);
        async move { kv.put(put(format!("before/{number}"), "x")).await.unwrap() }
    };
    stream::iter(0..MISSED).map(write).buffer_unordered(32).for_each(|_| async {}).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    cluster.hashes().await;
    assert_skipped(cluster, index, MISSED).await;
}
