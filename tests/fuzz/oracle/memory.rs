//! An attacked node takes at most 1.5 times its memory before the attack, plus a fixed allowance.

use anyhow::Context;

use crate::rig::Rig;

/// Additional memory that the limits of the rig's nodes allow: unread answers (128 MiB), the
/// windows of four topics (8 MiB each), caches and write buffers.
const ALLOWANCE_BYTES: u64 = 320 << 20;

/// Resident memory of each node, bytes.
pub(crate) fn resident(rig: &Rig) -> anyhow::Result<Vec<u64>> {
    let each = rig.nodes.iter().map(|node| {
        let pid = node.pid().with_context(|| format!("node {} has ended", node.id))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        anyhow::Ok(kib << 10)
    });
    each.collect()
}

pub(crate) fn findings(quiet: &[u64], peak: &[u64]) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, (quiet, peak)) in quiet.iter().zip(peak).enumerate() {
        if *peak > quiet / 2 * 3 + ALLOWANCE_BYTES {
            let (quiet, peak) = (quiet >> 20, peak >> 20);
            findings.push(format!("node {} took {peak} MiB under attack, and {quiet} MiB before", index + 1));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_judged_at_its_bound() {
        let quiet = 100 << 20;
        let bound = quiet / 2 * 3 + ALLOWANCE_BYTES;
        assert!(findings(&[quiet], &[bound]).is_empty());
        assert_eq!(findings(&[quiet], &[bound + 1]).len(), 1);
    }
}
