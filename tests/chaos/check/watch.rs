//! The nine promises of a watch, one by one, for every watcher (spec: etcd §2.3, §8.2).
//!
//! Filter: only events of the range. Ordered: revisions never go back. Unique: no event twice.
//! Atomic: a revision's events come together. Reliable: no event is missing, changed or invented.
//! Resumable: none is missing between two streams either. Bookmarkable: a progress report is true.
//! Previous pair, and creation: both as in the log.

use std::collections::BTreeMap;

use super::model::Model;
use super::replay::Log;
use super::{Finding, Findings};
use crate::history::{Event, Note, Pair, WatchLog};

/// Judges every watcher. From the revision at which its first stream begins, each must have
/// received every event of its range up to and including the revision `until`, but for those that
/// were compacted; 0: the end is not judged. `compacted` is the highest revision that was requested
/// to be compacted: a stream that ended as compacted at a higher one is a finding.
pub(crate) fn check(watchers: &[&WatchLog], log: &Log, until: i64, compacted: i64) -> Findings {
    let mut findings = Findings::new("watch");
    let befores = befores(log);
    let mut events = 0;
    for watcher in watchers {
        events += watcher.deliveries.iter().map(|delivery| delivery.events.len()).sum::<usize>();
        Judge { watcher, log, befores: &befores, findings: &mut findings, compacted }.run(until);
    }
    findings.scope(format!("{} watchers, {events} events", watchers.len())).nothing_if(watchers.is_empty())
}

/// The pair before each change, by the change's revision and key. A creation has no row.
fn befores(log: &Log) -> BTreeMap<(i64, String), Pair> {
    let mut model = Model::default();
    let mut befores = BTreeMap::new();
    for (revision, events) in log {
        for event in events {
            if let Some(pair) = model.pairs.get(&event.pair.key) {
                befores.insert((*revision, event.pair.key.clone()), pair.clone());
            }
        }
        model.follow(events);
    }
    befores
}

struct Judge<'a> {
    watcher: &'a WatchLog,
    log: &'a Log,
    befores: &'a BTreeMap<(i64, String), Pair>,
    findings: &'a mut Findings,
    compacted: i64,
}

impl Judge<'_> {
    /// Judges all deliveries of the watcher, in their order.
    fn run(&mut self, until: i64) {
        // Everything below `next` was delivered, or was not requested.
        let mut next = None;
        let mut last_seen = 0;
        let mut promised = 0;
        // The revision at which the last stream began.
        let mut opened = 0;
        for delivery in &self.watcher.deliveries {
            match delivery.note {
                Note::Opened { from } => {
                    opened = from;
                    let expected = *next.get_or_insert(from);
                    if from > expected {
                        self.skipped(expected, from, "resumable: a stream was opened too late");
                    }
                }
                // It excuses missing events, so it must be justified.
                Note::Compacted { at } if at > self.compacted => {
                    let detail = format!("at {at}, and {} was the most that anybody asked for", self.compacted);
                    self.found("reliable: told as compacted what nobody compacted", detail);
                }
                Note::Compacted { at } if at <= opened => {
                    let detail = format!("at {at}, and the stream began at {opened}");
                    self.found("reliable: ended over a compaction of what was not asked for", detail);
                }
                Note::Compacted { at } => next = Some(next.map_or(at, |next| at.max(next))),
                Note::Progress => {
                    if let Some(expected) = next {
                        self.skipped(
                            expected,
                            delivery.revision + 1,
                            "bookmarkable: progress was told before an event",
                        );
                        next = Some(expected.max(delivery.revision + 1));
                    }
                    promised = promised.max(delivery.revision);
                }
                Note::Events => {
                    let mut batches: BTreeMap<i64, Vec<&Event>> = BTreeMap::new();
                    for event in &delivery.events {
                        let revision = event.pair.modified;
                        if revision < batches.last_key_value().map_or(last_seen, |(last, _)| *last) {
                            self.found("ordered: a revision came after a later one", format!("{revision}"));
                        }
                        batches.entry(revision).or_default().push(event);
                    }
                    for (revision, events) in batches {
                        if revision <= promised {
                            let detail = format!("revision {revision}, progress was {promised}");
                            self.found("bookmarkable: an event came after its revision was told as past", detail);
                        }
                        if revision == last_seen {
                            self.found("unique: a revision came twice, or in parts", format!("{revision}"));
                        }
                        if revision < opened {
                            let detail = format!("revision {revision}, and the stream began at {opened}");
                            self.found("reliable: an event from before the start", detail);
                        }
                        let expected = next.unwrap_or(revision);
                        self.skipped(expected, revision, "reliable: an event was left out");
                        self.one_revision(revision, opened, &events);
                        next = Some(expected.max(revision + 1));
                        last_seen = revision;
                    }
                }
            }
        }
        match next {
            Some(next) => self.skipped(next, until + 1, "reliable: the end was not delivered"),
            None => self.found("reliable: the watcher never got a stream", String::new()),
        }
    }

    fn found(&mut self, what: &str, detail: String) {
        self.findings.add(Finding::new(what, format!("watcher {}: {detail}", self.watcher.name)));
    }

    /// Adds the finding `what` if the log has an event that this watcher wants at a revision in
    /// `from..to`.
    fn skipped(&mut self, from: i64, to: i64, what: &str) {
        if from >= to {
            return;
        }
        let missing = self.log.range(from..to).find(|(_, events)| events.iter().any(|event| self.wants(event)));
        if let Some((revision, _)) = missing {
            self.found(what, format!("revision {revision}, where all before {from} had come and {to} was next"));
        }
    }

    /// Whether the event is of a key that the watcher asked for.
    fn wants(&self, event: &Event) -> bool {
        let key = &event.pair.key;
        if self.watcher.prefix { key.starts_with(&self.watcher.key) } else { *key == self.watcher.key }
    }

    /// Compares the events of one revision with the log. `opened` is the start revision of their
    /// stream. If that revision is compacted, its own events may lack their previous pairs.
    fn one_revision(&mut self, revision: i64, opened: i64, events: &[&Event]) {
        if let Some(event) = events.iter().find(|event| !self.wants(event)) {
            self.found("filter: an event of another key", format!("revision {revision}: {}", event.pair.key));
        }
        let Some(logged) = self.log.get(&revision) else {
            return self.found("reliable: an event that is not in the log", format!("revision {revision}"));
        };
        let wanted: Vec<&Event> = logged.iter().filter(|event| self.wants(event)).collect();
        let mut got = events.to_vec();
        got.sort_by(|a, b| a.pair.key.cmp(&b.pair.key));
        let mut keys: Vec<&str> = got.iter().map(|event| event.pair.key.as_str()).collect();
        keys.dedup();
        if keys.len() < got.len() {
            return self.found("unique: a key came twice in one revision", format!("revision {revision}"));
        }
        let same = wanted.len() == got.len()
            && wanted.iter().zip(&got).all(|(a, b)| a.deleted == b.deleted && a.pair.key == b.pair.key);
        if !same {
            let detail = format!("revision {revision}: got {} of {} events", got.len(), wanted.len());
            return self.found("atomic: a revision did not come whole", detail);
        }
        for (logged, got) in wanted.iter().zip(&got) {
            let before = self.befores.get(&(revision, got.pair.key.clone()));
            let created = got.pair.created == got.pair.modified;
            if !got.deleted && created != before.is_none() {
                self.found("creation: told wrongly", format!("revision {revision}, {}", got.pair.key));
            }
            if logged.pair != got.pair {
                let detail = format!("revision {revision}: the log has {:?}, got {:?}", logged.pair, got.pair);
                self.found("reliable: an event differs from the log", detail);
            }
            // As in etcd, the pair before a change exactly at the compaction point may be gone.
            let may_be_gone = revision == opened && revision <= self.compacted && got.before.is_none();
            if self.watcher.wants_before && got.before.as_ref() != before && !may_be_gone {
                let detail = format!("revision {revision}: expected {before:?}, got {:?}", got.before);
                self.found("previous pair: told wrongly", detail);
            }
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
