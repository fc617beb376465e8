//! Agreement: all members apply the same entries, without gaps, and each acknowledged write is the
//! entry at the log index in its answer.

use super::Evidence;

pub(super) fn check(evidence: &Evidence) -> Vec<String> {
    let mut findings: Vec<String> =
        evidence.conflicts.iter().map(|conflict| format!("agreement: {conflict}")).collect();
    let indexes = evidence.entries.keys();
    if let Some((missing, _)) = (1..).zip(indexes.filter(|index| **index > 0)).find(|(wanted, index)| wanted != *index)
    {
        findings.push(format!("agreement: nobody knows entry {missing}, and later ones are committed"));
    }
    for op in &evidence.ops {
        let Some(applied) = op.acknowledged() else { continue };
        let entry = evidence.entries.get(&applied.index.get());
        if entry.and_then(|entry| entry.command.as_ref()) != Some(&op.command) {
            findings.push(format!("agreement: a write acknowledged as entry {} is not there: {op:?}", applied.index));
        }
    }
    findings
}
