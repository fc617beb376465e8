//! Nodes close the connections of attackers.

use anyhow::Context;

use super::eventually;
use crate::rig::Rig;

/// Connections that may come and go between members, count.
const SLACK: usize = 12;

/// Open sockets of each node, count. Files are the store's own, which come and go with its tables.
pub(crate) fn sockets(rig: &Rig) -> anyhow::Result<Vec<usize>> {
    let each = rig.nodes.iter().map(|node| {
        let pid = node.pid().with_context(|| format!("node {} has ended", node.id))?;
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        anyhow::Ok(targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count())
    });
    each.collect()
}

pub(crate) async fn findings(rig: &Rig, before: &[usize]) -> Vec<String> {
    let check = async || {
        for (node, (now, before)) in rig.nodes.iter().zip(sockets(rig)?.into_iter().zip(before)) {
            anyhow::ensure!(now <= before + SLACK, "node {} keeps {now} sockets, and had {before} before", node.id);
        }
        Ok(())
    };
    eventually(check).await.err().map(|error| format!("{error:#}")).into_iter().collect()
}
