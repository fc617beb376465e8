//! Members are replaced by the next version's program, one by one, and later taken back.
//!
//! The way is read from the cluster itself, so that every other fault may strike between two steps:
//! up until all members run the next version, then down until all run this one.

use std::time::Duration;

use anyhow::{Context, bail};
use headwater_proto::pb::etcdserverpb::downgrade_request::DowngradeAction;
use headwater_proto::pb::etcdserverpb::{DowngradeRequest, RangeRequest};
use headwater_proto::pb::headwater_v1::versions_client::VersionsClient;
use headwater_proto::pb::headwater_v1::{GetVersionsRequest, GetVersionsResponse};
use headwater_types::Version;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::Scene;
use crate::hashes;
use crate::retry_budget::{ATTEMPT_PAUSE, ATTEMPTS, RetryBudget, within};
use crate::rig::{CLUSTER_TIMEOUT, Rig};

/// Pause between two questions.
const POLL: Duration = Duration::from_millis(200);
/// How often members are compared, in case history is compacted in between.
const COMPARISONS_MAX: usize = 20;

/// One member is replaced.
pub(crate) async fn step(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    if is_up(scene.rig).await? {
        let old = runs(scene.rig, false);
        replace(scene, &old, true).await?;
        if runs(scene.rig, false).is_empty() {
            wait_for_version(scene.rig, "the version rises", is_new).await?;
        }
        return Ok(());
    }
    let new = runs(scene.rig, true);
    replace(scene, &new, false).await?;
    if runs(scene.rig, true).is_empty() {
        wait_for_version(scene.rig, "the downgrade is complete", |versions| !versions.downgrading).await?;
    }
    Ok(())
}

/// All members are replaced one by one, and taken back one by one.
pub(crate) async fn cycle(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    for _ in 0..2 * scene.rig.nodes.len() {
        let is_up = is_up(scene.rig).await?;
        step(scene).await?;
        let versions = versions(scene.rig).await?;
        println!(
            "{}: {} of {} members run the next version now, cluster version {}, equal hashes",
            if is_up { "up" } else { "down" },
            runs(scene.rig, true).len(),
            scene.rig.nodes.len(),
            versions.cluster_version,
        );
        scene.hold(500..1500).await;
    }
    Ok(())
}

/// Whether the next step is an upgrade. Begins the way down once all members are upgraded.
async fn is_up(rig: &Rig) -> anyhow::Result<bool> {
    let now = versions(rig).await?;
    if now.downgrading {
        return Ok(false);
    }
    if !runs(rig, false).is_empty() {
        return Ok(true);
    }
    wait_for_version(rig, "the version rises", is_new).await?;
    let target = parse(&versions(rig).await?.cluster_version)?.previous().context("the version before")?;
    let request = DowngradeRequest { action: DowngradeAction::Enable.into(), version: target.to_string() };
    for _ in 1..ATTEMPTS {
        if enable(rig, &request).await.is_ok() {
            return Ok(false);
        }
        tokio::time::sleep(ATTEMPT_PAUSE).await;
    }
    enable(rig, &request).await?;
    Ok(false)
}

async fn enable(rig: &Rig, request: &DowngradeRequest) -> anyhow::Result<()> {
    let mut client = rig.nodes[0].target.maintenance().await.map_err(anyhow::Error::msg)?;
    match within(CLUSTER_TIMEOUT, client.downgrade(request.clone())).await.context("no answer in time")? {
        Ok(_) => Ok(()),
        // An answer was lost.
        Err(status) if status.message().contains("job in progress") => Ok(()),
        Err(status) => Err(status.into()),
    }
}

/// The nodes that run (or do not run) the next version's program.
fn runs(rig: &Rig, next: bool) -> Vec<usize> {
    (0..rig.nodes.len()).filter(|node| rig.nodes[*node].runs_next() == next).collect()
}

/// Stops one of `nodes`, in order or not, and starts it with the other program.
async fn replace(scene: &mut Scene<'_>, nodes: &[usize], next: bool) -> anyhow::Result<()> {
    let rig = scene.rig;
    let Some(&number) = nodes.choose(scene.rng) else { return Ok(()) };
    let node = &rig.nodes[number];
    if !next {
        let target = parse(&versions(rig).await?.cluster_version)?;
        wait_for_stamp(rig, number, target).await?;
    }
    let mark = rig.begin(Some(number), if next { "upgraded" } else { "downgraded" });
    match scene.rng.random_range(0..3) {
        0 => node.kill().await,
        _ => node.terminate().await,
    }
    node.run_next(next)?;
    rig.launch(number)?;
    rig.end(mark);
    rig.wait_all_serving().await?;
    equal(rig).await
}

/// Waits until a node's data can be taken over by the program of `version`.
async fn wait_for_stamp(rig: &Rig, number: usize, version: Version) -> anyhow::Result<()> {
    let stamp = rig.disks[number].data().join("STAMP");
    let wanted = format!("format = {}\n", version.byte());
    let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
    loop {
        let text = std::fs::read_to_string(&stamp).with_context(|| stamp.display().to_string())?;
        if text.contains(&wanted) {
            return Ok(());
        }
        if budget.is_spent() {
            bail!("node {}'s data is not ready for version {version} within {CLUSTER_TIMEOUT:?}", number + 1);
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn wait_for_version(rig: &Rig, what: &str, is_there: fn(&GetVersionsResponse) -> bool) -> anyhow::Result<()> {
    let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
    loop {
        let now = versions(rig).await?;
        if is_there(&now) {
            return Ok(());
        }
        if budget.is_spent() {
            bail!("{what}: not within {CLUSTER_TIMEOUT:?}: {now:?}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether the cluster has the highest version of its members.
fn is_new(versions: &GetVersionsResponse) -> bool {
    versions.members.iter().all(|member| member.highest == versions.cluster_version)
}

fn parse(version: &str) -> anyhow::Result<Version> {
    version.parse().map_err(|error| anyhow::anyhow!("{version:?}: {error}"))
}

async fn versions(rig: &Rig) -> anyhow::Result<GetVersionsResponse> {
    for _ in 1..ATTEMPTS {
        if let Ok(answer) = ask(rig).await {
            return Ok(answer);
        }
        tokio::time::sleep(ATTEMPT_PAUSE).await;
    }
    ask(rig).await
}

async fn ask(rig: &Rig) -> anyhow::Result<GetVersionsResponse> {
    let channel = rig.nodes[0].target.channel().await.map_err(anyhow::Error::msg)?;
    let mut client = VersionsClient::new(channel);
    let asked = within(CLUSTER_TIMEOUT, client.get_versions(GetVersionsRequest { linearizable: true })).await;
    Ok(asked.context("no answer in time")??.into_inner())
}

/// The revision of the keys now.
async fn revision(rig: &Rig) -> anyhow::Result<i64> {
    let mut client = rig.nodes[0].target.kv().await.map_err(anyhow::Error::msg)?;
    let asked = within(CLUSTER_TIMEOUT, client.range(RangeRequest { key: "x".into(), ..Default::default() })).await;
    Ok(asked.context("no answer in time")??.into_inner().header.context("a header")?.revision)
}

/// Compares the members at one revision.
async fn equal(rig: &Rig) -> anyhow::Result<()> {
    let mut answers = Vec::new();
    for _ in 0..COMPARISONS_MAX {
        let revision = revision(rig).await?;
        answers.clear();
        for node in &rig.nodes {
            answers.push(hashes::keys(node, revision).await.ok());
        }
        let all: Option<Vec<(u32, i64)>> = answers.iter().copied().collect();
        if let Some(all) = all
            && all.windows(2).all(|pair| pair[0].1 == pair[1].1)
        {
            if all.windows(2).all(|pair| pair[0] == pair[1]) {
                return Ok(());
            }
            bail!("the members differ at revision {revision}: hash and compaction point {all:?}");
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("the members could not be compared: {answers:?}")
}
