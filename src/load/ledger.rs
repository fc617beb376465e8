//! Compares the puts with the events that watchers saw: whether every watcher has every event of
//! its key, once and in order.
//!
//! Owns the expectation, key by key. An acknowledged put is one event for each watcher of its key,
//! at the revision of the answer; a failed put may be one event or none. Invariant: no event of a
//! put that was not acknowledged counts as missing.

use std::sync::atomic::{AtomicU64, Ordering};

/// The puts of each watched key: counts, and the sum of the acknowledged revisions.
#[derive(Debug)]
pub(super) struct Ledger {
    keys: Box<[Written]>,
    watchers: u64,
}

#[derive(Debug, Default)]
struct Written {
    acknowledged: AtomicU64,
    unclear: AtomicU64,
    /// Sum of the revisions that were acknowledged.
    revisions: AtomicU64,
}

/// Counts of the events that one watcher has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    events: u64,
    /// The newest revision of an event.
    last: u64,
    /// Sum of the revisions of all events.
    revisions: u64,
    /// Of the first event whose revision is not above that of every earlier event: the newest
    /// earlier revision, and its own.
    disorder: Option<(u64, u64)>,
}

impl Seen {
    /// Counts an event, and records the first one whose revision is not above all earlier ones.
    #[inline]
    pub(super) fn event(&mut self, revision: u64) {
        if revision <= self.last && self.disorder.is_none() {
            self.disorder = Some((self.last, revision));
        }
        self.last = self.last.max(revision);
        self.events += 1;
        self.revisions = self.revisions.wrapping_add(revision);
    }
}

/// Fault in the events of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Number of events that did not come.
    Missing(u64),
    /// Number of surplus events.
    Extra(u64),
    /// An event came after one of the same or of a later revision.
    Disorder {
        /// The newest revision before it.
        after: u64,
        /// The revision of that event.
        came: u64,
    },
    /// The number of events is as expected, but some are of revisions that the run did not write.
    /// Looked for only if no put to the key failed.
    Foreign,
}

/// The faults of all watchers.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub(super) missing: u64,
    pub(super) extra: u64,
    /// Number of watchers with events out of order or twice.
    pub(super) disordered_watchers: u64,
    /// Number of watchers that received revisions that the run did not write.
    pub(super) foreign_watchers: u64,
    /// Descriptions of the faults that were added first, at most [`EXAMPLES_MAX`].
    pub(super) examples: Vec<String>,
}

/// Most faults that are described one by one.
const EXAMPLES_MAX: usize = 5;

impl Ledger {
    /// A ledger for `keys` keys, watched by `watchers` watchers: watcher `i` watches key `i` modulo
    /// `keys`.
    pub(super) fn new(keys: u64, watchers: u64) -> Self {
        Self { keys: (0..keys).map(|_| Written::default()).collect(), watchers }
    }

    /// Records that a put was acknowledged.
    pub(super) fn acknowledged(&self, key: u64, revision: u64) {
        let written = self.written(key);
        written.acknowledged.fetch_add(1, Ordering::Relaxed);
        written.revisions.fetch_add(revision, Ordering::Relaxed);
    }

    /// Records that a put failed. It may have been carried out nevertheless.
    pub(super) fn unclear(&self, key: u64) {
        self.written(key).unclear.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of events that all watchers together must see: those of the acknowledged puts.
    pub(super) fn expected(&self) -> u64 {
        let keys = (0..).zip(&self.keys);
        keys.map(|(key, written)| written.acknowledged.load(Ordering::Relaxed) * self.watchers_of(key)).sum()
    }

    /// A fault in the events of a watcher of `key`; `None` if they are as expected. Their order is
    /// checked first, then their number, then their revisions. Must be called when no put is under
    /// way any more.
    pub(super) fn judge(&self, key: u64, seen: &Seen) -> Option<Fault> {
        let written = self.written(key);
        let least = written.acknowledged.load(Ordering::Relaxed);
        let most = least + written.unclear.load(Ordering::Relaxed);
        if let Some((after, came)) = seen.disorder {
            return Some(Fault::Disorder { after, came });
        }
        if seen.events < least {
            return Some(Fault::Missing(least - seen.events));
        }
        if seen.events > most {
            return Some(Fault::Extra(seen.events - most));
        }
        // Revisions that are ascending, equal in number and equal in sum are taken as the written
        // ones.
        let is_foreign = least == most && seen.revisions != written.revisions.load(Ordering::Relaxed);
        is_foreign.then_some(Fault::Foreign)
    }

    fn watchers_of(&self, key: u64) -> u64 {
        let keys = self.keys.len() as u64;
        self.watchers / keys + u64::from(key < self.watchers % keys)
    }

    fn written(&self, key: u64) -> &Written {
        &self.keys[usize::try_from(key).expect("keys are counted in memory")]
    }
}

impl Verdict {
    /// Adds the fault of one watcher. `watcher` returns a description of the watcher; it is called
    /// only while there are fewer than [`EXAMPLES_MAX`] examples.
    pub(super) fn add(&mut self, watcher: impl FnOnce() -> String, fault: Fault) {
        let words = match fault {
            Fault::Missing(count) => {
                self.missing += count;
                format!("lacks {count} events")
            }
            Fault::Extra(count) => {
                self.extra += count;
                format!("has {count} events more than were written")
            }
            Fault::Disorder { after, came } => {
                self.disordered_watchers += 1;
                format!("got revision {came} after revision {after}")
            }
            Fault::Foreign => {
                self.foreign_watchers += 1;
                "got other events than were written; does somebody else write to these keys (--prefix)?".to_owned()
            }
        };
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(format!("{} {words}", watcher()));
        }
    }

    /// Whether no watcher has a fault.
    pub(super) fn is_clean(&self) -> bool {
        self.missing + self.extra + self.disordered_watchers + self.foreign_watchers == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revisions: &[u64]) -> Seen {
        let mut seen = Seen::default();
        revisions.iter().for_each(|revision| seen.event(*revision));
        seen
    }

    fn ledger() -> Ledger {
        let ledger = Ledger::new(2, 5);
        for (key, revision) in [(0, 2), (1, 3), (0, 4), (0, 7)] {
            ledger.acknowledged(key, revision);
        }
        ledger
    }

    #[test]
    fn what_every_watcher_must_see() {
        // Three watchers of key 0, two of key 1.
        assert_eq!(ledger().expected(), 3 * 3 + 2);
        assert_eq!(Ledger::new(7, 3).expected(), 0);
    }

    #[test]
    fn faults_are_found() {
        for (key, revisions, wanted) in [
            (0, &[2, 4, 7][..], None),
            (1, &[3], None),
            (0, &[2, 7], Some(Fault::Missing(1))),
            (0, &[], Some(Fault::Missing(3))),
            (0, &[2, 4, 7, 8], Some(Fault::Extra(1))),
            (0, &[2, 4, 4, 7], Some(Fault::Disorder { after: 4, came: 4 })),
            (0, &[2, 2, 4], Some(Fault::Disorder { after: 2, came: 2 })),
            (0, &[2, 7, 4], Some(Fault::Disorder { after: 7, came: 4 })),
            (0, &[2, 5, 7], Some(Fault::Foreign)),
            (1, &[0], Some(Fault::Disorder { after: 0, came: 0 })),
        ] {
            assert_eq!(ledger().judge(key, &seen(revisions)), wanted, "{revisions:?}");
        }
    }

    #[test]
    fn a_put_without_an_answer_may_be_seen_or_not() {
        let ledger = ledger();
        ledger.unclear(1);
        assert_eq!(ledger.judge(1, &seen(&[3])), None);
        assert_eq!(ledger.judge(1, &seen(&[3, 9])), None);
        assert_eq!(ledger.judge(1, &seen(&[3, 9, 10])), Some(Fault::Extra(1)));
        assert_eq!(ledger.judge(1, &seen(&[])), Some(Fault::Missing(1)));
    }

    #[test]
    fn a_verdict_adds_up() {
        let mut verdict = Verdict::default();
        assert!(verdict.is_clean());
        for count in 1..=7 {
            verdict.add(|| format!("watcher {count}"), Fault::Missing(count));
        }
        verdict.add(|| unreachable!("there are examples enough"), Fault::Foreign);
        assert_eq!((verdict.missing, verdict.foreign_watchers, verdict.examples.len()), (28, 1, EXAMPLES_MAX));
        assert_eq!(verdict.examples[1], "watcher 2 lacks 2 events");
        assert!(!verdict.is_clean());
    }
}
