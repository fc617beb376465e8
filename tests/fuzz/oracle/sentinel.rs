//! Acknowledged writes are never lost. A writer puts sentinels, keys with a known value, before an
//! attack and during it.
//!
//! Invariant: targets never send an input that may legally delete or change these keys
//! (`wire::harm`).

use std::sync::Arc;
use std::time::Duration;

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{disarm, eventually};
use crate::rig::Rig;

/// Prefix of the sentinels' keys; their range ends before [`PREFIX_END`].
pub(crate) const PREFIX: &str = "sentinel/";
pub(crate) const PREFIX_END: &str = "sentinel0";
/// Number of sentinels that are written before the attack.
const FIRST_KEYS: usize = 20;
/// Pause between two writes during the attack. Those before the attack have none.
const INTERVAL: Duration = Duration::from_millis(50);

/// The task that writes sentinels, and the keys of the acknowledged ones.
pub(crate) struct Sentinels {
    acknowledged: Arc<Mutex<Vec<String>>>,
    writer: JoinHandle<()>,
}

impl Sentinels {
    /// Writes the first [`FIRST_KEYS`] sentinels, and starts a task that writes more.
    pub(crate) async fn start(rig: Arc<Rig>) -> anyhow::Result<Self> {
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        for number in 0..FIRST_KEYS {
            let key = write(&rig, number).await?;
            acknowledged.lock().push(key);
        }
        let shared = Arc::clone(&acknowledged);
        let writer = tokio::spawn(async move {
            for number in FIRST_KEYS.. {
                match write(&rig, number).await {
                    Ok(key) => shared.lock().push(key),
                    // An attack may delay writes, depose a leader, and raise an alarm.
                    Err(_) => drop(disarm(&rig).await),
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Ok(Self { acknowledged, writer })
    }

    /// Ends the task that writes sentinels.
    pub(crate) fn stop(&self) {
        self.writer.abort();
    }

    /// Number of acknowledged sentinels.
    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().len()
    }

    pub(crate) async fn findings(&self, rig: &Rig) -> Vec<String> {
        let acknowledged = self.acknowledged.lock().clone();
        let mut findings = Vec::new();
        for node in &rig.nodes {
            let mut found = Vec::new();
            let reading = eventually(async || {
                found = read(rig, node.client).await?;
                Ok(())
            });
            match reading.await {
                Err(error) => findings.push(format!("node {} does not read the sentinels: {error:#}", node.id)),
                Ok(()) => {
                    let lost: Vec<_> = acknowledged.iter().filter(|key| found.binary_search(key).is_err()).collect();
                    if let Some(first) = lost.first() {
                        findings.push(format!(
                            "node {} has lost or changed {} sentinels, {first} first",
                            node.id,
                            lost.len()
                        ));
                    }
                }
            }
        }
        findings
    }
}

/// Writes the sentinel with this number, at the node `number` modulo the number of nodes; its value
/// is its key. Returns the key.
async fn write(rig: &Rig, number: usize) -> anyhow::Result<String> {
    let key = format!("{PREFIX}{number:08}");
    let mut client = KvClient::new(rig.reach.channel(rig.node(number).client)?);
    let put = pb::PutRequest { key: key.clone().into(), value: key.clone().into(), ..Default::default() };
    client.put(put).await?;
    Ok(key)
}

/// The sentinels with the right value at a node, in order, by a linearizable read.
async fn read(rig: &Rig, address: std::net::SocketAddr) -> anyhow::Result<Vec<String>> {
    let mut client = KvClient::new(rig.reach.channel(address)?).max_decoding_message_size(usize::MAX);
    let range = pb::RangeRequest { key: PREFIX.into(), range_end: PREFIX_END.into(), ..Default::default() };
    let found = client.range(range).await?.into_inner().kvs;
    let sound = found.into_iter().filter(|kv| kv.key == kv.value);
    Ok(sound.map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect())
}
