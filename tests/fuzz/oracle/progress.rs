//! Every member applies all committed entries.

use anyhow::Context;

use super::eventually;
use crate::rig::Rig;

const COMMITTED: &str = "etcd_server_proposals_committed_total";
const APPLIED: &str = "etcd_server_proposals_applied_total";

pub(crate) async fn check(rig: &Rig) -> anyhow::Result<()> {
    // Entries that any member knows to be committed now must be applied on every member soon.
    let mut wanted = 0.0f64;
    for node in &rig.nodes {
        let (status, metrics) = rig.reach.get(node.client, "/metrics").await?;
        anyhow::ensure!(status == 200, "node {}: /metrics answers {status}", node.id);
        wanted = wanted.max(value(&metrics, COMMITTED)?);
    }
    eventually(async || {
        for node in &rig.nodes {
            let (_, metrics) = rig.reach.get(node.client, "/metrics").await?;
            let applied = value(&metrics, APPLIED)?;
            anyhow::ensure!(applied >= wanted, "node {} has applied {applied} of {wanted} committed entries", node.id);
        }
        Ok(())
    })
    .await
}

fn value(metrics: &str, name: &str) -> anyhow::Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no metric {name}"))?.trim().parse()?)
}
