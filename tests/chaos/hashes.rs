//! Comparison of the members by hashes: of the keys at one revision, and of all state at one log
//! index.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::future::join_all;
use headwater_proto::pb::etcdserverpb::{HashKvRequest, HashRequest, StatusRequest};

use crate::client::{INDEX, with_deadline};
use crate::retry_budget::{RetryBudget, retry, within};
use crate::rig::node::Node;
use crate::rig::{CLUSTER_TIMEOUT, Rig};

const AGAIN: Duration = Duration::from_millis(100);

/// Checks that the hash of the keys at a revision, and the compaction point, are equal on all
/// members.
///
/// # Errors
///
/// The hashes and compaction points if they differ, or the member that does not serve or answer.
pub(crate) async fn equal_keys(rig: &Rig, revision: i64) -> anyhow::Result<()> {
    let mut hashes = Vec::new();
    for node in &rig.nodes {
        rig.wait_serving(node.number).await?;
        hashes.push(retry(|| keys(node, revision)).await?);
    }
    if hashes.windows(2).any(|pair| pair[0] != pair[1]) {
        bail!("hash and compaction point at revision {revision}: {hashes:?}");
    }
    Ok(())
}

/// Hash of a node's keys at a revision, and the node's compaction point.
pub(crate) async fn keys(node: &Node, revision: i64) -> anyhow::Result<(u32, i64)> {
    let mut client = node.target.maintenance().await.map_err(anyhow::Error::msg)?;
    let asked = within(CLUSTER_TIMEOUT, client.hash_kv(HashKvRequest { revision })).await;
    let hash = asked.context("no answer in time")?.with_context(|| format!("node {}", node.number + 1))?.into_inner();
    Ok((hash.hash, hash.compact_revision))
}

/// The newest revision that a node has applied.
pub(crate) async fn revision(node: &Node) -> anyhow::Result<i64> {
    let mut client = node.target.maintenance().await.map_err(anyhow::Error::msg)?;
    let asked = within(CLUSTER_TIMEOUT, client.status(StatusRequest {})).await;
    let answer = asked.context("no answer in time")?.with_context(|| format!("node {}", node.number + 1))?.into_inner();
    Ok(answer.header.context("a status without a header")?.revision)
}

/// Checks that every member has the same hash of all replicated state: leases, services and
/// resources, too. A member answers from its present state, so the members are asked until they
/// answer at one log index.
///
/// # Errors
///
/// The difference, the member that does not answer, or that the members never reached one log
/// index.
pub(crate) async fn equal_states(rig: &Rig) -> anyhow::Result<()> {
    let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
    loop {
        let is_over = budget.is_spent();
        // A member that does not answer may do so next time: that is no difference.
        let answers: anyhow::Result<Vec<_>> = join_all(rig.nodes.iter().map(state)).await.into_iter().collect();
        match answers.map(|answers| (are_equal(&answers), answers)) {
            Ok((Some(true), _)) => return Ok(()),
            Ok((Some(false), answers)) => bail!("index and hash of the whole state: {answers:?}"),
            Ok((None, answers)) if is_over => {
                bail!("they are at different indexes for {CLUSTER_TIMEOUT:?}: index and hash {answers:?}")
            }
            Err(error) if is_over => return Err(error.context("nobody knows whether they are the same")),
            Ok((None, _)) | Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Log index of a node's present state, and the hash of all replicated state there.
pub(crate) async fn state(node: &Node) -> anyhow::Result<(u64, u32)> {
    let mut client = node.target.maintenance().await.map_err(anyhow::Error::msg)?;
    let asked = within(CLUSTER_TIMEOUT, client.hash(with_deadline(HashRequest {}, CLUSTER_TIMEOUT))).await;
    let answer = asked.context("no answer in time")?.with_context(|| format!("node {}", node.number + 1))?;
    let index = answer.metadata().get(INDEX).and_then(|text| text.to_str().ok()?.parse().ok());
    Ok((index.context("a hash without an index")?, answer.into_inner().hash))
}

/// Whether the hashes of all answers (log index, hash) are equal; `None` if their indexes differ.
fn are_equal(answers: &[(u64, u32)]) -> Option<bool> {
    let are_of_one_index = answers.windows(2).all(|pair| pair[0].0 == pair[1].0);
    are_of_one_index.then(|| answers.windows(2).all(|pair| pair[0].1 == pair[1].1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_differ_if_their_hashes_do_at_one_index() {
        assert_eq!(are_equal(&[(7, 1), (7, 1), (7, 1)]), Some(true));
        assert_eq!(are_equal(&[(7, 1), (7, 1), (7, 2)]), Some(false));
        assert_eq!(are_equal(&[(7, 1), (7, 1), (8, 2)]), None);
        assert_eq!(are_equal(&[(7, 1), (8, 1), (7, 1)]), None);
    }
}
