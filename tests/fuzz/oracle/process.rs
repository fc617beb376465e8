//! No process of a node ends, and no task in it panics.

use crate::rig::Rig;

/// Text with which Rust reports a panic.
const PANICKED: &str = "panicked at";

pub(crate) fn findings(rig: &Rig) -> Vec<String> {
    let mut findings = Vec::new();
    for node in &rig.nodes {
        let log = node.log();
        let mut lines = log.lines();
        while let Some(line) = lines.find(|line| line.contains(PANICKED)) {
            let reason = lines.next().unwrap_or_default();
            findings.push(format!("node {} panicked: {} {}", node.id, line.trim(), reason.trim()));
        }
        if let Some(end) = node.ended() {
            findings.push(format!("node {} has ended: {end}; its last lines:\n{}", node.id, node.last_lines(6)));
        }
    }
    findings
}

/// Whether the process of any node has ended: then the attack is over.
pub(crate) fn has_ended(rig: &Rig) -> bool {
    rig.nodes.iter().any(|node| node.ended().is_some())
}
