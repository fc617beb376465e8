//! Judges the enemy's attacks: each was refused at least once, and none was let through. Meanwhile
//! the memory of the nodes was bounded, no member was added, and keep-alives were answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Finding, Findings};
use crate::enemy::{AttackReport, Outcome};

/// Factor (numerator, denominator) on a node's memory without the enemy. The bound for an attacked
/// node is this product, or that memory plus [`MEMORY_ALLOWANCE_BYTES`] if the sum is larger.
const MEMORY_FACTOR: (u64, u64) = (3, 2);
/// Memory that an attack may add to every node, however small. A node with much memory may gain
/// more, by [`MEMORY_FACTOR`]. The value is a node's bound on unread answers
/// (`UNREAD_ANSWERS_BYTES_MAX`).
const MEMORY_ALLOWANCE_BYTES: u64 = 128 << 20;
/// Longest time that may pass without an answer to keep-alives of a lease, while the enemy attacks
/// and before the first fault.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(2);

/// Outcomes of all attempts of one attack: counts, and the texts of those that were let through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub refused: usize,
    pub let_through: Vec<String>,
    pub unclear: usize,
    /// The reason why the last unclear attempt was unclear.
    pub last_unclear: String,
}

impl Tally {
    pub(crate) fn add(&mut self, report: AttackReport) {
        match report.outcome {
            Outcome::Refused(_) => self.refused += 1,
            Outcome::LetThrough(what) => self.let_through.push(format!("node {}: {what}", report.node + 1)),
            Outcome::Unclear(why) => {
                self.unclear += 1;
                self.last_unclear = why;
            }
        }
    }
}

/// Evidence about the enemy of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Siege {
    /// Names of the attacks that the checker expects of the enemy.
    pub attacks: Vec<&'static str>,
    /// Outcomes by the name of the attack.
    pub tally: BTreeMap<String, Tally>,
    /// Most resident memory of each node without the enemy, under the same load, bytes. 0: not
    /// measured.
    pub quiet: Vec<u64>,
    /// Most resident memory of each node with the enemy, bytes. 0: not measured.
    pub attacked: Vec<u64>,
    /// By node: longest time without an answer to keep-alives of a lease that it granted, while the
    /// enemy attacks and before the first fault. All of that time if the node granted no lease.
    pub keep_alives: Vec<Duration>,
    /// Descriptions of members that are no nodes of the run. The error alone, if the members could
    /// not be listed.
    pub strangers: Vec<String>,
    /// Exit status of the enemy, if it ended before the run ended it.
    pub ended: Option<String>,
}

/// Judges the evidence; no findings if the run had no enemy (`None`).
pub(crate) fn check(siege: Option<&Siege>) -> Findings {
    let mut findings = Findings::new("enemy");
    let Some(siege) = siege else { return findings.scope("no enemy").nothing_if(true) };
    if let Some(status) = &siege.ended {
        findings.add(Finding::new("the enemy has ended: a defect of this program", status.clone()));
    }
    let mut refused = 0;
    for name in &siege.attacks {
        let tally = siege.tally.get(*name).cloned().unwrap_or_default();
        refused += tally.refused;
        if let Some(first) = tally.let_through.first() {
            let what = format!("an attack was let through: {name}");
            findings.add(Finding::new(what, format!("{} times; {first}", tally.let_through.len())));
        } else if tally.refused == 0 && tally.unclear > 0 {
            let detail = format!("{name}: {} times, last: {}", tally.unclear, tally.last_unclear);
            findings.add(Finding::new("an attack never had its answer", detail));
        } else if tally.refused == 0 {
            findings.add(Finding::new("rejected: an attack was never tried", *name));
        }
    }
    for (node, (quiet, attacked)) in siege.quiet.iter().zip(&siege.attacked).enumerate() {
        if *attacked > memory_max(*quiet) {
            let detail = format!("node {}: {} MiB, {} MiB before", node + 1, attacked >> 20, quiet >> 20);
            findings.add(Finding::new("a node takes too much memory while it is attacked", detail));
        }
    }
    if siege.quiet.iter().chain(&siege.attacked).any(|bytes| *bytes == 0) || siege.quiet.is_empty() {
        findings.add(Finding::new("rejected: the memory of nodes was not measured", ""));
    }
    for (node, gap) in siege.keep_alives.iter().enumerate().filter(|(_, gap)| **gap > KEEP_ALIVE_MAX) {
        let detail = format!("node {}: none for {gap:?}", node + 1);
        findings.add(Finding::new("keep-alives are not answered while the enemy attacks", detail));
    }
    if siege.keep_alives.is_empty() {
        findings.add(Finding::new("rejected: no lease was kept alive", ""));
    }
    for stranger in &siege.strangers {
        findings.add(Finding::new("a member joined uninvited", stranger.clone()));
    }
    let most = |bytes: &[u64]| bytes.iter().max().copied().unwrap_or(0) >> 20;
    let gap = siege.keep_alives.iter().max().copied().unwrap_or_default();
    findings.scope(format!(
        "{refused} attacks of {} kinds refused, {} MiB before and {} MiB at most while attacked, keep-alives {:.2} s apart at most",
        siege.attacks.len(),
        most(&siege.quiet),
        most(&siege.attacked),
        gap.as_secs_f64(),
    ))
}

/// Most memory that an attacked node may take, bytes. `quiet` is its memory without the enemy.
fn memory_max(quiet: u64) -> u64 {
    (quiet * MEMORY_FACTOR.0 / MEMORY_FACTOR.1).max(quiet + MEMORY_ALLOWANCE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> AttackReport {
        AttackReport { attack: "join".to_owned(), node: 1, outcome }
    }

    fn siege() -> Siege {
        let mut join = Tally::default();
        join.add(report(Outcome::Refused("no".into())));
        join.add(report(Outcome::Unclear("down".into())));
        Siege {
            attacks: vec!["join"],
            tally: [("join".to_owned(), join)].into(),
            quiet: vec![200 << 20; 3],
            attacked: vec![(200 << 20) + MEMORY_ALLOWANCE_BYTES; 3],
            keep_alives: vec![KEEP_ALIVE_MAX; 3],
            strangers: vec![],
            ended: None,
        }
    }

    fn after(change: impl FnOnce(&mut Siege)) -> Vec<String> {
        let mut siege = siege();
        change(&mut siege);
        check(Some(&siege)).whats().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn an_enemy_that_is_refused_passes() {
        assert_eq!(after(|_| {}).len(), 0);
        assert_eq!((check(None).count, check(None).word()), (0, "-"));
    }

    #[test]
    fn every_success_of_the_enemy_is_found() {
        let join = |siege: &mut Siege, tally: Tally| drop(siege.tally.insert("join".to_owned(), tally));
        let mut through = siege().tally["join"].clone();
        through.add(report(Outcome::LetThrough("id 4".into())));
        assert_eq!(after(|siege| join(siege, through)), ["an attack was let through: join"]);
        let mut unclear = Tally::default();
        unclear.add(report(Outcome::Unclear("down".into())));
        assert_eq!(after(|siege| join(siege, unclear)), ["an attack never had its answer"]);
        assert_eq!(after(|siege| siege.tally.clear()), ["rejected: an attack was never tried"]);
        let much = "a node takes too much memory while it is attacked";
        assert_eq!(after(|siege| siege.attacked[2] += 1), [much]);
        let large = 1 << 30;
        let at = |attacked| after(|siege| (siege.quiet[0], siege.attacked[0]) = (large, attacked));
        assert_eq!((at(large * 3 / 2).len(), at(large * 3 / 2 + 1)), (0, vec![much.to_owned()]));
        assert_eq!(after(|siege| siege.quiet[0] = 0).len(), 2, "not measured");
        let late = "keep-alives are not answered while the enemy attacks";
        assert_eq!(after(|siege| siege.keep_alives[1] += Duration::from_millis(1)), [late]);
        assert_eq!(after(|siege| siege.keep_alives.clear()), ["rejected: no lease was kept alive"]);
        assert_eq!(after(|siege| siege.strangers.push("enemy".into())), ["a member joined uninvited"]);
        let ended = "the enemy has ended: a defect of this program";
        assert_eq!(after(|siege| siege.ended = Some("exit status: 2".into())), [ended]);
    }
}
