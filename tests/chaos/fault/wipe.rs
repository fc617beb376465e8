//! Nodes that come back without data, or with a log that is far behind: both need a snapshot under
//! load.

use std::time::Duration;

use anyhow::Context;
use rand::Rng;
use tokio::task::JoinSet;

use super::{Scene, network};
use crate::history::Request;
use crate::rig::net::Kind as Network;
use crate::work::Client;

/// Number of additional writers in [`snapshot`]: they make the log outgrow the follower, and load
/// the transfer.
const WRITERS: u64 = 32;
/// Name of the workload of the additional writers.
pub(crate) const LOAD: &str = "load";

pub(crate) async fn wipe(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    let rig = scene.rig;
    rig.nodes[node].kill().await;
    rig.wipe(node).await?;
    let mark = rig.begin(Some(node), "wiped");
    scene.hold(500..2000).await;
    rig.launch(node)?;
    rig.end(mark);
    rig.wait_all_serving().await
}

/// Kills or isolates a follower for some seconds, so that it lacks more entries than the log keeps.
/// Then brings it back, and kills the leader while the follower receives the snapshot under load.
pub(crate) async fn snapshot(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.follower().await?;
    let rig = scene.rig;
    let is_cut = rig.net.kind() != Network::Loopback && scene.rng.random_range(0..2) == 0;
    match is_cut {
        true => network::isolate(scene, node).await?,
        false => rig.nodes[node].kill().await,
    }
    let mark = rig.begin(Some(node), "far behind");
    let mut writers = JoinSet::new();
    let over = scene.lab.stop.child_token();
    for number in 0..WRITERS {
        let mut client = Client::new(scene.lab.clone(), LOAD, number);
        let over = over.clone();
        writers.spawn(async move {
            while !over.is_cancelled() {
                let value = format!("{LOAD}-{}", client.value());
                client.ask(Request::Put { key: format!("{LOAD}/{number}"), value, lease: 0 }).await;
            }
        });
    }
    scene.hold(4000..7000).await;
    match is_cut {
        true => rig.net.heal().await?,
        false => rig.launch(node)?,
    }
    rig.end(mark);
    scene.hold(200..900).await;
    let leader = rig.leader().await?;
    let mark = rig.begin(Some(leader), "down");
    rig.nodes[leader].kill().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.launch(leader)?;
    rig.end(mark);
    let served = rig.wait_all_serving().await;
    // Requests under way are part of the history.
    over.cancel();
    while let Some(ended) = writers.join_next().await {
        ended.context("a writer of this program has a defect")?;
    }
    served
}
