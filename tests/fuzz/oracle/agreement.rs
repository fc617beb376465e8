//! All members hold the same.

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;

use super::eventually;
use crate::rig::Rig;

/// The log index through which an answer was computed.
const INDEX_KEY: &str = "headwater-index";

pub(crate) async fn check(rig: &Rig) -> anyhow::Result<()> {
    let mut differ = None;
    eventually(async || {
        let mut seen: Vec<(String, u32)> = Vec::new();
        for node in &rig.nodes {
            let mut client = MaintenanceClient::new(rig.reach.channel(node.client)?);
            let answer = client.hash(pb::HashRequest {}).await?;
            let index = answer.metadata().get(INDEX_KEY).map(|value| format!("{value:?}")).unwrap_or_default();
            seen.push((index, answer.into_inner().hash));
        }
        // The members commit entries of their own now and then.
        let is_of_one_index = seen.windows(2).all(|pair| pair[0].0 == pair[1].0);
        anyhow::ensure!(is_of_one_index, "the members do not come to rest: {seen:?}");
        if seen.windows(2).any(|pair| pair[0].1 != pair[1].1) {
            differ = Some(format!("the members differ: {seen:?}"));
        }
        Ok(())
    })
    .await?;
    differ.map_or(Ok(()), |differ| Err(anyhow::anyhow!(differ)))
}
