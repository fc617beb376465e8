//! A write that began after another was acknowledged comes after it.

use super::Evidence;

pub(super) fn check(evidence: &Evidence) -> Vec<String> {
    let mut by_end: Vec<_> =
        evidence.ops.iter().filter_map(|op| Some((op.ended_us, op.acknowledged()?.index))).collect();
    by_end.sort_unstable();
    let mut by_begin: Vec<_> =
        evidence.ops.iter().filter_map(|op| Some((op.began_us, op.acknowledged()?.index, op.client))).collect();
    by_begin.sort_unstable();
    let (mut ended, mut highest) = (by_end.into_iter().peekable(), None);
    let mut findings = Vec::new();
    for (began_us, index, client) in by_begin {
        while let Some((_, earlier)) = ended.next_if(|(ended_us, _)| *ended_us < began_us) {
            highest = highest.max(Some(earlier));
        }
        if let Some(highest) = highest.filter(|highest| *highest >= index) {
            findings.push(format!(
                "order: client {client} began a write after entry {highest} was acknowledged, and it became entry {index}"
            ));
        }
    }
    findings
}
