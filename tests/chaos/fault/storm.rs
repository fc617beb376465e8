//! Compaction without pause, and changes of membership.

use std::time::Duration;

use headwater::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater::pb::etcdserverpb::{CompactionRequest, MemberAddRequest};
use rand::Rng;

use super::{Scene, Skipped};

const INTERVAL: Duration = Duration::from_millis(200);
const ROUNDS: usize = 30;

/// Compacts close behind the newest revision, but never what the watchers of everything have not seen: without them there
/// would be nothing to judge by. All others may find their past gone.
pub(crate) async fn compaction(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mark = scene.rig.begin(None, "compaction");
    for _ in 0..ROUNDS {
        let revision = scene.lab.watchers.collected() - scene.rng.random_range(0..100);
        let node = scene.any();
        if revision > 1
            && let Ok(mut kv) = scene.rig.nodes[node].target.kv().await
        {
            // Refused if somebody compacted further already.
            drop(kv.compact(CompactionRequest { revision, physical: false }).await);
        }
        tokio::time::sleep(INTERVAL).await;
    }
    scene.rig.end(mark);
    scene.rig.wait_all_serving().await
}

pub(crate) async fn membership(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    let channel = scene.rig.nodes[node].target.channel().await.map_err(anyhow::Error::msg)?;
    // An address that nobody can use: only whether the call is known is of interest.
    let asked = ClusterClient::new(channel).member_add(MemberAddRequest::default()).await;
    let known = asked.err().is_none_or(|status| status.code() != tonic::Code::Unimplemented);
    let why = if known { "this program does not drive them yet" } else { "the cluster does not offer them" };
    Err(Skipped(why.to_owned()).into())
}
