//! Power loss: the process is gone, and so is everything on its disk that was not fsynced.

use anyhow::bail;

use super::Scene;
use crate::rig::Rig;
use crate::work::Control;

/// Log text of a leader whose follower has less than it had acknowledged.
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
        // As the kernel does by itself now and then: without it there would be nothing at all to
        // come back with.
        for disk in &rig.disks {
            disk.sync().await?;
        }
        scene.hold(2000..4000).await;
    }
    let before = reversions(rig);
    nodes.iter().for_each(|node| rig.nodes[*node].excuse());
    // The disks first: nothing is written any more while the processes still run for a moment. They
    // may even notice.
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
    // Without fsync it is so, and the checkers shall tell.
    if reversions(rig) > before && scene.lab.control != Some(Control::NoFsync) {
        bail!("a node came back with less than it had acknowledged to its leader; the leader's log tells");
    }
    Ok(())
}

/// How often that was so, in all lives of all nodes.
fn reversions(rig: &Rig) -> usize {
    rig.lives().iter().map(|life| life.text.matches(REVERTED).count()).sum()
}
