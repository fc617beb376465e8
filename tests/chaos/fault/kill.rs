//! SIGKILL to one node, a follower, the leader, a majority or all nodes; and leaders that stop in
//! order.
//!
//! After a kill the kernel still writes all data of the process: kills test recovery, not fsync
//! (power losses do).

use std::time::Duration;

use anyhow::bail;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Scene;
use crate::history::{Freshness, Outcome, Record, Request};
use crate::retry_budget::RetryBudget;
use crate::rig::Rig;
use crate::work::{Client, Lab};

/// Name of the workload that sends requests to the other nodes while a follower is down.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// Pause between two requests of the workload [`ELSEWHERE`] to one node.
const ASK_EVERY: Duration = Duration::from_millis(25);
/// Failed requests in a row at one node that fail the fault. Fewer may come from a machine that
/// stalls for a moment.
const MISSES_MAX: usize = 4;
/// Longest wait for the other nodes to acknowledge a write before a killed leader is started again:
/// far longer than an election on a busy machine.
const LEADERLESS_MAX: Duration = Duration::from_secs(15);

pub(crate) async fn one(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.any();
    kill(scene, &[node]).await
}

/// Kills a follower and starts it again, while a client sends requests to each other node. An error
/// if [`MISSES_MAX`] requests in a row fail at one of these nodes. No error if the term has
/// changed: an election explains the failures (spec: reliability §1.12, row 2).
pub(crate) async fn follower(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.follower().await?;
    let (rig, over) = (scene.rig, scene.lab.stop.child_token());
    let term = rig.term().await;
    let mut asking = JoinSet::new();
    for other in (0..rig.nodes.len()).filter(|other| *other != node) {
        asking.spawn(first_failure(scene.lab.clone(), other, over.clone()));
    }
    let done = kill(scene, &[node]).await;
    over.cancel();
    let failures: Vec<String> = asking.join_all().await.into_iter().flatten().collect();
    done?;
    // On a busy machine a leader may have sent its heartbeats too late, so that another one was
    // elected.
    let is_led_by_the_same = rig.term().await == term;
    match failures.first() {
        Some(failure) if is_led_by_the_same => bail!("while node {} was down, a follower: {failure}", node + 1),
        _ => Ok(()),
    }
}

/// Sends requests to a node until [`MISSES_MAX`] of them fail in a row; returns the last failure.
/// `None` if `over` is cancelled first and the last request was answered.
async fn first_failure(lab: Lab, node: usize, over: CancellationToken) -> Option<String> {
    // Client numbers that no other client without a workload has.
    let mut client = Client::new(lab, ELSEWHERE, 500 + node as u64);
    let (mut round, mut misses) = (0_u64, 0);
    while misses > 0 || !over.is_cancelled() {
        round += 1;
        let key = format!("{ELSEWHERE}/{node}");
        let request = match round % 2 {
            0 => Request::Put { key, value: client.value(), lease: 0 },
            _ => Request::Read { key, prefix: false, freshness: Freshness::Linearizable },
        };
        match client.send_to(node, request).await {
            Outcome::Ok(_) => misses = 0,
            Outcome::Failed(why) | Outcome::Unknown(why) => {
                misses += 1;
                if misses == MISSES_MAX {
                    return Some(format!("node {} failed {misses} times in a row: {why}", node + 1));
                }
            }
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    None
}

pub(crate) async fn leader(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let node = scene.rig.leader().await?;
    let (rig, mark) = strike(scene, &[node]).await;
    let down = rig.clock.now();
    scene.hold(1000..3000).await;
    // A restart of the leader before a new one is elected would not test the election.
    let took_a_write = |records: &[Record]| {
        let mut since = records.iter().rev().take_while(|record| record.done > down);
        since.any(|record| record.call > down && record.has_written())
    };
    let mut budget = RetryBudget::new(LEADERLESS_MAX);
    while !scene.lab.recorder.with_records(took_a_write) && !budget.is_spent() {
        tokio::time::sleep(ASK_EVERY).await;
    }
    bring_back(rig, &[node], mark).await
}

pub(crate) async fn majority(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let nodes = scene.majority();
    kill(scene, &nodes).await
}

pub(crate) async fn all(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let nodes: Vec<usize> = (0..scene.rig.nodes.len()).collect();
    kill(scene, &nodes).await
}

async fn kill(scene: &mut Scene<'_>, nodes: &[usize]) -> anyhow::Result<()> {
    let (rig, marks) = strike(scene, nodes).await;
    scene.hold(1000..3000).await;
    bring_back(rig, nodes, marks).await
}

/// Kills nodes at once, and waits until they have ended. Returns the rig and the nodes' marks in
/// the timeline.
async fn strike<'a>(scene: &Scene<'a>, nodes: &[usize]) -> (&'a Rig, Vec<usize>) {
    let rig = scene.rig;
    nodes.iter().for_each(|node| rig.nodes[*node].strike());
    let marks = nodes.iter().map(|node| rig.begin(Some(*node), "down")).collect();
    for node in nodes {
        rig.nodes[*node].wait_ended().await;
    }
    (rig, marks)
}

async fn bring_back(rig: &Rig, nodes: &[usize], marks: Vec<usize>) -> anyhow::Result<()> {
    for (node, mark) in nodes.iter().zip(marks) {
        rig.launch(*node)?;
        rig.end(mark);
    }
    rig.wait_all_serving().await
}

/// Stops the leader in order (SIGTERM), which hands leadership over, and restarts it; three times.
pub(crate) async fn transfer(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    for _ in 0..3 {
        let node = scene.rig.leader().await?;
        let mark = scene.rig.begin(Some(node), "stopped");
        let begin = scene.rig.clock.now();
        scene.rig.nodes[node].terminate().await;
        scene.moved("transfer", begin);
        scene.rig.launch(node)?;
        scene.rig.end(mark);
        scene.rig.wait_all_serving().await?;
    }
    Ok(())
}
