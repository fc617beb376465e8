//! Linearizable reads: a read sees every write acknowledged before it began, and returns the pair
//! of the model at its index.

use super::{Evidence, Replay};

pub(super) fn check(evidence: &Evidence, replay: &Replay) -> Vec<String> {
    let mut findings = Vec::new();
    for read in &evidence.reads {
        let before = evidence.ops.iter().filter(|op| op.ended_us < read.began_us);
        let newest = before.filter_map(|op| Some(op.acknowledged()?.index)).max().unwrap_or_default();
        if read.index < newest {
            findings.push(format!(
                "reads: client {} saw entry {}, though {newest} was acknowledged before",
                read.client, read.index
            ));
        }
        let wanted = replay.at(replay.revision_at(read.index)).get(&read.key);
        if read.found.as_ref() != wanted {
            findings.push(format!(
                "reads: client {} found {:?} at entry {}, and should have {wanted:?}",
                read.client, read.found, read.index
            ));
        }
    }
    findings
}
