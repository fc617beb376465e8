//! Partitions of every shape, lost packets, slow lines. Only between nodes: clients always reach every node.

use std::time::Duration;

use rand::Rng;

use super::Scene;

pub(crate) async fn halves(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let majority = scene.majority();
    let pairs = pairs(scene, |a, b| majority.contains(&a) != majority.contains(&b));
    cut(scene, "halves", &pairs).await
}

pub(crate) async fn leader(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let leader = scene.rig.leader().await?;
    let pairs = pairs(scene, |a, b| a == leader || b == leader);
    cut(scene, "leader alone", &pairs).await
}

/// One node, often the leader, sees everybody; the two sides do not see each other.
pub(crate) async fn bridge(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let middle = match scene.rng.random_range(0..2) {
        0 => scene.rig.leader().await?,
        _ => scene.any(),
    };
    let count = scene.rig.nodes.len();
    // Numbered from the middle on, so that the sides are of equal size.
    let side = move |node: usize| match (node + count - middle) % count {
        0 => 0,
        place if place <= (count - 1) / 2 => 1,
        _ => 2,
    };
    let pairs = pairs(scene, |a, b| side(a) != 0 && side(b) != 0 && side(a) != side(b));
    cut(scene, "bridge", &pairs).await
}

pub(crate) async fn one_way(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = match scene.rng.random_range(0..2) {
        0 => scene.rig.leader().await?,
        _ => scene.any(),
    };
    let deaf = scene.rng.random_range(0..2) == 0;
    let pairs = pairs(scene, |from, to| if deaf { to == node } else { from == node });
    cut(scene, if deaf { "one does not hear" } else { "one is not heard" }, &pairs).await
}

fn pairs(scene: &Scene<'_>, wanted: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let count = scene.rig.nodes.len();
    let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    all.filter(|(a, b)| a != b && wanted(*a, *b)).collect()
}

async fn cut(scene: &mut Scene<'_>, what: &str, pairs: &[(usize, usize)]) -> anyhow::Result<()> {
    let mark = scene.rig.begin(None, what);
    for (from, to) in pairs {
        scene.rig.net.cut(*from, *to).await?;
    }
    scene.hold(3000..8000).await;
    heal(scene, mark).await
}

async fn heal(scene: &mut Scene<'_>, mark: usize) -> anyhow::Result<()> {
    scene.rig.net.heal().await?;
    scene.rig.end(mark);
    scene.rig.wait_all_serving().await
}

pub(crate) async fn loss(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let percent = scene.rng.random_range(5..30);
    let mark = scene.rig.begin(None, format!("{percent} % lost"));
    for (from, to) in pairs(scene, |_, _| true) {
        scene.rig.net.lose(from, to, percent).await?;
    }
    scene.hold(4000..8000).await;
    heal(scene, mark).await
}

pub(crate) async fn slow(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    let delay = Duration::from_millis(scene.rng.random_range(50..200));
    let mark = scene.rig.begin(Some(node), "slow line");
    scene.rig.net.slow(node, delay).await?;
    scene.hold(4000..8000).await;
    heal(scene, mark).await
}
