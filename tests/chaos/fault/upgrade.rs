//! Upgrades and downgrades: members get the next version's program one by one, and later this
//! version's again.
//!
//! The direction is read from the cluster itself, so that other faults may strike between two
//! steps: up until all members run the next version, then down until all run this one.

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

/// Pause between two polls of the cluster.
const POLL: Duration = Duration::from_millis(200);
/// Most attempts to compare the members: an attempt is void if history is compacted between two
/// answers.
const COMPARISONS_MAX: usize = 20;

/// One step up or down: restarts one member with the other version's program, and compares the
/// members. Begins the downgrade first if all members run the next version; the cluster version
/// falls at that moment. After the last member, waits until the cluster version has risen, or until
/// the downgrade is complete.
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

/// Twice as many steps as nodes: usually all members are upgraded and downgraded again. Prints
/// each.
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

/// Whether the next step is an upgrade. If all members run the next version, waits until the
/// cluster version has risen, begins the downgrade of the cluster, and returns false.
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
        // An earlier request succeeded, and its answer was lost.
        Err(status) if status.message().contains("job in progress") => Ok(()),
        Err(status) => Err(status.into()),
    }
}

/// Numbers of the nodes that run the next version's program (`next`), or this version's.
fn runs(rig: &Rig, next: bool) -> Vec<usize> {
    (0..rig.nodes.len()).filter(|node| rig.nodes[*node].runs_next() == next).collect()
}

/// Stops a random one of `nodes`, by SIGTERM or SIGKILL, and starts it with the next version's
/// program (`next`) or this version's. Then compares the members. Does nothing if `nodes` is empty.
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

/// Waits until the stamp of a node's data directory says that the program of `version` can read it.
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

/// Whether the cluster version is the highest that each of its members supports.
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

/// The store's present revision, by a linearizable read.
async fn revision(rig: &Rig) -> anyhow::Result<i64> {
    let mut client = rig.nodes[0].target.kv().await.map_err(anyhow::Error::msg)?;
    let asked = within(CLUSTER_TIMEOUT, client.range(RangeRequest { key: "x".into(), ..Default::default() })).await;
    Ok(asked.context("no answer in time")??.into_inner().header.context("a header")?.revision)
}

/// Checks that the members have equal hashes of the keys at one revision. An error if they differ,
/// or could not be compared at one compaction point.
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
