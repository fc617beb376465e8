//! No needless elections: while less than a tenth of the packets is lost, the term stays (spec:
//! reliability §1.12, row 11).
//!
//! A leader on an overloaded machine may send its heartbeats too late, too. The probe's requests
//! are late then as well, and such periods are not judged.

use super::outage::{seconds, stalled, stalls};
use super::{Finding, Findings};
use crate::history::{Micros, Record};

/// Least share of lost packets, percent, with which an election is allowed.
pub(crate) const PERCENT_MIN: u8 = 10;

/// A period in which `percent` of all packets between nodes were lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub percent: u8,
    pub begin: Micros,
    pub end: Micros,
    /// The highest term of any node at the beginning; `None` if no node answered.
    pub before: Option<u64>,
    /// The highest term of any node at the end; `None` if no node answered.
    pub after: Option<u64>,
}

/// Judges every period with less than [`PERCENT_MIN`] lost: the term must be the same at its end.
/// Periods with an unknown term, or in which the clients were stalled, are not judged.
pub(crate) fn check(records: &[Record], losses: &[Loss]) -> Findings {
    let mut findings = Findings::new("elections");
    let stalls = stalls(records);
    let (mut judged, mut unknown) = (0, 0);
    for loss in losses.iter().filter(|loss| loss.percent < PERCENT_MIN) {
        let Loss { percent, begin, end, before, after } = *loss;
        let (Some(before), Some(after), 0) = (before, after, stalled(&stalls, begin, end)) else {
            unknown += 1;
            continue;
        };
        judged += 1;
        if after > before {
            let (begin, end) = (seconds(begin), seconds(end));
            let detail =
                format!("{percent} % lost from {begin:.1} to {end:.1} s, the term went from {before} to {after}");
            findings.add(Finding::new("a leader was given up while few packets were lost", detail));
        }
    }
    let note = match unknown {
        0 => String::new(),
        count => format!("; in {count} more the clients stood still, or no node told its term"),
    };
    findings.scope(format!("{judged} times with less than {PERCENT_MIN} % lost{note}")).nothing_if(judged == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Outcome, Request};
    use crate::work::probe::PROBE;

    /// Records of a probe that sends ten requests a second for five seconds, except in `silent`.
    fn asking(silent: std::ops::Range<Micros>) -> Vec<Record> {
        let asked = (0..5_000_000).step_by(100_000).filter(|at| !silent.contains(at));
        let record = |call| {
            let request = Request::Put { key: "k".into(), value: "v".into(), lease: 0 };
            let outcome = Outcome::Unknown("no answer".into());
            Record { id: 0, workload: PROBE.into(), process: 0, node: 0, call, done: call, request, outcome }
        };
        asked.map(record).collect()
    }

    #[test]
    fn an_election_without_need_is_found() {
        let loss = |percent, before, after| Loss { percent, begin: 1_000_000, end: 4_000_000, before, after };
        for (loss, silent, wanted) in [
            (loss(9, Some(7), Some(7)), 0..0, 0),
            (loss(9, Some(7), Some(8)), 0..0, 1),
            (loss(10, Some(7), Some(8)), 0..0, 0),
            (loss(9, None, Some(8)), 0..0, 0),
            (loss(9, Some(7), None), 0..0, 0),
            // The clients were stalled meanwhile. A stall before it does not matter.
            (loss(9, Some(7), Some(8)), 2_000_000..2_500_000, 0),
            (loss(9, Some(7), Some(8)), 300_000..700_000, 1),
        ] {
            assert_eq!(check(&asking(silent.clone()), &[loss]).count, wanted, "{loss:?} {silent:?}");
        }
    }
}
