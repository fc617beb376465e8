//! Compactions in rapid succession.

use std::time::Duration;

use anyhow::bail;
use rand::Rng;

use super::Scene;

const INTERVAL: Duration = Duration::from_millis(200);
const ROUNDS: usize = 30;

/// Compacts history [`ROUNDS`] times, each time to a revision less than 100 below the newest one
/// that all collectors (watchers of every key) have received: the evidence stays complete. Other
/// watchers may find their start revision compacted. Fails if no compaction was carried out.
pub(crate) async fn compaction(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mark = scene.rig.begin(None, "compaction");
    let (mut done, mut refused) = (0, String::new());
    for _ in 0..ROUNDS {
        let revision = scene.lab.watchers.collected() - scene.rng.random_range(0..100);
        let node = scene.any();
        if revision > 1 {
            // Refused if a later revision is compacted already.
            match scene.lab.compact(node, revision).await {
                Ok(()) => done += 1,
                Err(why) => refused = why,
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
    scene.rig.end(mark);
    if done == 0 {
        bail!("none of {ROUNDS} compactions was carried out; the last was refused: {refused:?}");
    }
    scene.rig.wait_all_serving().await
}
