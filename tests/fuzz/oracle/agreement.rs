//! All members have the same state: the hashes of their states are equal at one log index.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use futures::future::try_join_all;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;

use super::eventually;
use crate::rig::{Node, Rig};

/// Metadata key of the log index of the state from which an answer was computed.
const INDEX_KEY: &str = "headwater-index";

/// The answers of all attempts: by log index, id and hash of the members that answered there.
/// Members commit entries of their own now and then, so one attempt seldom finds all of them at one
/// index.
#[derive(Default)]
struct Hashes {
    by_index: BTreeMap<u64, BTreeSet<(u64, u32)>>,
}

impl Hashes {
    fn note(&mut self, index: u64, node: u64, hash: u32) {
        self.by_index.entry(index).or_default().insert((node, hash));
    }

    /// Description of an index at which two hashes differ; `None` if there is none.
    fn difference(&self) -> Option<String> {
        let differ =
            |seen: &BTreeSet<(u64, u32)>| seen.iter().map(|(_, hash)| *hash).collect::<BTreeSet<_>>().len() > 1;
        let (index, seen) = self.by_index.iter().find(|(_, seen)| differ(seen))?;
        Some(format!("the members differ at index {index}: {seen:?}"))
    }

    /// Whether at least `members` members have answered at one log index.
    fn has_met(&self, members: usize) -> bool {
        let nodes = |seen: &BTreeSet<(u64, u32)>| seen.iter().map(|(node, _)| *node).collect::<BTreeSet<_>>().len();
        self.by_index.values().any(|seen| nodes(seen) >= members)
    }
}

pub(crate) async fn check(rig: &Rig) -> anyhow::Result<()> {
    let mut hashes = Hashes::default();
    eventually(async || {
        let mut asking = Vec::new();
        for node in &rig.nodes {
            asking.push(ask(rig, node));
        }
        for (index, node, hash) in try_join_all(asking).await? {
            hashes.note(index, node, hash);
        }
        let is_settled = hashes.difference().is_some() || hashes.has_met(rig.nodes.len());
        let last: Vec<_> = hashes.by_index.iter().rev().take(3).collect();
        anyhow::ensure!(is_settled, "the members were seen at no common index, and last at {last:?}");
        Ok(())
    })
    .await?;
    hashes.difference().map_or(Ok(()), |difference| Err(anyhow::anyhow!(difference)))
}

/// Log index, id and state hash of a member.
async fn ask(rig: &Rig, node: &Node) -> anyhow::Result<(u64, u64, u32)> {
    let mut client = MaintenanceClient::new(rig.reach.channel(node.client)?);
    let answer = client.hash(pb::HashRequest {}).await?;
    let index: u64 = answer.metadata().get(INDEX_KEY).context("a hash without its index")?.to_str()?.parse()?;
    Ok((index, node.id, answer.into_inner().hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_compared_at_one_index_over_all_attempts() {
        let mut hashes = Hashes::default();
        for (index, node, hash) in [(7, 1, 70), (8, 2, 80), (7, 2, 70), (8, 3, 80), (8, 3, 80)] {
            hashes.note(index, node, hash);
        }
        assert!(!hashes.has_met(3) && hashes.difference().is_none());
        hashes.note(7, 3, 70);
        assert!(hashes.has_met(3) && hashes.difference().is_none());
        hashes.note(8, 1, 81);
        assert!(hashes.difference().is_some_and(|difference| difference.contains("index 8")));
    }
}
