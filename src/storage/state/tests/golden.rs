//! The bytes that a few commands leave in every family. They are public: a change here is a change
//! of format.

use bytes::Bytes;

use super::bed::*;
use crate::state::{AppliedState, StateReader, Table};
use headwater_types::{KeyValue, Lease, LeaseId, LogIndex, Revision, StoreEpoch, Term};

#[test]
fn bytes_on_disk_are_pinned() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let mut txn = db.begin().unwrap();
    txn.set_lease(LeaseId(7), Some(Lease { granted: LogIndex(1), ttl_seconds: 60, due_ms: Some(128) }));
    txn.set_lease_clock(5);
    txn.begin_command(LogIndex(1), 128);
    let kv = KeyValue {
        key: Bytes::from_static(b"a\0"),
        value: Bytes::from_static(b"xyz"),
        create_revision: Revision(2),
        mod_revision: Revision(2),
        version: 1,
        lease: LeaseId(7),
    };
    txn.put(Table::Kv, kv, None);
    txn.set_revision(Revision(2));
    txn.end_command();
    txn.set_epoch(StoreEpoch(9));
    let membership = Some(Bytes::from_static(b"M"));
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(1), membership });
    assert!(txn.lookup(Table::Kv, b"a", crate::state::NEWEST).unwrap().is_none());
    txn.commit().unwrap();
    bed.commit(2, &[("a\0", None)]);
    bed.compact(3, 2);
    db.reclaim_step(100).unwrap();

    let families = db.families();
    let all = [families.history, families.versions, families.revisions, families.index, families.meta];
    let mut found = Vec::new();
    for (family, handle) in (0u8..).zip(all) {
        let mut iter = db.db.raw_iterator_cf(handle);
        iter.seek_to_first();
        while let Some((key, value)) = iter.item() {
            found.push((family, key.to_vec(), value.to_vec()));
            iter.next();
        }
    }
    let want: [(u8, &[u8], &[u8]); 13] = [
        (0, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[1, 2, 1, 128, 1]),
        (0, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], b"\x01\x01\x01\x02\x02\x01\x07\x02a\0xyz"),
        (0, &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0], &[1, 3, 1, 234, 7]),
        (0, &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1], b"\x01\x01\x02\x00\x03\x00\x00\x02a\0"),
        (1, b"\x01a\x00\xff\x00\x01\xff\xff\xff\xff\xff\xff\xff\xfd", &[1, 1, 1, 0, 0, 3, 0, 0]),
        (1, b"\x01a\x00\xff\x00\x01\xff\xff\xff\xff\xff\xff\xff\xfe", &[1, 0, 1, 3, 2, 2, 1, 7]),
        (2, &[0, 0, 0, 0, 0, 0, 0, 2], &[0, 0, 0, 0, 0, 0, 0, 1]),
        (2, &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 0, 0, 0, 0, 0, 2]),
        (4, &[1], &[3, 7, 0, 1, 3, 3, 2, 1, 9, 0, 0]),
        (4, &[2], b"M"),
        (4, &[3], &[1, 1, 2, 0]),
        (4, &[4, 0, 0, 0, 0, 0, 0, 0, 7], &[1, 1, 1, 60, 128, 1]),
        (4, &[5], &[1, 5]),
    ];
    let want: Vec<_> = want.into_iter().map(|(family, key, value)| (family, key.to_vec(), value.to_vec())).collect();
    assert_eq!(found, want);
}
