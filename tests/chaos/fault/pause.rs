//! SIGSTOP: a process that stops, and continues later as if nothing had happened.

use super::Scene;

pub(crate) async fn one(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    pause(scene, node).await
}

pub(crate) async fn leader(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.rig.leader().await?;
    pause(scene, node).await
}

async fn pause(scene: &mut Scene<'_>, node: usize) -> anyhow::Result<()> {
    scene.rig.nodes[node].pause();
    let mark = scene.rig.begin(Some(node), "paused");
    scene.hold(200..8000).await;
    scene.rig.nodes[node].resume();
    scene.rig.end(mark);
    scene.rig.wait_all_serving().await
}

pub(crate) async fn all(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let rig = scene.rig;
    rig.nodes.iter().for_each(|node| node.pause());
    let marks: Vec<usize> = rig.nodes.iter().map(|node| rig.begin(Some(node.number), "paused")).collect();
    scene.hold(1000..5000).await;
    for (node, mark) in rig.nodes.iter().zip(marks) {
        node.resume();
        rig.end(mark);
        scene.hold(0..1500).await;
    }
    rig.wait_all_serving().await
}
