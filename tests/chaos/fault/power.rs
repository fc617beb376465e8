//! Power loss: the process ends, and its disk loses all data that was not fsynced.

use anyhow::bail;

use super::Scene;
use crate::rig::Rig;
use crate::work::Control;

/// Text that a leader logs about a follower that has fewer entries than it had acknowledged.
const REVERTED: &str = "follower log is reverted";

pub(crate) async fn one(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    lose(scene, &[node]).await
}

pub(crate) async fn all(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let nodes: Vec<usize> = (0..scene.rig.nodes.len()).collect();
    lose(scene, &nodes).await
}

async fn lose(scene: &mut Scene<'_>, nodes: &[usize]) -> anyhow::Result<()> {
    let rig = scene.rig;
    if scene.lab.control == Some(Control::NoFsync) {
        // As the kernel does by itself now and then. Without it a node would have no data at all
        // after the power loss.
        for disk in &rig.disks {
            disk.sync().await?;
        }
        scene.hold(2000..4000).await;
    }
    let before = reversions(rig);
    nodes.iter().for_each(|node| rig.nodes[*node].excuse());
    // The disks first: the processes may run for a moment longer, but their writes are lost. They
    // may even notice and end.
    let cuts = nodes.iter().map(|node| rig.disks[*node].cut_power());
    let cut: Vec<anyhow::Result<()>> = futures::future::join_all(cuts).await;
    nodes.iter().for_each(|node| rig.nodes[*node].strike());
    cut.into_iter().collect::<anyhow::Result<()>>()?;
    let marks: Vec<usize> = nodes.iter().map(|node| rig.begin(Some(*node), "no power")).collect();
    for node in nodes {
        rig.nodes[*node].wait_ended().await;
    }
    scene.hold(500..2500).await;
    for (node, mark) in nodes.iter().zip(marks) {
        rig.disks[*node].bring_back().await?;
        rig.launch(*node)?;
        rig.end(mark);
    }
    rig.wait_all_serving().await?;
    // With the control `no-fsync` that happens, and the checkers must find it.
    if reversions(rig) > before && scene.lab.control != Some(Control::NoFsync) {
        bail!("a node came back with less than it had acknowledged to its leader; the leader's log tells");
    }
    Ok(())
}

/// Number of occurrences of [`REVERTED`] in the logs of all incarnations of all nodes.
fn reversions(rig: &Rig) -> usize {
    rig.incarnations().iter().map(|incarnation| incarnation.text.matches(REVERTED).count()).sum()
}
