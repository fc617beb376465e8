//! Leases by the clients' clock: none ends early, every one that is not kept alive ends, and takes its key along.
//!
//! A lease lives at least its time to live from the moment at which the last request that kept it alive was sent. Its key
//! was gone at the latest when the first watcher heard of it. If that came first, the lease ended early.

use std::collections::{BTreeMap, BTreeSet};

use super::replay::Log;
use super::{Finding, Findings};
use crate::history::{Body, Micros, Outcome, Record, Request, Step};

const SECOND: Micros = 1_000_000;

/// What is known of one lease.
#[derive(Default)]
struct Lease {
    ttl: Micros,
    /// When the last request was sent that is known to have kept it alive.
    alive_at: Micros,
    revoked: bool,
}

/// Judges every lease. `heard` says when a revision was first delivered to a watcher; `left` is what leases there are
/// after every time to live has passed with nobody keeping one alive.
pub(crate) fn check(records: &[Record], log: &Log, heard: &BTreeMap<i64, Micros>, left: &BTreeSet<i64>) -> Findings {
    let mut findings = Findings::new("leases");
    let mut leases: BTreeMap<i64, Lease> = BTreeMap::new();
    for record in records {
        match (&record.request, &record.outcome) {
            (Request::Grant { .. }, Outcome::Ok(answer)) => {
                if let Body::Granted { lease, ttl_seconds } = answer.body {
                    let ttl = ttl_seconds as Micros * SECOND;
                    leases.insert(lease, Lease { ttl, alive_at: record.call, revoked: false });
                }
            }
            (Request::KeepAlive { lease }, Outcome::Ok(answer)) => {
                if let Body::KeptAlive { ttl_seconds: 1.. } = answer.body
                    && let Some(known) = leases.get_mut(lease)
                {
                    known.alive_at = known.alive_at.max(record.call);
                }
            }
            // Whether or not it was answered: it may have ended the lease.
            (Request::Revoke { lease }, Outcome::Ok(_) | Outcome::Unknown(_)) => {
                leases.entry(*lease).or_default().revoked = true;
            }
            _ => {}
        }
    }
    let mut ended = 0;
    let mut attached: BTreeMap<&str, i64> = BTreeMap::new();
    let deleted_by_clients = deletes(records);
    for (revision, events) in log {
        for event in events {
            let key = event.pair.key.as_str();
            if !event.deleted {
                attached.insert(key, event.pair.lease);
                continue;
            }
            let Some(lease) = attached.remove(key).filter(|lease| *lease != 0) else { continue };
            let (Some(known), Some(heard)) = (leases.get(&lease), heard.get(revision)) else { continue };
            if known.revoked || deleted_by_clients.contains(key) {
                continue;
            }
            ended += 1;
            if *heard < known.alive_at + known.ttl {
                let early = (known.alive_at + known.ttl - heard) as f64 / 1e6;
                findings.add(Finding::new(
                    "a lease ended early",
                    format!("lease {lease:x}, {early:.3} s before its time, revision {revision}"),
                ));
            }
        }
    }
    for lease in left.iter().filter(|lease| leases.contains_key(*lease)) {
        findings.add(Finding::new("a lease that nobody keeps alive does not end", format!("lease {lease:x}")));
    }
    for (key, lease) in attached.iter().filter(|(_, lease)| **lease != 0 && !left.contains(*lease)) {
        findings.add(Finding::new("a key outlived its lease", format!("{key}, lease {lease:x}")));
    }
    findings.scope(format!("{} leases, {ended} ran out", leases.len())).judged(ended).nothing_if(leases.is_empty())
}

/// Keys that a client may have deleted itself.
fn deletes(records: &[Record]) -> BTreeSet<&str> {
    let mut keys = BTreeSet::new();
    for record in records {
        match &record.request {
            Request::Delete { key } => {
                keys.insert(key.as_str());
            }
            Request::Txn { then, or_else, .. } => {
                for step in then.iter().chain(or_else) {
                    if let Step::Delete { key } = step {
                        keys.insert(key.as_str());
                    }
                }
            }
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::super::model::deletion;
    use super::*;
    use crate::history::{Answer, Event, Pair};

    fn record(id: u64, call: Micros, request: Request, body: Body) -> Record {
        let outcome = Outcome::Ok(Answer { revision: 1, index: 1, body });
        Record { id, workload: "lease".into(), process: 1, node: 0, call, done: call + 1000, request, outcome }
    }

    /// Granted at 1 s for 3 s, kept alive at 2 s: lives until 5 s.
    fn records() -> Vec<Record> {
        vec![
            record(1, SECOND, Request::Grant { ttl_seconds: 3 }, Body::Granted { lease: 7, ttl_seconds: 3 }),
            record(2, 2 * SECOND, Request::KeepAlive { lease: 7 }, Body::KeptAlive { ttl_seconds: 3 }),
            // Too late: it was gone by then.
            record(3, 9 * SECOND, Request::KeepAlive { lease: 7 }, Body::KeptAlive { ttl_seconds: 0 }),
        ]
    }

    fn log() -> Log {
        let pair = Pair { key: "l".into(), value: "v".into(), lease: 7, created: 2, modified: 2, version: 1 };
        Log::from([
            (2, vec![Event { deleted: false, pair: pair.clone(), before: None }]),
            (3, vec![deletion("l", 3, Some(pair))]),
        ])
    }

    #[test]
    fn early_late_and_orphaned_are_found() {
        for (heard, left, log, wanted) in [
            (6 * SECOND, vec![], log(), None),
            (4 * SECOND, vec![], log(), Some("a lease ended early")),
            (6 * SECOND, vec![7], log(), Some("a lease that nobody keeps alive does not end")),
            (6 * SECOND, vec![], log().into_iter().take(1).collect(), Some("a key outlived its lease")),
        ] {
            let findings = check(&records(), &log, &BTreeMap::from([(3, heard)]), &left.into_iter().collect());
            assert_eq!(findings.whats().first().copied(), wanted);
        }
    }
}
