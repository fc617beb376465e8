//! The checker passes leases that were kept and ended correctly, and fails each planted lie.

use super::super::model::deletion;
use super::*;
use crate::history::{Answer, Pair};

fn record(id: u64, call: Micros, request: Request, outcome: Outcome) -> Record {
    Record { id, workload: "leases".into(), process: 1, node: 0, call, done: call + 1000, request, outcome }
}

fn ok(revision: i64, body: Body) -> Outcome {
    Outcome::Ok(Answer { revision, index: 1, body })
}

fn granted(id: u64, lease: i64) -> Record {
    record(id, SECOND, Request::Grant { ttl_seconds: 3 }, ok(1, Body::Granted { lease, ttl_seconds: 3 }))
}

fn revoke(lease: i64, outcome: Outcome) -> Record {
    record(9, 3 * SECOND, Request::Revoke { lease }, outcome)
}

fn pair(key: &str, revision: i64, lease: i64) -> Pair {
    let (created, modified) = (revision, revision);
    Pair { key: key.into(), value: format!("{key}{revision}"), lease, created, modified, version: 1 }
}

fn put(key: &str, revision: i64, lease: i64) -> Vec<Event> {
    vec![Event { deleted: false, pair: pair(key, revision, lease), before: None }]
}

fn gone(keys: &[&str], revision: i64) -> Vec<Event> {
    keys.iter().map(|key| deletion(key, revision, None)).collect()
}

/// Input of a test.
struct Given {
    records: Vec<Record>,
    log: Log,
    delivered_at: BTreeMap<i64, Micros>,
    left: BTreeSet<i64>,
}

/// Lease 7 is granted at 1 s for 3 s, kept alive at 2 s, and so lives until 5 s; it ends at 6 s,
/// with two keys, at revision 4. Lease 8 has two keys, and is revoked at 3 s, at revision 7.
fn legal() -> Given {
    let keep = |id, call, ttl_seconds| {
        record(id, call, Request::KeepAlive { lease: 7 }, ok(1, Body::KeptAlive { ttl_seconds }))
    };
    let records = vec![
        granted(1, 7),
        keep(2, 2 * SECOND, 3),
        // Too late: the lease had ended.
        keep(3, 9 * SECOND, 0),
        granted(4, 8),
        revoke(8, ok(7, Body::Revoked)),
    ];
    let log = Log::from([
        (2, put("a", 2, 7)),
        (3, put("b", 3, 7)),
        (4, gone(&["a", "b"], 4)),
        (5, put("c", 5, 8)),
        (6, put("d", 6, 8)),
        (7, gone(&["c", "d"], 7)),
    ]);
    Given { records, log, delivered_at: BTreeMap::from([(4, 6 * SECOND), (7, 3 * SECOND)]), left: BTreeSet::new() }
}

fn judge(change: impl FnOnce(&mut Given)) -> Vec<String> {
    let mut given = legal();
    change(&mut given);
    let findings = check(&given.records, &given.log, &given.delivered_at, &given.left);
    findings.whats().into_iter().map(str::to_owned).collect()
}

#[test]
fn what_is_legal_passes() {
    assert!(judge(|_| {}).is_empty());
    // A revocation of a lease without keys may have the revision of another write.
    let moved = judge(|given| {
        given.log.insert(6, put("c", 6, 0));
        given.log.insert(7, put("e", 7, 0));
    });
    assert!(moved.is_empty(), "{moved:?}");
    // The effect of an unanswered deletion is unknown.
    let unknown = judge(|given| {
        given.delivered_at.insert(4, 4 * SECOND);
        let request = Request::DeleteRange { prefix: String::new() };
        given.records.push(record(10, SECOND, request, Outcome::Unknown("?".into())));
    });
    assert!(unknown.is_empty(), "{unknown:?}");
    let unanswered = judge(|given| {
        given.delivered_at.insert(4, 4 * SECOND);
        given.records.push(revoke(7, Outcome::Unknown("?".into())));
    });
    assert!(unanswered.is_empty(), "{unanswered:?}");
}

#[test]
fn every_lie_is_found() {
    type Lie = fn(&mut Given);
    let lies: [(&str, Lie); 12] = [
        ("a lease ended early", |given| {
            given.delivered_at.insert(4, 4 * SECOND);
        }),
        ("a lease ended early", |given| {
            // A later deletion of a key by a client is no excuse for an earlier one.
            given.delivered_at.insert(4, 4 * SECOND);
            given.log.insert(8, put("a", 8, 0));
            given.log.insert(9, gone(&["a"], 9));
            let request = Request::Delete { key: "a".into() };
            given.records.push(record(10, 5 * SECOND, request, ok(9, Body::Deleted(1))));
        }),
        ("a lease that nobody keeps alive does not end", |given| {
            given.left.insert(7);
        }),
        ("a key outlived its lease", |given| {
            given.log.remove(&4);
        }),
        ("the end of a lease left some of its keys", |given| {
            given.log.insert(4, gone(&["a"], 4));
        }),
        ("a revoked lease kept its keys", |given| {
            given.log.remove(&7);
            given.records[4] = revoke(8, ok(6, Body::Revoked));
        }),
        ("a revoked lease kept its keys", |given| {
            given.log.insert(7, gone(&["d"], 7));
        }),
        ("a lease was revoked that had ended", |given| given.records.push(revoke(7, ok(5, Body::Revoked)))),
        ("a lease was revoked twice", |given| given.records.push(revoke(8, ok(7, Body::Revoked)))),
        ("a key hangs on a lease that had ended", |given| {
            given.log.insert(8, put("e", 8, 8));
        }),
        ("a key hangs on a lease that nobody was granted", |given| {
            given.log.insert(8, put("e", 8, 9));
        }),
        ("a key hangs on a lease that was granted later", |given| {
            given.log.insert(8, put("e", 8, 9));
            let body = Body::Granted { lease: 9, ttl_seconds: 3 };
            given.records.push(record(10, SECOND, Request::Grant { ttl_seconds: 3 }, ok(8, body)));
        }),
    ];
    for (what, lie) in lies {
        let found = judge(lie);
        assert!(found.iter().any(|found| found == what), "{what}: {found:?}");
    }
}
