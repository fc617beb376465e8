//! Partitions of every shape, lost packets or bytes, and slow connections between nodes. Clients
//! always reach every node.

use std::time::Duration;

use anyhow::bail;
use rand::Rng;

use super::Scene;
use crate::check::elections::{Loss, PERCENT_MIN};
use crate::rig::Rig;

/// Range of the time for which connections stay cut, milliseconds.
const CUT_MS: std::ops::Range<u64> = 3000..8000;
/// Most new terms within [`CUT_MS`] while a bridge connects both halves (spec: reliability §1.12,
/// row 9).
const BRIDGE_TERMS_MAX: u64 = 2;

/// Share of lost packets, percent, with which no election may begin (spec: reliability §1.12, row
/// 11).
const LITTLE_PERCENT: std::ops::Range<u8> = 5..PERCENT_MIN;
/// Share of lost packets, percent, with which elections are allowed.
const MUCH_PERCENT: std::ops::Range<u8> = PERCENT_MIN..30;

/// Share of the bytes between a node and the others that are dropped, percent.
const DROPPED_PERCENT: u8 = 50;
/// Time for which bytes are dropped, milliseconds.
const DROPPING_MS: std::ops::Range<u64> = 800..1500;
/// Longest time for a member to apply the others' committed entries, once the network is healed.
const CAUGHT_UP_MAX: Duration = Duration::from_secs(30);

/// Name for the timeline, and the pairs (from, to) of nodes between which nothing passes.
type Shape = (&'static str, Vec<(usize, usize)>);

pub(crate) async fn halves(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let shape = into_halves(scene);
    cut(scene, &shape).await
}

pub(crate) async fn leader(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let shape = around_the_leader(scene).await?;
    cut(scene, &shape).await
}

/// Makes two sides that cannot reach each other, but both reach one node in the middle: in half of
/// the cases the leader, else any node. Fails if the term rises by more than [`BRIDGE_TERMS_MAX`]
/// meanwhile.
pub(crate) async fn bridge(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let shape = over_a_bridge(scene).await?;
    let before = scene.rig.term().await;
    let mark = begin(scene, &shape).await?;
    scene.hold(CUT_MS).await;
    let after = scene.rig.term().await;
    heal(scene, mark).await?;
    // Not judged if no node told its term.
    if let (Some(before), Some(after)) = (before, after)
        && after > before + BRIDGE_TERMS_MAX
    {
        bail!("with a bridge between two halves the term went from {before} to {after}: nobody keeps the leadership");
    }
    Ok(())
}

pub(crate) async fn one_way(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let shape = in_one_direction(scene).await?;
    cut(scene, &shape).await
}

/// Cuts connections between nodes or drops packets, as the seed chooses, as a part of another
/// fault. Returns the mark in the timeline, for [`heal_lines`].
pub(super) async fn disturb(scene: &mut Scene<'_>) -> anyhow::Result<usize> {
    let shape = match scene.rng.random_range(0..5) {
        0 => into_halves(scene),
        1 => around_the_leader(scene).await?,
        2 => over_a_bridge(scene).await?,
        3 => in_one_direction(scene).await?,
        _ => return Ok(lossy(scene, LITTLE_PERCENT.start..MUCH_PERCENT.end).await?.0),
    };
    begin(scene, &shape).await
}

/// Cuts one node off from all others, in both directions, until the network is healed.
pub(super) async fn isolate(scene: &Scene<'_>, node: usize) -> anyhow::Result<()> {
    for (from, to) in pairs(scene, |from, to| from == node || to == node) {
        scene.rig.net.cut(from, to).await?;
    }
    Ok(())
}

/// Heals all connections between nodes, and ends `mark`.
pub(super) async fn heal_lines(rig: &Rig, mark: usize) -> anyhow::Result<()> {
    rig.net.heal().await?;
    rig.end(mark);
    Ok(())
}

fn into_halves(scene: &mut Scene<'_>) -> Shape {
    let majority = scene.majority();
    ("halves", pairs(scene, |a, b| majority.contains(&a) != majority.contains(&b)))
}

async fn around_the_leader(scene: &mut Scene<'_>) -> anyhow::Result<Shape> {
    let leader = scene.rig.leader().await?;
    Ok(("leader alone", pairs(scene, |a, b| a == leader || b == leader)))
}

async fn over_a_bridge(scene: &mut Scene<'_>) -> anyhow::Result<Shape> {
    let middle = match scene.rng.random_range(0..2) {
        0 => scene.rig.leader().await?,
        _ => scene.any(),
    };
    let count = scene.rig.nodes.len();
    // Nodes are numbered from the middle on, so that both sides have equal size.
    let side = move |node: usize| match (node + count - middle) % count {
        0 => 0,
        number if number <= (count - 1) / 2 => 1,
        _ => 2,
    };
    Ok(("bridge", pairs(scene, |a, b| side(a) != 0 && side(b) != 0 && side(a) != side(b))))
}

async fn in_one_direction(scene: &mut Scene<'_>) -> anyhow::Result<Shape> {
    let node = match scene.rng.random_range(0..2) {
        0 => scene.rig.leader().await?,
        _ => scene.any(),
    };
    let deaf = scene.rng.random_range(0..2) == 0;
    let pairs = pairs(scene, |from, to| if deaf { to == node } else { from == node });
    Ok((if deaf { "one does not hear" } else { "one is not heard" }, pairs))
}

/// The pairs (from, to) of different nodes that `wanted` accepts.
fn pairs(scene: &Scene<'_>, wanted: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let count = scene.rig.nodes.len();
    let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    all.filter(|(a, b)| a != b && wanted(*a, *b)).collect()
}

async fn cut(scene: &mut Scene<'_>, shape: &Shape) -> anyhow::Result<()> {
    let mark = begin(scene, shape).await?;
    scene.hold(CUT_MS).await;
    heal(scene, mark).await
}

async fn begin(scene: &Scene<'_>, (what, pairs): &Shape) -> anyhow::Result<usize> {
    let mark = scene.rig.begin(None, *what);
    for (from, to) in pairs {
        scene.rig.net.cut(*from, *to).await?;
    }
    Ok(mark)
}

async fn heal(scene: &Scene<'_>, mark: usize) -> anyhow::Result<()> {
    heal_lines(scene.rig, mark).await?;
    scene.rig.wait_all_serving().await
}

pub(crate) async fn loss(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let before = scene.rig.term().await;
    let begin = scene.rig.clock.now();
    // Half of the time so few packets that no election may begin.
    let range = if scene.rng.random_range(0..2) == 0 { LITTLE_PERCENT } else { MUCH_PERCENT };
    let (mark, percent) = lossy(scene, range).await?;
    scene.hold(4000..8000).await;
    let after = scene.rig.term().await;
    scene.losses.push(Loss { percent, begin, end: scene.rig.clock.now(), before, after });
    heal(scene, mark).await
}

/// Loses a random share in `percent` of the packets between all nodes. Returns the mark in the
/// timeline and the share.
async fn lossy(scene: &mut Scene<'_>, percent: std::ops::Range<u8>) -> anyhow::Result<(usize, u8)> {
    let percent = scene.rng.random_range(percent);
    let mark = scene.rig.begin(None, format!("{percent} % lost"));
    for (from, to) in pairs(scene, |_, _| true) {
        scene.rig.net.lose(from, to, percent).await?;
    }
    Ok((mark, percent))
}

/// Drops bytes of the streams between one node and the others, so that connections break in the
/// middle of messages. In half of the cases the node is the leader, else any. Afterwards every
/// member must catch up.
pub(crate) async fn lossy_peers(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = match scene.rng.random_range(0..2) {
        0 => scene.rig.leader().await?,
        _ => scene.any(),
    };
    let mark = scene.rig.begin(Some(node), "bytes of peers vanish");
    for (from, to) in pairs(scene, |from, to| from == node || to == node) {
        scene.rig.net.drop_bytes(from, to, DROPPED_PERCENT)?;
    }
    scene.hold(DROPPING_MS).await;
    heal_lines(scene.rig, mark).await?;
    scene.rig.wait_caught_up(CAUGHT_UP_MAX).await?;
    scene.rig.wait_all_serving().await
}

pub(crate) async fn slow(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    let delay = Duration::from_millis(scene.rng.random_range(50..200));
    let mark = scene.rig.begin(Some(node), "slow line");
    scene.rig.net.slow(node, delay).await?;
    scene.hold(4000..8000).await;
    heal(scene, mark).await
}
