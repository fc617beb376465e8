//! Leases, by the log of changes and by the clients' clock: none ends early, every one that is not
//! kept alive ends, and its end removes exactly its attached keys, in one revision.
//!
//! A lease lives at least its time to live from the moment at which its last successful grant or
//! keep-alive was sent. Its keys were gone at the latest when the first watcher received their
//! removal. A lease whose removal was received before that time ended early. The answer to a
//! revocation names the revision at which the lease was gone: no key may be attached to it then or
//! later.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::replay::{Log, may_only_delete};
use super::{Finding, Findings};
use crate::history::{Body, Event, Micros, Outcome, Record, Request};

const SECOND: Micros = 1_000_000;

/// Requests about one lease, and its end.
#[derive(Default)]
struct Lease<'a> {
    /// The granted time to live.
    ttl: Micros,
    /// Time at which the last successful grant or keep-alive of the lease was sent.
    alive_at: Micros,
    /// The store's revision when the lease was granted.
    granted: i64,
    /// Answered revocations, with the revision of each answer.
    revoked: Vec<(i64, &'a Record)>,
    /// Whether a revocation got no answer.
    perhaps_revoked: bool,
    /// The revision at which the log or a revocation shows that the lease was gone; `None` if
    /// neither does so far.
    ended: Option<i64>,
}

/// Judges every lease. `delivered_at` has the time at which each revision was first delivered to a
/// watcher. `left` has the leases that still exist at the end, after the time in which all must
/// have run out.
pub(crate) fn check(
    records: &[Record],
    log: &Log,
    delivered_at: &BTreeMap<i64, Micros>,
    left: &BTreeSet<i64>,
) -> Findings {
    let mut findings = Findings::new("leases");
    let mut leases = asked(records, &mut findings);
    let mut revocations: BTreeMap<i64, Vec<(i64, &Record)>> = BTreeMap::new();
    for (lease, known) in &leases {
        for (revision, record) in &known.revoked {
            revocations.entry(*revision).or_default().push((*lease, *record));
        }
    }
    let clients = Clients::of(records, log);
    let mut attached = Attached::default();
    let mut ran_out = 0;
    for (revision, events) in log {
        if let Some(lease) = attached.ends(events)
            && !clients.may_have_made(*revision, events)
            && let Some(known) = leases.get_mut(&lease)
        {
            let hung = attached.keys.get(&lease).map_or(0, HashSet::len);
            if hung != events.len() {
                let detail = format!("lease {lease:x}, revision {revision}: {} of {hung} are gone", events.len());
                findings.add(Finding::new("the end of a lease left some of its keys", detail));
            }
            known.ended = Some(*revision);
            if known.revoked.is_empty() && !known.perhaps_revoked {
                ran_out += 1;
                early(lease, known, *revision, delivered_at, &mut findings);
            }
        }
        for event in events {
            if !event.deleted && event.pair.lease != 0 {
                hangs(event, &leases, &mut findings);
            }
            attached.follow(event);
        }
        for (lease, record) in revocations.remove(revision).unwrap_or_default() {
            let keys = attached.keys.get(&lease).into_iter().flatten().count();
            if keys > 0 {
                let detail = format!("lease {lease:x}, revision {revision}: {keys} keys hang on it");
                findings.add(Finding::of(record, "a revoked lease kept its keys", detail));
            }
            let Some(known) = leases.get_mut(&lease) else { continue };
            if let Some(ended) = known.ended.replace(*revision).filter(|ended| ended != revision) {
                let detail = format!("lease {lease:x} ended at revision {ended}, the answer tells {revision}");
                findings.add(Finding::of(record, "a lease was revoked that had ended", detail));
            }
        }
    }
    for lease in left.iter().filter(|lease| leases.contains_key(*lease)) {
        findings.add(Finding::new("a lease that nobody keeps alive does not end", format!("lease {lease:x}")));
    }
    for (lease, keys) in attached.keys.iter().filter(|(lease, _)| !left.contains(*lease)) {
        for key in keys {
            findings.add(Finding::new("a key outlived its lease", format!("{key}, lease {lease:x}")));
        }
    }
    findings.scope(format!("{} leases, {ran_out} ran out", leases.len())).judged(ran_out).nothing_if(leases.is_empty())
}

/// The leases of all answered grants, with the answered requests about each, and whether a
/// revocation of it got no answer. A second answered revocation of one lease is a finding.
fn asked<'a>(records: &'a [Record], findings: &mut Findings) -> BTreeMap<i64, Lease<'a>> {
    let mut leases: BTreeMap<i64, Lease<'a>> = BTreeMap::new();
    for record in records {
        if let (Request::Grant { .. }, Outcome::Ok(answer)) = (&record.request, &record.outcome)
            && let Body::Granted { lease, ttl_seconds } = answer.body
        {
            let ttl = ttl_seconds as Micros * SECOND;
            let (alive_at, granted) = (record.call, answer.revision);
            leases.insert(lease, Lease { ttl, alive_at, granted, ..Lease::default() });
        }
    }
    // A loop of its own: records are in the order in which they ended, and a request about a lease
    // may have ended before its grant.
    for record in records {
        match (&record.request, &record.outcome) {
            (Request::KeepAlive { lease }, Outcome::Ok(answer)) => {
                if let Body::KeptAlive { ttl_seconds: 1.. } = answer.body
                    && let Some(known) = leases.get_mut(lease)
                {
                    known.alive_at = known.alive_at.max(record.call);
                }
            }
            (Request::Revoke { lease }, Outcome::Ok(answer)) => {
                let Some(known) = leases.get_mut(lease) else { continue };
                if let Some((other, _)) = known.revoked.first() {
                    let detail = format!("lease {lease:x}, revisions {other} and {}", answer.revision);
                    findings.add(Finding::of(record, "a lease was revoked twice", detail));
                }
                known.revoked.push((answer.revision, record));
            }
            // The revocation may have ended the lease.
            (Request::Revoke { lease }, Outcome::Unknown(_)) => {
                if let Some(known) = leases.get_mut(lease) {
                    known.perhaps_revoked = true;
                }
            }
            _ => {}
        }
    }
    leases
}

/// Adds a finding if `revision`, at which the lease was gone, was delivered before the lease's time
/// had passed. None if no watcher received it.
fn early(lease: i64, known: &Lease<'_>, revision: i64, delivered_at: &BTreeMap<i64, Micros>, findings: &mut Findings) {
    let Some(delivered_at) = delivered_at.get(&revision) else { return };
    if *delivered_at < known.alive_at + known.ttl {
        let early = (known.alive_at + known.ttl - delivered_at) as f64 / 1e6;
        let detail = format!("lease {lease:x}, {early:.3} s before its time, revision {revision}");
        findings.add(Finding::new("a lease ended early", detail));
    }
}

/// Adds a finding if a put attaches its key to a lease that does not exist at that revision.
fn hangs(event: &Event, leases: &BTreeMap<i64, Lease<'_>>, findings: &mut Findings) {
    let (key, lease, revision) = (&event.pair.key, event.pair.lease, event.pair.modified);
    let what = match leases.get(&lease) {
        None => "a key hangs on a lease that nobody was granted",
        Some(known) if revision <= known.granted => "a key hangs on a lease that was granted later",
        Some(known) if known.ended.is_some() => "a key hangs on a lease that had ended",
        Some(_) => return,
    };
    findings.add(Finding::new(what, format!("{key}, lease {lease:x}, revision {revision}")));
}

/// Keys of each lease, and the lease of each key, as of the last followed revision.
#[derive(Default)]
struct Attached {
    keys: BTreeMap<i64, HashSet<String>>,
    lease: HashMap<String, i64>,
}

impl Attached {
    /// The lease that the changes of one revision may have ended: all are deletions of keys
    /// attached to it. `None` for other changes.
    fn ends(&self, events: &[Event]) -> Option<i64> {
        let lease = *self.lease.get(&events.first()?.pair.key)?;
        let of_it = |event: &Event| event.deleted && self.lease.get(&event.pair.key) == Some(&lease);
        events.iter().all(of_it).then_some(lease)
    }

    fn follow(&mut self, event: &Event) {
        let key = &event.pair.key;
        if let Some(lease) = self.lease.remove(key)
            && let Some(keys) = self.keys.get_mut(&lease)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&lease);
            }
        }
        if !event.deleted && event.pair.lease != 0 {
            self.lease.insert(key.clone(), event.pair.lease);
            self.keys.entry(event.pair.lease).or_default().insert(key.clone());
        }
    }
}

/// The changes that clients made, or may have made; the end of a lease is none of them. `made` has
/// the revisions of acknowledged writes and of all puts, `unknown` the deletions and transactions
/// of unknown outcome.
struct Clients<'a> {
    made: HashSet<i64>,
    unknown: Vec<&'a Request>,
}

impl<'a> Clients<'a> {
    fn of(records: &'a [Record], log: &Log) -> Self {
        let answered = records.iter().filter(|record| record.has_written());
        let mut made: HashSet<i64> = answered.filter_map(|record| Some(record.outcome.answer()?.revision)).collect();
        // A revision that also writes a value is no end of a lease.
        made.extend(log.iter().filter(|(_, events)| events.iter().any(|event| !event.deleted)).map(|(at, _)| *at));
        let unknown = records.iter().filter(|record| matches!(record.outcome, Outcome::Unknown(_)));
        let deletes = |request: &&Request| {
            matches!(request, Request::Delete { .. } | Request::DeleteRange { .. } | Request::Txn { .. })
        };
        Self { made, unknown: unknown.map(|record| &record.request).filter(deletes).collect() }
    }

    fn may_have_made(&self, revision: i64, events: &[Event]) -> bool {
        let covers = |request: &&Request| events.iter().all(|event| may_only_delete(request, &event.pair.key));
        self.made.contains(&revision) || self.unknown.iter().any(covers)
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
