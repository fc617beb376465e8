//! Members that are removed and join again under another id; and moves of leadership without a
//! stop.

use std::time::Duration;

use anyhow::{Context, bail};
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_proto::pb::etcdserverpb::{MemberRemoveRequest, MoveLeaderRequest};
use rand::Rng;
use tonic::Code;

use super::Scene;
use crate::retry_budget::{RetryBudget, within};
use crate::rig::{CLUSTER_TIMEOUT, Rig};

/// Longest time for a removed node to notice its removal and end.
const NOTICE_MAX: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
const MOVES: usize = 4;

/// Removes one member under load, which must end by itself, wipes its data and lets it join again
/// under another id. With more than three nodes, by chance, another member is killed while the
/// joining one catches up.
pub(crate) async fn churn(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let rig = scene.rig;
    let node = scene.any();
    let other = (node + 1) % rig.nodes.len();
    let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
    // Member `other` may be cut off now: another fault may have broken the network.
    let id = loop {
        match rig.member_id(other, node).await {
            Ok(id) => break id,
            Err(error) => again(&mut budget, error).await?,
        }
    };
    let mark = rig.begin(Some(node), "removed");
    // A removed node must end.
    rig.nodes[node].excuse();
    let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
    while let Err(error) = remove(rig, other, id).await {
        again(&mut budget, error).await?;
    }
    if within(NOTICE_MAX, rig.nodes[node].wait_ended()).await.is_none() {
        bail!("node {} was removed and went on for {NOTICE_MAX:?}", node + 1);
    }
    scene.hold(500..2000).await;
    rig.disks[node].wipe()?;
    rig.launch_joining(node).await?;
    rig.end(mark);
    if scene.rng.random_range(0..2) == 0 && rig.nodes.len() > 3 {
        let mark = rig.begin(Some(other), "down");
        rig.nodes[other].kill().await;
        scene.hold(200..1500).await;
        rig.launch(other)?;
        rig.end(mark);
        rig.wait_serving(other).await?;
    }
    wait_votes(scene, other, node, id).await?;
    rig.wait_all_serving().await
}

async fn remove(rig: &Rig, asked: usize, id: u64) -> anyhow::Result<()> {
    let channel = rig.nodes[asked].target.channel().await.map_err(anyhow::Error::msg)?;
    let mut client = ClusterClient::new(channel);
    let removed = client.member_remove(MemberRemoveRequest { id });
    match within(CALL_TIMEOUT, removed).await.context("no answer to a removal in time")? {
        // The change was made before, and its answer was lost.
        Err(status) if status.code() == Code::NotFound => Ok(()),
        done => Ok(done.map(drop)?),
    }
}

/// Moves leadership to the node `step` numbers above the leader (modulo the number of nodes).
async fn hand_over(rig: &Rig, step: usize) -> anyhow::Result<()> {
    let leader = rig.leader().await?;
    let target_id = rig.member_id(leader, (leader + step) % rig.nodes.len()).await?;
    let mut client = rig.nodes[leader].target.maintenance().await.map_err(anyhow::Error::msg)?;
    let moved = client.move_leader(MoveLeaderRequest { target_id });
    within(CALL_TIMEOUT, moved).await.context("no answer to a move of leadership in time")??;
    Ok(())
}

/// Waits before the caller repeats a change that was refused with `error`; returns that error once
/// `budget` is spent. A change may be refused for a while: a member is silent, or none leads.
async fn again(budget: &mut RetryBudget, error: anyhow::Error) -> anyhow::Result<()> {
    if budget.is_spent() {
        return Err(error.context(format!("refused for {CLUSTER_TIMEOUT:?}")));
    }
    tokio::time::sleep(POLL).await;
    Ok(())
}

/// Waits until `node` is a voter in the list of members of the node `asked`. An error if its id is
/// `old`, or after [`CLUSTER_TIMEOUT`].
async fn wait_votes(scene: &Scene<'_>, asked: usize, node: usize, old: u64) -> anyhow::Result<()> {
    let url = scene.rig.peer_url(node);
    let voting = async {
        loop {
            let members = scene.rig.members(asked).await.unwrap_or_default();
            let member = members.iter().find(|member| member.peer_ur_ls.contains(&url) && !member.is_learner);
            match member {
                Some(member) if member.id == old => bail!("node {} came back under its old id {old:x}", node + 1),
                Some(_) => return Ok(()),
                None => tokio::time::sleep(POLL).await,
            }
        }
    };
    let late = || format!("node {} joined and does not vote within {CLUSTER_TIMEOUT:?}", node + 1);
    within(CLUSTER_TIMEOUT, voting).await.with_context(late)?
}

/// Moves leadership to another member, [`MOVES`] times.
pub(crate) async fn move_leader(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let rig = scene.rig;
    for _ in 0..MOVES {
        let step = scene.rng.random_range(1..rig.nodes.len());
        let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
        let begin = loop {
            let begin = rig.clock.now();
            match hand_over(rig, step).await {
                Ok(()) => break begin,
                Err(error) => again(&mut budget, error).await?,
            }
        };
        scene.moved("move-leader", begin);
        scene.hold(300..1500).await;
    }
    rig.wait_all_serving().await
}
