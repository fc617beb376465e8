//! Watches: a watcher gets every revision of its keys once, in order and whole, with the previous
//! pairs; except revisions reported to it as compacted.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::watchers::{Told, Watched};
use super::{Evidence, Replay};
use headwater_types::{ChangeKind, KeyValue};

/// The pair after a change, or nothing, and the pair before it.
type Change<'a> = (Option<&'a KeyValue>, Option<&'a KeyValue>);

pub(super) fn check(evidence: &Evidence, replay: &Replay) -> Vec<String> {
    evidence.watched.iter().flat_map(|watched| check_one(watched, replay)).collect()
}

fn check_one(watched: &Watched, replay: &Replay) -> Vec<String> {
    let who = format!("watches: watcher {}", watched.number);
    let mut findings = Vec::new();
    for pair in watched.told.windows(2) {
        if pair[0].revision >= pair[1].revision {
            findings.push(format!("{who} was told {} after {}", pair[1].revision, pair[0].revision));
        }
    }
    let told: BTreeMap<i64, &Told> = watched.told.iter().map(|told| (told.revision.get(), told)).collect();
    for revision in watched.from.get()..=replay.model.revision {
        let wanted = changes(watched, replay, revision);
        let is_compacted = watched.gaps.iter().any(|(from, to)| (from.get()..to.get()).contains(&revision));
        match told.get(&revision) {
            None if wanted.is_empty() || is_compacted => {}
            None => findings.push(format!("{who} was never told of revision {revision}: {wanted:?}")),
            Some(told) => findings.extend(differences(&who, told, &wanted)),
        }
    }
    findings
}

fn changes<'a>(watched: &Watched, replay: &'a Replay, revision: i64) -> BTreeMap<&'a Bytes, Change<'a>> {
    let (before, after) = (replay.at(revision - 1), replay.at(revision));
    let keys = before.keys().chain(after.keys()).filter(|key| watched.range.contains(key));
    keys.map(|key| (key, (after.get(key), before.get(key)))).filter(|(_, (after, before))| after != before).collect()
}

fn differences(who: &str, told: &Told, wanted: &BTreeMap<&Bytes, Change<'_>>) -> Vec<String> {
    let mut findings = Vec::new();
    let revision = told.revision;
    if told.changes.len() != wanted.len() {
        findings.push(format!("{who} was told of revision {revision}: {:?}, and should: {wanted:?}", told.changes));
    }
    for (event, prev) in &told.changes {
        let Some((after, before)) = wanted.get(&event.kv.key) else {
            findings.push(format!("{who} was told of a change at revision {revision} that nobody made: {event:?}"));
            continue;
        };
        let is_right = match after {
            Some(kv) => event.kind == ChangeKind::Put && event.kv == **kv,
            // Removed by a client, or with its lease.
            None => event.kind != ChangeKind::Put && event.kv.mod_revision == revision,
        };
        if !is_right {
            findings.push(format!("{who} was told {event:?} at revision {revision}, and should {after:?}"));
        }
        // A pair that was compacted is absent.
        if prev.as_ref().is_some_and(|prev| Some(prev) != *before) {
            findings.push(format!("{who} was told {prev:?} before revision {revision}, and should {before:?}"));
        }
    }
    findings
}
