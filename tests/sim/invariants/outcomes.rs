//! Outcomes: each acknowledged write has the outcome and the revision that the model has after the
//! same entries; a write that was refused because the member did not lead is not committed.

use std::collections::HashSet;

use super::super::clients::Answer;
use super::{Evidence, Replay};

pub(super) fn check(evidence: &Evidence, replay: &Replay) -> Vec<String> {
    let mut findings = Vec::new();
    let committed: HashSet<_> = evidence.entries.values().filter_map(|entry| entry.command.as_ref()).collect();
    for op in &evidence.ops {
        match &op.answer {
            Answer::Done(applied) => {
                let wanted = &replay.outcomes[&applied.index.get()];
                if applied.outcome != *wanted {
                    findings.push(format!(
                        "outcomes: entry {} came to {:?}, and should to {wanted:?}",
                        applied.index, applied.outcome
                    ));
                }
                let revision = replay.revision_at(applied.index);
                if applied.revision.get() != revision {
                    findings.push(format!(
                        "outcomes: entry {} was answered with revision {}, and makes {revision}",
                        applied.index, applied.revision
                    ));
                }
            }
            Answer::NotDone if committed.contains(&op.command) => {
                findings.push(format!("outcomes: a write that was refused took effect: {op:?}"));
            }
            Answer::NotDone | Answer::InDoubt => {}
        }
    }
    findings
}
