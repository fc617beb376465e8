//! The members' Raft logs, read from their disks after the run: they agree, and a replay through
//! the model makes exactly the changes that watchers received, at the same revisions (spec: etcd
//! §8.4).
//!
//! The other checkers judge by the log of changes, which comes from the server's watches; this one
//! confirms that log from the disk. Replay needs the Raft log from its first entry on. If the first
//! entries were purged (`--whole-log` keeps them), only agreement of the members is judged.

use std::collections::{BTreeMap, BTreeSet};

use super::logged_rights::LoggedRights;
use super::model::{Model, deletion};
use super::replay::Log;
use super::{Finding, Findings};
use crate::history::{Event, Record, Request, Step};
use crate::raft_log::{LogEntry, LoggedCommand};
use headwater_types::commit::CommitKeyId;

/// The first entry of a cluster's log has this index or the one after it.
const FIRST: u64 = 0;

/// Judges the logs, one for each member. If the merged log is whole, its entries are replayed up to
/// the first that cannot be judged, and those before it count as judged. If its beginning or
/// another entry is missing, none counts.
pub(crate) fn check(logs: &[(usize, Vec<LogEntry>)], records: &[Record], log: &Log) -> Findings {
    let mut findings = Findings::new("raft log");
    let entries = agree(logs, &mut findings);
    let members = logs.len();
    if !is_whole(&entries) {
        return findings.scope(format!("the last {} entries of {members} members", entries.len()));
    }
    let (model, leases, rights, committed, revisions) = Default::default();
    let mut replay = Replay { model, leases, rights, revision: 1, committed, revisions };
    for entry in entries.values() {
        if !replay.step(entry, log, &mut findings) {
            break;
        }
    }
    if let Some((last, _)) = log.last_key_value().filter(|(last, _)| replay.revision < **last && findings.count == 0) {
        let detail = format!("replay ends at revision {}, watchers were told of {last}", replay.revision);
        findings.add(Finding::new("a change is in no member's log", detail));
    }
    replay.answers(records, &mut findings);
    let judged = replay.revisions.len();
    let scope = match entries.len() {
        all if all == judged => format!("all {all} entries of {members} members"),
        all => format!("the first {judged} of {all} entries of {members} members"),
    };
    findings.scope(scope).judged(judged)
}

/// Merges the logs of all members, by log index. Two different entries at one index are a finding;
/// the entry of the member that comes first in `logs` is kept.
fn agree<'a>(logs: &'a [(usize, Vec<LogEntry>)], findings: &mut Findings) -> BTreeMap<u64, &'a LogEntry> {
    let mut merged: BTreeMap<u64, (usize, &LogEntry)> = BTreeMap::new();
    for (member, entries) in logs {
        for entry in entries {
            let (other, known) = *merged.entry(entry.index).or_insert((*member, entry));
            if known != entry {
                let detail = format!(
                    "entry {}: node {} has {:?} of term {}, node {} has {:?} of term {}",
                    entry.index,
                    other + 1,
                    known.ask,
                    known.term,
                    member + 1,
                    entry.ask,
                    entry.term
                );
                findings.add(Finding::new("two members have different entries at one index", detail));
            }
        }
    }
    merged.into_iter().map(|(index, (_, entry))| (index, entry)).collect()
}

/// Whether the log begins with the cluster's first entry and has no gap. False for an empty log.
fn is_whole(entries: &BTreeMap<u64, &LogEntry>) -> bool {
    let (Some((first, _)), Some((last, _))) = (entries.first_key_value(), entries.last_key_value()) else {
        return false;
    };
    *first <= FIRST + 1 && last - first + 1 == entries.len() as u64
}

/// The state of the model after the entries so far.
struct Replay {
    model: Model,
    /// Leases that exist, with the log index of the entry that granted each.
    leases: BTreeMap<i64, u64>,
    /// Users and roles. They decide which entries are refused for lack of rights.
    rights: LoggedRights,
    revision: i64,
    /// Idempotency keys of the commits that took effect.
    committed: BTreeSet<CommitKeyId>,
    /// The store's revision after each entry, by log index.
    revisions: BTreeMap<u64, i64>,
}

impl Replay {
    /// Applies one entry and compares its changes with those in `log`. False if later entries
    /// cannot be judged: the changes differ, or `log` ends before their revision.
    fn step(&mut self, entry: &LogEntry, log: &Log, findings: &mut Findings) -> bool {
        let next = self.revision + 1;
        let events = match &entry.ask {
            _ if self.rights.refuses(entry) => Vec::new(),
            LoggedCommand::Client(request) if self.names_no_lease(request) => Vec::new(),
            LoggedCommand::Client(request) => self.model.apply(request, next).events,
            LoggedCommand::Commit { once: Some(once), .. } if self.committed.contains(once) => Vec::new(),
            LoggedCommand::Commit { keys, once } => {
                let events = self.model.apply(keys, next).events;
                if !events.is_empty() {
                    self.committed.extend(once);
                }
                events
            }
            LoggedCommand::Grant { lease } => {
                self.leases.entry(*lease).or_insert(entry.index);
                Vec::new()
            }
            LoggedCommand::Revoke { lease } => self.end(*lease, next),
            LoggedCommand::Expire { lease, granted, term } => match self.leases.get(lease) {
                Some(made) if made == granted && *term == entry.term => self.end(*lease, next),
                Some(_) | None => Vec::new(),
            },
            LoggedCommand::Auth(change) => {
                self.rights.apply(change);
                Vec::new()
            }
            LoggedCommand::Other => Vec::new(),
        };
        if !events.is_empty() {
            if log.last_key_value().is_none_or(|(last, _)| next > *last) {
                // The end of the log: no watcher received it, and perhaps it was never committed.
                return false;
            }
            self.revision = next;
            let delivered = log.get(&next).map_or(&[][..], Vec::as_slice);
            let same = delivered.len() == events.len()
                && delivered.iter().zip(&events).all(|(a, b)| a.deleted == b.deleted && a.pair == b.pair);
            if !same {
                let detail = format!(
                    "entry {}, {:?}: makes {events:?} at revision {next}, watchers were told {delivered:?}",
                    entry.index, entry.ask
                );
                findings.add(Finding::new("the Raft log makes another change than watchers were told", detail));
                return false;
            }
        }
        self.revisions.insert(entry.index, self.revision);
        true
    }

    /// Whether a request attaches a key to a lease that does not exist: then it is refused.
    fn names_no_lease(&self, request: &Request) -> bool {
        let missing = |lease: i64| lease != 0 && !self.leases.contains_key(&lease);
        match request {
            Request::Put { lease, .. } | Request::Replace { lease, .. } => missing(*lease),
            Request::Txn { when, then, or_else } => {
                let taken = if self.model.all_hold(when) { then } else { or_else };
                taken.iter().any(|step| matches!(step, Step::Put { lease, .. } if missing(*lease)))
            }
            _ => false,
        }
    }

    /// Ends a lease; returns the deletions of its keys, with `revision`. They are empty if the
    /// lease does not exist or has no keys.
    fn end(&mut self, lease: i64, revision: i64) -> Vec<Event> {
        if self.leases.remove(&lease).is_none() {
            return Vec::new();
        }
        let keys: Vec<String> =
            self.model.pairs.values().filter(|pair| pair.lease == lease).map(|pair| pair.key.clone()).collect();
        let gone = keys.into_iter().map(|key| {
            let before = self.model.pairs.remove(&key);
            deletion(&key, revision, before)
        });
        gone.collect()
    }

    /// Checks the coordinates of every answer whose log index was replayed. A read must name the
    /// store's revision after the entry at that index. Any other answer may name a lower one.
    fn answers(&self, records: &[Record], findings: &mut Findings) {
        for record in records {
            let Some(answer) = record.outcome.answer() else { continue };
            // The answer to a keep-alive names no index.
            let Some(revision) = self.revisions.get(&answer.index).filter(|_| answer.index > 0) else { continue };
            let detail = || format!("revision {} from index {}, which makes {revision}", answer.revision, answer.index);
            match record.request {
                Request::Read { .. } if answer.revision != *revision => {
                    findings.add(Finding::of(record, "an answer names another index than it comes from", detail()));
                }
                // The index of the answer may be that of a later entry than its revision, never of
                // an earlier one.
                _ if answer.revision > *revision => {
                    findings.add(Finding::of(record, "an answer names an index before its revision", detail()));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "raft_tests.rs"]
mod tests;
