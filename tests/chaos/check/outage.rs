//! How long writes stood still around each fault, as a distribution for each kind of fault.

use std::collections::BTreeMap;

use super::{Finding, Findings};
use crate::history::{Micros, Record};

/// Longest outage after the loss of a leader, at the 99th percentile.
const LEADER_LOSS_MAX: Micros = 2_000_000;
/// Time that a cluster has after everything was healed until it takes writes again.
const HEALED_MAX: Micros = 15_000_000;

/// When a fault was under way.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub fault: String,
    pub begin: Micros,
    /// When everything was as before.
    pub healed: Micros,
}

/// The outages of one kind of fault, shortest first.
pub(crate) type Outages = BTreeMap<String, Vec<Micros>>;

/// The longest time without an acknowledged write that overlaps each window, by kind of fault.
pub(crate) fn measure(records: &[Record], windows: &[Window]) -> Outages {
    let mut acknowledged: Vec<Micros> = records
        .iter()
        .filter(|record| record.request.is_mutation() && record.outcome.answer().is_some())
        .map(|record| record.done)
        .collect();
    acknowledged.sort_unstable();
    let mut outages = Outages::new();
    for window in windows {
        let from = acknowledged.partition_point(|at| *at < window.begin).saturating_sub(1);
        let mut longest = 0;
        for pair in acknowledged[from..].windows(2) {
            if pair[0] > window.healed {
                break;
            }
            longest = longest.max(pair[1] - pair[0].max(window.begin));
        }
        // Nothing was written after it: it goes on.
        if acknowledged.last().is_none_or(|last| *last < window.healed) {
            longest = longest.max(window.healed - acknowledged.last().copied().unwrap_or(0).max(window.begin));
        }
        outages.entry(window.fault.clone()).or_default().push(longest);
    }
    outages.values_mut().for_each(|list| list.sort_unstable());
    outages
}

/// Judges what must hold: writes come back soon after the loss of a leader, and after any healing.
pub(crate) fn check(records: &[Record], windows: &[Window]) -> Findings {
    let mut findings = Findings::new("recovery");
    let outages = measure(records, windows);
    if let Some(list) = outages.get("kill-leader")
        && percentile(list, 99) > LEADER_LOSS_MAX
    {
        let detail = format!("p99 {:.2} s, at most {:.2} s", seconds(percentile(list, 99)), seconds(LEADER_LOSS_MAX));
        findings.add(Finding::new("writes stood still too long after the loss of a leader", detail));
    }
    for window in windows {
        let back = records.iter().any(|record| {
            record.request.is_mutation()
                && record.outcome.answer().is_some()
                && (window.healed.saturating_sub(1)..window.healed + HEALED_MAX).contains(&record.done)
        });
        if !back {
            let detail = format!("{}, healed at {:.1} s", window.fault, seconds(window.healed));
            findings.add(Finding::new("no write was acknowledged after a fault was healed", detail));
        }
    }
    findings.scope(format!("{} faults", windows.len()))
}

/// The value below which `percent` of a sorted list lie.
pub(crate) fn percentile(sorted: &[Micros], percent: usize) -> Micros {
    if sorted.is_empty() {
        return 0;
    }
    sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
}

/// For people.
pub(crate) fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Body, Outcome, Request};

    fn write(done: Micros) -> Record {
        let request = Request::Put { key: "k".into(), value: done.to_string(), lease: 0 };
        let outcome = Outcome::Ok(Answer { revision: 1, index: 1, body: Body::Put });
        Record { id: 0, workload: "w".into(), process: 0, node: 0, call: done, done, request, outcome }
    }

    fn window(begin: Micros, healed: Micros) -> Window {
        Window { fault: "kill-leader".into(), begin, healed }
    }

    #[test]
    fn the_longest_gap_from_the_fault_on() {
        let records: Vec<Record> = [10, 20, 30, 130, 140, 400].map(write).into();
        for (begin, healed, wanted) in [(25, 135, 100), (50, 135, 80), (5, 25, 10), (135, 150, 260), (410, 500, 90)] {
            assert_eq!(measure(&records, &[window(begin, healed)])["kill-leader"], [wanted], "{begin} {healed}");
        }
    }

    #[test]
    fn long_outages_are_found() {
        let slow: Vec<Record> = [0, 100, 3_000_000].map(write).into();
        assert_eq!(check(&slow, &[window(50, 3_000_000)]).count, 1);
        // It began within the window, although it ended after it; one that began later is not the fault's.
        assert_eq!(check(&slow, &[window(50, 150)]).count, 1);
        assert_eq!(check(&slow, &[window(50, 60)]).count, 0);
        let quick: Vec<Record> = [0, 100, 900_000, 3_000_000].map(write).into();
        assert_eq!(check(&quick, &[window(50, 900_000)]).count, 1);
        assert_eq!(check(&[write(0), write(100), write(900_000), write(1_000_000)], &[window(50, 950_000)]).count, 0);
        assert!(check(&quick, &[window(3_000_001, 3_100_000)]).count >= 1, "nothing came back");
    }

    #[test]
    fn percentiles() {
        let list: Vec<Micros> = (1..=100).collect();
        assert_eq!((percentile(&list, 50), percentile(&list, 99), percentile(&[7], 99)), (50, 99, 7));
    }
}
