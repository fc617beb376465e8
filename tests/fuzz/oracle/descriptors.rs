//! After an attack, nodes have hardly more open sockets than before it.

use anyhow::Context;

use super::eventually;
use crate::rig::Rig;

/// Number of additional open sockets that is allowed: members open and close connections to each
/// other.
const SLACK: usize = 12;

/// Number of open sockets of each node. Files do not count: the store opens and closes them.
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
