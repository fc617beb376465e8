//! Length of the outages of writes around each fault, as a distribution for each kind of fault.
//!
//! While the clients themselves are stalled (the harness was stopped, or the machine is
//! overloaded), the state of the cluster is unknown. Such a period shows as a gap between the calls
//! of the probe, which sends fifty a second without waiting for answers. It does not count as
//! outage.

use std::collections::BTreeMap;

use super::{Finding, Findings};
use crate::history::{Micros, Record};
use crate::work::probe::PROBE;

/// Longest outage after the loss of a leader, at the 99th percentile, microseconds.
const LEADER_LOSS_MAX: Micros = 2_000_000;
/// Least number of leader kills, or of moves of leadership, for a judgement of the 99th percentile.
/// Among fewer, a single one on a busy machine would decide.
const KILLS_MIN: usize = 10;
/// Least number of leader kills, below [`KILLS_MIN`], for a judgement of the median: its bound is
/// [`LEADER_LOSS_MAX`], too.
const MEDIAN_KILLS_MIN: usize = 3;
/// Longest outage allowed among fewer than [`KILLS_MIN`] kills or moves, microseconds: an election
/// and a disk that stalls for seconds.
const FEW_LOSSES_MAX: Micros = 15_000_000;
/// Bound on the median outage of planned moves of leadership, microseconds: two heartbeats (spec:
/// reliability §1.12, row 21), and the interval of the probe's writes.
const MOVE_MEDIAN_MAX: Micros = 220_000;
/// Longest outage of planned moves of leadership, at the 99th percentile, microseconds.
const MOVE_MAX: Micros = 1_000_000;
/// Longest time from the healing of a fault until a write is acknowledged, microseconds. Time in
/// which the clients are stalled is added.
const HEALED_MAX: Micros = 15_000_000;

/// The clients count as stalled in a gap longer than this between two requests of the probe,
/// microseconds.
const STALL_MIN: Micros = 250_000;

/// The period of one fault, or of one planned move of leadership. Outages are measured for each.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Name of the fault, or kind of the move.
    pub fault: String,
    pub begin: Micros,
    /// Time at which the fault was healed and all nodes served again, or the move was complete.
    pub healed: Micros,
}

/// Outages in microseconds by kind of fault, each list with the shortest first.
pub(crate) type Outages = BTreeMap<String, Vec<Micros>>;

/// The periods in which the clients were stalled: gaps above [`STALL_MIN`] between two calls of the
/// probe.
pub(crate) fn stalls(records: &[Record]) -> Vec<(Micros, Micros)> {
    let mut calls: Vec<Micros> =
        records.iter().filter(|record| record.workload == PROBE).map(|record| record.call).collect();
    calls.sort_unstable();
    calls.windows(2).filter(|pair| pair[1] - pair[0] > STALL_MIN).map(|pair| (pair[0], pair[1])).collect()
}

/// Time between `begin` and `end` that lies in `stalls`, microseconds.
pub(crate) fn stalled(stalls: &[(Micros, Micros)], begin: Micros, end: Micros) -> Micros {
    stalls.iter().map(|(from, to)| (*to).min(end).saturating_sub((*from).max(begin))).sum()
}

/// The longest outage of each window, by kind of fault. An outage is the time between two
/// acknowledged writes, less the stalls in it. Its part before the window does not count. An outage
/// that begins in the window counts until the next write; without one, until the window's end.
pub(crate) fn measure(records: &[Record], windows: &[Window]) -> Outages {
    let mut acknowledged: Vec<Micros> =
        records.iter().filter(|record| record.has_written()).map(|record| record.done).collect();
    acknowledged.sort_unstable();
    let stalls = stalls(records);
    let outage = |begin: Micros, end: Micros| end.saturating_sub(begin) - stalled(&stalls, begin, end);
    let mut outages = Outages::new();
    for window in windows {
        let from = acknowledged.partition_point(|at| *at < window.begin).saturating_sub(1);
        let mut longest = 0;
        for pair in acknowledged[from..].windows(2) {
            if pair[0] > window.healed {
                break;
            }
            longest = longest.max(outage(pair[0].max(window.begin), pair[1]));
        }
        // No write after the window: the outage lasts at least to its end.
        if acknowledged.last().is_none_or(|last| *last < window.healed) {
            longest = longest.max(outage(acknowledged.last().copied().unwrap_or(0).max(window.begin), window.healed));
        }
        outages.entry(window.fault.clone()).or_default().push(longest);
    }
    outages.values_mut().for_each(|list| list.sort_unstable());
    outages
}

/// Judges the outages. Writes must resume soon after a leader was killed, and after every healing.
/// Planned moves of leadership, listed in `moments`, must hardly interrupt them; moves in or right
/// before a stall are not judged.
pub(crate) fn check(records: &[Record], windows: &[Window], moments: &[Window]) -> Findings {
    let mut findings = Findings::new("recovery");
    let outages = measure(records, windows);
    let kills = outages.get("kill-leader").map_or(&[][..], Vec::as_slice);
    let bounds = match kills.len() {
        0..MEDIAN_KILLS_MIN => &[(99, FEW_LOSSES_MAX)][..],
        MEDIAN_KILLS_MIN..KILLS_MIN => &[(50, LEADER_LOSS_MAX), (99, FEW_LOSSES_MAX)],
        KILLS_MIN.. => &[(99, LEADER_LOSS_MAX)],
    };
    for (percent, most) in bounds.iter().filter(|(percent, most)| percentile(kills, *percent) > *most) {
        let (found, most) = (seconds(percentile(kills, *percent)), seconds(*most));
        let detail = format!("{found:.2} s at {percent} % of {}, at most {most:.2} s", kills.len());
        findings.add(Finding::new("writes stood still too long after the loss of a leader", detail));
    }
    let stalls = stalls(records);
    // A machine that stalled the clients stalled the nodes as well, and these bounds are narrow.
    let is_calm = |moment: &&Window| stalled(&stalls, moment.begin, moment.healed + MOVE_MAX) == 0;
    let calm: Vec<Window> = moments.iter().filter(is_calm).cloned().collect();
    let moves = measure(records, &calm);
    for (how, list) in &moves {
        let bounds = match list.len() {
            0..KILLS_MIN => &[(100, FEW_LOSSES_MAX)][..],
            KILLS_MIN.. => &[(50, MOVE_MEDIAN_MAX), (99, MOVE_MAX)],
        };
        for (percent, most) in bounds.iter().filter(|(percent, most)| percentile(list, *percent) > *most) {
            let (found, most) = (seconds(percentile(list, *percent)), seconds(*most));
            let detail = format!("{how}: {found:.3} s at {percent} % of {}, at most {most:.3} s", list.len());
            findings.add(Finding::new("writes stood still too long while leadership was moved", detail));
        }
    }
    for window in windows {
        let until = window.healed + HEALED_MAX;
        let until = until + stalled(&stalls, window.healed, until);
        let back = records
            .iter()
            .any(|record| record.has_written() && (window.healed.saturating_sub(1)..until).contains(&record.done));
        if !back {
            let detail = format!("{}, healed at {:.1} s", window.fault, seconds(window.healed));
            findings.add(Finding::new("no write was acknowledged after a fault was healed", detail));
        }
    }
    let lost: Micros = stalls.iter().map(|(from, to)| to - from).sum();
    let note = if lost == 0 { String::new() } else { format!(", the clients stood still for {:.1} s", seconds(lost)) };
    let moved = format!("leadership was moved {} times ({} judged)", moments.len(), calm.len());
    findings.scope(format!("{} faults, {moved}{note}", windows.len()))
}

/// The least value of a sorted list that at least `percent` percent of its values do not exceed; 0
/// for an empty list.
pub(crate) fn percentile(sorted: &[Micros], percent: usize) -> Micros {
    if sorted.is_empty() {
        return 0;
    }
    sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
}

/// Converts microseconds to seconds, for output.
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
        Record { id: 0, workload: PROBE.into(), process: 0, node: 0, call: done, done, request, outcome }
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

    /// Acknowledged writes at the times `done`, among requests without an answer: one every 0.1 s,
    /// except in `silent`.
    fn asking(done: &[Micros], silent: std::ops::Range<Micros>) -> Vec<Record> {
        let asked = (0..16_600_000).step_by(100_000).filter(|at| !silent.contains(at));
        let vain = asked.map(|at| Record { outcome: Outcome::Unknown("no answer".into()), ..write(at) });
        vain.chain(done.iter().copied().map(write)).collect()
    }

    #[test]
    fn long_outages_are_found() {
        let slow = asking(&[0, 100, 3_000_000], 0..0);
        let kills = |count: usize, healed: Micros| vec![window(50, healed); count];
        assert_eq!(check(&slow, &kills(KILLS_MIN, 3_000_000), &[]).count, 1);
        assert_eq!(check(&slow, &kills(KILLS_MIN - 1, 3_000_000), &[]).count, 1, "few kills have a middle");
        assert_eq!(check(&slow, &kills(MEDIAN_KILLS_MIN - 1, 3_000_000), &[]).count, 0, "so few have none");
        let endless = asking(&[0, 100, 16_500_000], 0..0);
        assert_eq!(check(&endless, &kills(1, 16_500_000), &[]).count, 1, "few, but too long");
        // An outage that began within the window counts, although it ended after it. One that began
        // later does not.
        assert_eq!(check(&slow, &kills(KILLS_MIN, 150), &[]).count, 1);
        assert_eq!(check(&slow, &kills(KILLS_MIN, 60), &[]).count, 0);
        let quick = asking(&[0, 100, 900_000, 3_000_000], 0..0);
        assert_eq!(check(&quick, &kills(KILLS_MIN, 900_000), &[]).count, 1);
        assert_eq!(check(&asking(&[0, 100, 900_000, 1_000_000], 0..0), &[window(50, 950_000)], &[]).count, 0);
        assert!(check(&quick, &[window(3_000_001, 3_100_000)], &[]).count >= 1, "nothing came back");
    }

    #[test]
    fn while_the_clients_stand_still_there_is_no_outage() {
        // Stopped from 0.4 s to 3.5 s: 0.6 s of the outage are left.
        let stopped = asking(&[0, 100_000, 3_900_000], 450_000..3_500_000);
        assert_eq!(stalls(&stopped), [(400_000, 3_500_000)]);
        assert_eq!(measure(&stopped, &[window(200_000, 3_900_000)])["kill-leader"], [600_000]);
        let kills = vec![window(200_000, 3_900_000); KILLS_MIN];
        assert_eq!(check(&stopped, &kills, &[]).count, 0);
        assert_eq!(check(&asking(&[0, 100_000, 3_900_000], 0..0), &kills, &[]).count, 1);
    }

    #[test]
    fn leadership_that_moves_slowly_is_found() {
        let moved = |begin: Micros| Window { fault: "move-leader (each)".into(), begin, healed: begin + 50_000 };
        // A write every 0.1 s, except in a gap of this length from 1 s on.
        let with_gap = |gap: Micros| {
            let done: Vec<Micros> =
                (0..46).map(|at| at * 100_000).filter(|at| !(1_000_001..1_000_000 + gap).contains(at)).collect();
            asking(&done, 0..0)
        };
        let median = |gap| check(&with_gap(gap), &[], &vec![moved(1_000_000); KILLS_MIN]).count;
        assert_eq!((median(200_000), median(300_000), median(1_100_000)), (0, 1, 2));
        // One of ten: below the median, but the maximum.
        let mut moments = vec![moved(100_000); KILLS_MIN - 1];
        moments.push(moved(1_000_000));
        let one = |gap| check(&with_gap(gap), &[], &moments).count;
        assert_eq!((one(300_000), one(1_000_000), one(1_100_000)), (0, 0, 1));
        let few = |gap| check(&with_gap(gap), &[], &[moved(1_000_000)]).count;
        assert_eq!(few(3_500_000), 0);
        // While the clients were stalled, nothing is judged.
        let stopped = asking(&[1_000_000, 4_500_000], 1_500_000..2_000_000);
        assert_eq!(check(&stopped, &[], &vec![moved(1_000_000); KILLS_MIN]).count, 0);
        let late = asking(&[900_000, 1_000_000], 0..0);
        let endless = Window { healed: 16_100_000, ..moved(1_000_000) };
        assert_eq!(check(&late, &[], &[endless]).count, 1, "few, but too long");
    }

    #[test]
    fn percentiles() {
        let list: Vec<Micros> = (1..=100).collect();
        assert_eq!((percentile(&list, 50), percentile(&list, 99), percentile(&[7], 99)), (50, 99, 7));
    }
}
