//! Mutual exclusion: a value under a lock is never overwritten by a former holder of the lock.
//!
//! Each client reads the protected counter under the lock, and writes it one higher. A write whose
//! number is not one above that of the write before it is a lost update.

use super::replay::Log;
use super::{Finding, Findings};

/// Key of the protected counter.
pub(crate) const COUNTER: &str = "lock/counter";

/// Judges every write of the counter.
pub(crate) fn check(log: &Log) -> Findings {
    let mut findings = Findings::new("lock");
    let mut last: Option<(i64, u64)> = None;
    let mut writes = 0;
    for (revision, events) in log {
        for event in events.iter().filter(|event| event.pair.key == COUNTER && !event.deleted) {
            writes += 1;
            let Some(count) = count(&event.pair.value) else {
                findings.add(Finding::new("the counter is no number", format!("{:?}", event.pair.value)));
                continue;
            };
            if let Some((before, previous)) = last
                && count != previous + 1
            {
                findings.add(Finding::new(
                    "lost update: somebody wrote who no longer held the lock",
                    format!("revision {revision} wrote {count}, revision {before} had written {previous}"),
                ));
            }
            last = Some((*revision, count));
        }
    }
    findings.scope(format!("{writes} writes under the lock")).judged(writes).nothing_if(writes == 0)
}

/// The number at the beginning of a value of the counter, before the writer's name. `None` if the
/// value does not begin with a number.
pub(crate) fn count(value: &str) -> Option<u64> {
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, Pair};

    fn log(counts: &[&str]) -> Log {
        let event = |value: &str| Event {
            deleted: false,
            pair: Pair { key: COUNTER.into(), value: value.into(), ..Pair::default() },
            before: None,
        };
        counts.iter().enumerate().map(|(at, value)| (at as i64 + 2, vec![event(value)])).collect()
    }

    #[test]
    fn lost_updates_are_found() {
        assert_eq!(check(&log(&["1 a", "2 b", "3 a"])).count, 0);
        assert_eq!(check(&log(&["1 a", "2 b", "2 a"])).count, 1);
        assert_eq!(check(&log(&["1 a", "2 b", "3 b", "3 a", "4 b"])).count, 1);
    }
}
