//! Disks that are full, fail, turn read-only, freeze or stutter.
//!
//! A node whose disk refuses a write must end: it must never continue with doubtful data, nor
//! acknowledge any write. The fault acts as the supervisor: it restarts an ended node once the disk
//! is repaired.

use std::time::Duration;

use anyhow::{Context, bail};

use super::Scene;
use crate::retry_budget::within;

/// Longest time for a node to notice that its disk refuses writes.
const NOTICE_MAX: Duration = Duration::from_secs(30);
const STUTTERS: usize = 12;

/// The leader in half of the cases, else a random node, which may lead as well.
async fn victim(scene: &mut Scene<'_>) -> anyhow::Result<usize> {
    use rand::Rng;
    if scene.rng.random_range(0..2) == 0 { scene.rig.leader().await } else { Ok(scene.any()) }
}

pub(crate) async fn full(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = victim(scene).await?;
    let (rig, disk) = (scene.rig, &scene.rig.disks[node]);
    rig.nodes[node].excuse();
    let mark = rig.begin(Some(node), "disk full");
    disk.fill().await?;
    scene.hold(3000..7000).await;
    disk.free()?;
    rig.end(mark);
    // The node may not have noticed: its writes may have been in preallocated space.
    restart_if_ended(scene, node).await
}

pub(crate) async fn failing(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = victim(scene).await?;
    let rig = scene.rig;
    rig.nodes[node].excuse();
    let mark = rig.begin(Some(node), "disk fails");
    rig.disks[node].cut_power().await?;
    must_end(scene, node).await?;
    rig.disks[node].bring_back().await?;
    rig.end(mark);
    rig.launch(node)?;
    rig.wait_all_serving().await
}

pub(crate) async fn read_only(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = victim(scene).await?;
    let rig = scene.rig;
    rig.nodes[node].excuse();
    let mark = rig.begin(Some(node), "read-only");
    rig.disks[node].fail().await?;
    must_end(scene, node).await?;
    rig.disks[node].repair().await?;
    rig.end(mark);
    rig.launch(node)?;
    rig.wait_all_serving().await
}

/// Waits until the node has ended because of its disk. Kills it and returns an error if it does not
/// end within [`NOTICE_MAX`]. An exit status of 0 is an error, too.
async fn must_end(scene: &Scene<'_>, node: usize) -> anyhow::Result<()> {
    let ended = scene.rig.nodes[node].wait_ended();
    if within(NOTICE_MAX, ended).await.is_none() {
        scene.rig.nodes[node].kill().await;
        bail!("node {} went on for {NOTICE_MAX:?} with a disk that refuses every write", node + 1);
    }
    let end = scene.rig.nodes[node].ended().context("an end without a status")?;
    if end.contains("exit status: 0") {
        bail!("node {} ended with {end} although its disk failed", node + 1);
    }
    Ok(())
}

/// Waits until the node serves or has ended, and starts it again if it has ended. Then waits until
/// all nodes serve, and withdraws the node's excuse. An error if it neither serves nor ends.
async fn restart_if_ended(scene: &Scene<'_>, node: usize) -> anyhow::Result<()> {
    let rig = scene.rig;
    let serving = within(NOTICE_MAX, async {
        tokio::select! {
            () = rig.nodes[node].wait_ended() => false,
            served = rig.wait_serving(node) => served.is_ok(),
        }
    });
    if !serving.await.unwrap_or(false) {
        if rig.nodes[node].runs() {
            bail!("node {} neither serves nor ends after its disk was full", node + 1);
        }
        rig.launch(node)?;
    }
    rig.wait_all_serving().await?;
    rig.nodes[node].pardon();
    Ok(())
}

pub(crate) async fn frozen(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = victim(scene).await?;
    let mark = scene.rig.begin(Some(node), "disk frozen");
    scene.rig.disks[node].freeze().await?;
    scene.hold(2000..10_000).await;
    scene.rig.disks[node].thaw().await?;
    scene.rig.end(mark);
    scene.rig.wait_all_serving().await
}

pub(crate) async fn slow(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = victim(scene).await?;
    let mark = scene.rig.begin(Some(node), "disk slow");
    for _ in 0..STUTTERS {
        scene.rig.disks[node].freeze().await?;
        scene.hold(100..500).await;
        scene.rig.disks[node].thaw().await?;
        scene.hold(20..100).await;
    }
    scene.rig.end(mark);
    scene.rig.wait_all_serving().await
}
