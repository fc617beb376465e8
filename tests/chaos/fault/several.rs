//! Several faults at once: while connections between the nodes are broken, one or two other faults
//! follow. They kill, pause, stop, wipe, or remove nodes, or cut their power.
//!
//! A single fault leaves a majority with all data, or heals at once. Together faults reach further
//! states: a leader that is isolated while the other nodes lose power, a node that comes back empty
//! while another one is cut off.

use std::time::Duration;

use futures::future::BoxFuture;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Scene, kill, membership, network, pause, power, wipe};

type Strike = for<'a> fn(&'a mut Scene<'_>) -> BoxFuture<'a, anyhow::Result<()>>;

/// Faults of nodes that are injected while the network is broken.
const STRIKES: &[Strike] = &[
    |scene| Box::pin(kill::one(scene)),
    |scene| Box::pin(kill::leader(scene)),
    |scene| Box::pin(kill::majority(scene)),
    |scene| Box::pin(kill::all(scene)),
    |scene| Box::pin(kill::transfer(scene)),
    |scene| Box::pin(pause::one(scene)),
    |scene| Box::pin(pause::leader(scene)),
    |scene| Box::pin(wipe::wipe(scene)),
    |scene| Box::pin(membership::churn(scene)),
];
/// Further faults for the same use, if the disks can lose power.
const STRIKES_ON_DISKS: &[Strike] = &[|scene| Box::pin(power::one(scene)), |scene| Box::pin(power::all(scene))];

pub(crate) async fn together(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let rig = scene.rig;
    let mut strikes = STRIKES.to_vec();
    if rig.disks.iter().all(|disk| disk.is_volume()) {
        strikes.extend(STRIKES_ON_DISKS);
    }
    let mark = network::disturb(scene).await?;
    let lasts = Duration::from_millis(scene.rng.random_range(3000..10_000));
    let healing = async {
        tokio::time::sleep(lasts).await;
        network::heal_lines(rig, mark).await
    };
    let striking = async {
        // Each waits until all nodes serve again, which may take until the lines are healed.
        for _ in 0..scene.rng.random_range(1..=2) {
            let strike = *strikes.choose(scene.rng).expect("invariant: there are some");
            strike(scene).await?;
        }
        Ok(())
    };
    tokio::try_join!(healing, striking)?;
    // On a broken network there is no bound for planned moves of leadership.
    scene.moments.clear();
    rig.wait_all_serving().await
}
