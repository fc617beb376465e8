//! Bounds on the disk, memory and open files of a node.

use super::{Finding, Findings};
use crate::history::Micros;

/// Most disk of a node, bytes: a run writes far less.
const DISK_MAX: u64 = 900 << 20;
/// Most memory of a node, bytes.
const RESIDENT_MAX: u64 = 1 << 30;
/// Most open files and connections of a node.
const FILES_MAX: u64 = 4096;

/// Usage of one node at one moment. Memory and open files are 0 while the node does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    pub disk_bytes: u64,
    pub resident_bytes: u64,
    pub open_files: u64,
}

/// Samples of the usage of all nodes over the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// Time, and the usage of each node.
    pub samples: Vec<(Micros, Vec<NodeUsage>)>,
}

impl Usage {
    pub(crate) fn add(&mut self, at: Micros, nodes: Vec<NodeUsage>) {
        self.samples.push((at, nodes));
    }

    /// The maximum of each resource over all nodes and samples.
    fn most(&self) -> NodeUsage {
        let all = self.samples.iter().flat_map(|(_, nodes)| nodes);
        all.fold(NodeUsage::default(), |most, one| NodeUsage {
            disk_bytes: most.disk_bytes.max(one.disk_bytes),
            resident_bytes: most.resident_bytes.max(one.resident_bytes),
            open_files: most.open_files.max(one.open_files),
        })
    }
}

/// Judges the maxima by the bounds. A resource that is 0 in every sample was not measured, which is
/// a finding, too. Without samples there is no such finding.
pub(crate) fn check(usage: &Usage) -> Findings {
    let mut findings = Findings::new("resources");
    let NodeUsage { disk_bytes, resident_bytes, open_files } = usage.most();
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    for (what, found, most, text) in [
        ("disk", disk_bytes, DISK_MAX, mib as fn(u64) -> String),
        ("memory", resident_bytes, RESIDENT_MAX, mib),
        ("open files", open_files, FILES_MAX, |files| files.to_string()),
    ] {
        if found > most {
            let detail = format!("{}, at most {}", text(found), text(most));
            findings.add(Finding::new(format!("a node takes too much: {what}"), detail));
        }
        if found == 0 && !usage.samples.is_empty() {
            findings.add(Finding::new(format!("what nodes take was not measured: {what}"), ""));
        }
    }
    let (memory, disk) = (mib(resident_bytes), mib(disk_bytes));
    findings.scope(format!("at most {memory} of memory, {disk} of disk, {open_files} open files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: NodeUsage = NodeUsage { disk_bytes: DISK_MAX, resident_bytes: RESIDENT_MAX, open_files: FILES_MAX };

    #[test]
    fn whoever_takes_more_than_the_most_is_found() {
        let little = NodeUsage { disk_bytes: 1, resident_bytes: 1, open_files: 1 };
        for (worst, wanted) in [
            (MOST, &[][..]),
            (NodeUsage { disk_bytes: DISK_MAX + 1, ..MOST }, &["a node takes too much: disk"]),
            (NodeUsage { resident_bytes: RESIDENT_MAX + 1, ..MOST }, &["a node takes too much: memory"]),
            (NodeUsage { open_files: FILES_MAX + 1, ..MOST }, &["a node takes too much: open files"]),
        ] {
            // One node at one moment suffices.
            let samples =
                vec![(1, vec![little, little]), (2, vec![little, worst]), (3, vec![little, NodeUsage::default()])];
            assert_eq!(check(&Usage { samples }).whats(), wanted, "{worst:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_bounded() {
        let samples = vec![(1, vec![NodeUsage { open_files: 0, ..MOST }])];
        assert_eq!(check(&Usage { samples }).whats(), ["what nodes take was not measured: open files"]);
        assert_eq!(check(&Usage::default()).count, 0, "no fault was struck");
    }
}
