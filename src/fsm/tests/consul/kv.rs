//! The table of `/v1/kv`, row by row, and the effect of an etcd client's writes on its keys.

use super::*;
use headwater_types::consul::SessionRefusal;
use headwater_types::{LeaseChoice, LogIndex, Put, Refusal};

#[test]
fn a_path_is_a_key_of_the_kv_face_and_moves_its_revision() {
    let mut bed = TestBed::new();
    assert!(bed.kv(KvOp { flags: 7, ..set("web/motd", "hi") }));
    assert_eq!(bed.pairs(), ["consul/kv/web/motd=hi@2/2/1"]);
    assert_eq!(bed.shown(""), ["web/motd=hi/7 0@1/1"]);
    // An equal write changes nothing, other flags do.
    assert!(bed.kv(KvOp { flags: 7, ..set("web/motd", "hi") }));
    assert_eq!((bed.revision(), bed.shown("")), (2, vec!["web/motd=hi/7 0@1/1".to_owned()]));
    assert!(bed.kv(set("web/motd", "hi")));
    assert_eq!((bed.revision(), bed.shown("")), (3, vec!["web/motd=hi/0 0@1/3".to_owned()]));
    assert!(bed.kv(op(KvVerb::Delete, "web/motd")));
    assert_eq!((bed.revision(), bed.shown("").len(), bed.pairs().len()), (4, 0, 0));
    // An absent key counts as deleted, and nothing changes.
    assert!(bed.kv(op(KvVerb::Delete, "web/motd")));
    assert_eq!(bed.revision(), 4);
    assert!(bed.kv(set("web/motd", "anew")));
    assert_eq!(bed.shown(""), ["web/motd=anew/0 0@6/6"]);
}

#[test]
fn comparing_with_the_index() {
    let mut bed = TestBed::new();
    for (number, (verb, index, wanted)) in [
        (KvVerb::Cas, 3, false),
        (KvVerb::Cas, 0, true),
        (KvVerb::Cas, 0, false),
        (KvVerb::Cas, 1, false),
        // Equal to the stored pair: the condition holds, and the index stays.
        (KvVerb::Cas, 2, true),
        (KvVerb::DeleteCas, 5, false),
        (KvVerb::DeleteCas, 0, false),
        (KvVerb::DeleteCas, 2, true),
        (KvVerb::DeleteCas, 2, true),
        (KvVerb::DeleteCas, 0, true),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(bed.kv(with_index(verb, "a", index)), wanted, "step {number}");
    }
    assert!(bed.shown("").is_empty());
}

#[test]
fn below_a_prefix() {
    let mut bed = TestBed::new();
    for path in ["a", "a/1", "a/2", "ab", "b"] {
        bed.kv(set(path, ""));
    }
    assert_eq!(bed.shown("a/").len(), 2);
    assert_eq!((bed.prefix_index("a/"), bed.prefix_index("b"), bed.prefix_index("c")), (3, 5, 0));
    assert!(bed.kv(op(KvVerb::DeleteTree, "a/")));
    assert_eq!(bed.shown("a"), ["a=/0 0@1/1", "ab=/0 0@4/4"]);
    assert_eq!(bed.revision(), 7, "one revision for all of them");
    assert!(bed.kv(op(KvVerb::DeleteTree, "a/")));
    assert_eq!(bed.revision(), 7);
    // A deletion counts for the query index, and still does after it was compacted.
    assert_eq!((bed.prefix_index("a/"), bed.prefix_index("b")), (6, 5));
    bed.kv(set("c", ""));
    bed.kv(set("c", "1"));
    bed.apply(compact(9));
    let before = bed.prefix_index("a/");
    assert!(before >= 6);
    bed.reclaim(100);
    assert_eq!(bed.prefix_index("a/"), before);
    assert!(bed.kv(op(KvVerb::DeleteTree, "")));
    assert!(bed.shown("").is_empty());
}

#[test]
fn a_lock_is_held_by_one_session() {
    let mut bed = TestBed::new();
    bed.session(session("s1"));
    bed.session(session("s2"));
    let lock = |session| with_session(KvVerb::Lock, "l", session);
    let unlock = |session| with_session(KvVerb::Unlock, "l", session);
    assert_eq!(bed.apply(kv(lock(""))), Outcome::Refused(Refusal::Session(SessionRefusal::Missing)));
    assert_eq!(bed.apply(kv(lock("gone"))), Outcome::Refused(Refusal::Session(SessionRefusal::Invalid)));
    assert!(!bed.kv(unlock("s1")), "there is no such key");
    assert!(bed.kv(lock("s1")));
    assert_eq!(bed.shown(""), ["l=v/0 1s1@6/6"]);
    assert!(!bed.kv(lock("s2")) && !bed.kv(unlock("s2")));
    // A second lock by the same session succeeds, and changes nothing unless the value differs.
    assert!(bed.kv(lock("s1")));
    assert_eq!(bed.shown(""), ["l=v/0 1s1@6/6"]);
    assert!(bed.kv(KvOp { value: bytes("w"), ..lock("s1") }));
    assert_eq!(bed.shown(""), ["l=w/0 1s1@6/10"]);
    // A write by another client keeps the lock.
    assert!(bed.kv(set("l", "x")));
    assert_eq!(bed.shown(""), ["l=x/0 1s1@6/11"]);
    assert!(bed.kv(unlock("s1")));
    assert_eq!(bed.shown(""), ["l=v/0 1@6/12"]);
    assert!(bed.kv(lock("s2")));
    assert_eq!(bed.shown(""), ["l=v/0 2s2@6/13"]);
    // The removal of a key removes its lock.
    assert!(bed.kv(op(KvVerb::Delete, "l")));
    assert!(bed.kv(lock("s1")));
    assert_eq!(bed.shown(""), ["l=v/0 1s1@15/15"]);
}

#[test]
fn an_etcd_client_writes_and_deletes_as_well() {
    let mut bed = TestBed::new();
    bed.session(session("s1"));
    bed.kv(KvOp { flags: 7, ..with_session(KvVerb::Lock, "l", "s1") });
    assert_eq!(bed.shown(""), ["l=v/7 1s1@2/2"]);
    bed.apply(put("consul/kv/l", "etcd"));
    assert_eq!(bed.shown(""), ["l=etcd/0 0@2/3"], "flags and lock are gone");
    assert!(bed.kv(with_session(KvVerb::Lock, "l", "s1")));
    bed.apply(del("consul/kv/l", ""));
    assert!(bed.shown("").is_empty());
    // The etcd delete has dropped the lock: the end of the session does not change the key that is
    // made next.
    bed.apply(put("consul/kv/l", "v"));
    bed.apply(destroy("s1"));
    assert_eq!(bed.shown(""), ["l=v/0 0@6/6"]);
    // A write of Consul's API detaches a key from its lease.
    bed.grant(1);
    bed.apply(Command::Put(Put { lease: LeaseChoice::Set(LeaseId(1)), ..put_of("consul/kv/m", "v") }));
    assert!(bed.kv(KvOp { flags: 1, ..set("m", "v") }));
    assert_eq!(bed.lease_keys(1).len(), 0, "a write without a lease detaches");
    // The key of the bare prefix is not a path.
    bed.apply(put("consul/kv/", "v"));
    assert_eq!(bed.shown("").len(), 2);
    assert!(bed.kv(op(KvVerb::DeleteTree, "")));
    assert_eq!(bed.pairs().len(), 1);
    assert_eq!(bed.consul_entry("l"), None);
}

#[test]
fn creation_by_an_etcd_client_is_told_as_far_back_as_history_goes() {
    let mut bed = TestBed::with([put("consul/kv/a", "1"), put("consul/kv/a", "2"), put("x", "")]);
    assert_eq!(bed.shown(""), ["a=2/0 0@1/2"]);
    bed.apply(put("x", "1"));
    bed.apply(compact(3));
    assert_eq!(bed.consul_entry("a").unwrap().side.created, LogIndex(2));
    bed.apply(compact(5));
    assert_eq!(bed.consul_entry("a").unwrap().side.created, LogIndex(2), "never after the last change");
}
