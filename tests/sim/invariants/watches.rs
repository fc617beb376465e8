//! Watches: a watcher gets every revision of its keys once, in order and complete, with the
//! previous pairs; revisions reported to it as compacted may be missing.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::watchers::{DeliveredRevision, Watched};
use super::{Evidence, Replay};
use headwater_types::{ChangeKind, KeyValue};

/// The pair after a change (`None` for a deletion), and the pair before it (`None` for a creation).
type Change<'a> = (Option<&'a KeyValue>, Option<&'a KeyValue>);

pub(super) fn check(evidence: &Evidence, replay: &Replay) -> Vec<String> {
    evidence.watched.iter().flat_map(|watched| check_one(watched, replay)).collect()
}

fn check_one(watched: &Watched, replay: &Replay) -> Vec<String> {
    let who = format!("watches: watcher {}", watched.number);
    let mut findings = Vec::new();
    for pair in watched.delivered.windows(2) {
        if pair[0].revision >= pair[1].revision {
            findings.push(format!("{who} was told {} after {}", pair[1].revision, pair[0].revision));
        }
    }
    let delivered: BTreeMap<i64, &DeliveredRevision> =
        watched.delivered.iter().map(|delivered| (delivered.revision.get(), delivered)).collect();
    for revision in watched.from.get()..=replay.model.revision {
        let wanted = changes(watched, replay, revision);
        let is_compacted = watched.gaps.iter().any(|(from, to)| (from.get()..to.get()).contains(&revision));
        match delivered.get(&revision) {
            None if wanted.is_empty() || is_compacted => {}
            None => findings.push(format!("{who} was never told of revision {revision}: {wanted:?}")),
            Some(delivered) => findings.extend(differences(&who, delivered, &wanted)),
        }
    }
    findings
}

fn changes<'a>(watched: &Watched, replay: &'a Replay, revision: i64) -> BTreeMap<&'a Bytes, Change<'a>> {
    let (before, after) = (replay.at(revision - 1), replay.at(revision));
    let keys = before.keys().chain(after.keys()).filter(|key| watched.range.contains(key));
    keys.map(|key| (key, (after.get(key), before.get(key)))).filter(|(_, (after, before))| after != before).collect()
}

fn differences(who: &str, delivered: &DeliveredRevision, wanted: &BTreeMap<&Bytes, Change<'_>>) -> Vec<String> {
    let mut findings = Vec::new();
    let revision = delivered.revision;
    if delivered.changes.len() != wanted.len() {
        findings
            .push(format!("{who} was told of revision {revision}: {:?}, and should: {wanted:?}", delivered.changes));
    }
    for (event, prev) in &delivered.changes {
        let Some((after, before)) = wanted.get(&event.kv.key) else {
            findings.push(format!("{who} was told of a change at revision {revision} that nobody made: {event:?}"));
            continue;
        };
        let is_right = match after {
            Some(kv) => event.kind == ChangeKind::Put && event.kv == **kv,
            // Deleted by a client, or with its lease.
            None => event.kind != ChangeKind::Put && event.kv.mod_revision == revision,
        };
        if !is_right {
            findings.push(format!("{who} was told {event:?} at revision {revision}, and should {after:?}"));
        }
        // The previous pair may be missing, if it was compacted.
        if prev.as_ref().is_some_and(|prev| Some(prev) != *before) {
            findings.push(format!("{who} was told {prev:?} before revision {revision}, and should {before:?}"));
        }
    }
    findings
}
