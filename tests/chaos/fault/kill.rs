//! SIGKILL, to one node, the leader, a majority, all; and leaders that step down in order.
//!
//! Killing loses nothing that the kernel has: it tests recovery, not fsync (power losses do).

use super::Scene;

pub(crate) async fn one(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    kill(scene, &[node]).await
}

pub(crate) async fn leader(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.rig.leader().await?;
    kill(scene, &[node]).await
}

pub(crate) async fn majority(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let nodes = scene.majority();
    kill(scene, &nodes).await
}

pub(crate) async fn all(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let nodes: Vec<usize> = (0..scene.rig.nodes.len()).collect();
    kill(scene, &nodes).await
}

async fn kill(scene: &mut Scene<'_>, nodes: &[usize]) -> anyhow::Result<()> {
    let rig = scene.rig;
    nodes.iter().for_each(|node| rig.nodes[*node].strike());
    let marks: Vec<usize> = nodes.iter().map(|node| rig.begin(Some(*node), "down")).collect();
    for node in nodes {
        rig.nodes[*node].wait_ended().await;
    }
    scene.hold(1000..3000).await;
    for (node, mark) in nodes.iter().zip(marks) {
        rig.launch(*node)?;
        rig.end(mark);
    }
    rig.wait_all_serving().await
}

/// A graceful stop hands leadership over first.
pub(crate) async fn transfer(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    for _ in 0..3 {
        let node = scene.rig.leader().await?;
        let mark = scene.rig.begin(Some(node), "stopped");
        scene.rig.nodes[node].terminate().await;
        scene.rig.launch(node)?;
        scene.rig.end(mark);
        scene.rig.wait_all_serving().await?;
    }
    Ok(())
}
