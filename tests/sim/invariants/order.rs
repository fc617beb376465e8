//! Order: a write that began after another was acknowledged has a higher log index.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Answer, Op};
    use headwater_types::{Applied, LogIndex, Outcome, Revision};

    /// A write with these times, acknowledged as this log entry.
    fn op(began_us: u64, ended_us: u64, index: u64) -> Op {
        let applied = Applied { index: LogIndex(index), revision: Revision(2), outcome: Outcome::Bootstrapped };
        Op { client: index, began_us, ended_us, command: Default::default(), answer: Answer::Done(applied) }
    }

    #[test]
    fn a_write_that_comes_before_an_earlier_one_is_found() {
        let in_doubt = Op { answer: Answer::InDoubt, ..op(0, 9, 9) };
        for (ops, wanted) in [
            (vec![op(0, 9, 1), op(10, 19, 2), op(20, 29, 3)], 0),
            // Writes overlap, or one begins as the other ends: either order is right.
            (vec![op(0, 19, 2), op(10, 29, 1)], 0),
            (vec![op(0, 9, 2), op(9, 19, 1)], 0),
            (vec![op(0, 9, 2), op(10, 19, 1)], 1),
            (vec![op(10, 19, 1), op(0, 9, 2)], 1),
            // One entry cannot be two writes.
            (vec![op(0, 9, 1), op(10, 19, 1)], 1),
            // Compared with all earlier writes, not only with the last one that began before.
            (vec![op(0, 9, 3), op(10, 19, 4), op(20, 29, 2), op(30, 39, 1)], 2),
            // Nor only with the write acknowledged last.
            (vec![op(0, 9, 3), op(0, 19, 1), op(20, 29, 2)], 1),
            // An indeterminate write is not compared.
            (vec![in_doubt, op(10, 19, 1)], 0),
        ] {
            let findings = check(&Evidence { ops, ..Evidence::default() });
            assert_eq!(findings.len(), wanted, "{findings:?}");
            assert!(findings.iter().all(|finding| finding.starts_with("order: ")), "{findings:?}");
        }
    }
}
