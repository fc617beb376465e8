//! Power loss: the process is gone, and so is everything on its disk that was not fsynced.

use super::Scene;
use crate::work::Control;

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
        // As the kernel does by itself now and then: without it there would be nothing at all to come back with.
        for disk in &rig.disks {
            disk.sync().await?;
        }
        scene.hold(2000..4000).await;
    }
    nodes.iter().for_each(|node| rig.nodes[*node].excuse());
    // The disks first: nothing is written any more while the processes still run for a moment. They may even notice.
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
    rig.wait_all_serving().await
}
