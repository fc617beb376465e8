//! Sessions: the causes and effects of their end.

use super::*;
use headwater_types::catalog::{CatalogCommand, CatalogNode, Check, CheckStatus, Registration};
use headwater_types::consul::{SessionBehavior, SessionRefusal};
use headwater_types::{LeaseRevoke, Outcome, Refusal};

fn about(id: &str) -> Deadline {
    Deadline::Session(id.to_owned())
}

#[test]
fn destroying_releases_or_deletes_in_one_revision() {
    for behavior in [SessionBehavior::Release, SessionBehavior::Delete] {
        let mut bed = TestBed::new();
        bed.session(Session { behavior, ..session("s") });
        bed.session(session("t"));
        for path in ["b", "a"] {
            assert!(bed.kv(with_session(KvVerb::Lock, path, "s")));
        }
        assert!(bed.kv(with_session(KvVerb::Lock, "c", "t")));
        let before = bed.revision();
        assert_eq!(bed.apply(destroy("s")), Outcome::Consul(ConsulOutcome::SessionDestroyed));
        assert_eq!(bed.revision(), before + 1);
        let (held, released) = ("c=v/0 1t@5/5".to_owned(), ["a=v/0 1@4/6".to_owned(), "b=v/0 1@3/6".to_owned()]);
        match behavior {
            SessionBehavior::Release => assert_eq!(bed.shown(""), [released[0].clone(), released[1].clone(), held]),
            SessionBehavior::Delete => assert_eq!(bed.shown(""), [held]),
        }
        assert_eq!(bed.session_ids(), ["t"]);
        // A second end succeeds, and changes nothing.
        assert_eq!(bed.apply(destroy("s")), Outcome::Consul(ConsulOutcome::SessionDestroyed));
        assert_eq!(bed.revision(), before + 1);
        assert_eq!(
            bed.apply(kv(with_session(KvVerb::Lock, "a", "s"))),
            Outcome::Refused(Refusal::Session(SessionRefusal::Invalid))
        );
        assert_eq!(bed.apply(create(session("t"))), Outcome::Refused(Refusal::Session(SessionRefusal::Exists)));
    }
}

#[test]
fn a_ttl_is_a_deadline_that_no_client_can_touch() {
    let mut bed = TestBed::new();
    bed.session(Session { ttl_ms: 10_500, ttl: "10.5s".to_owned(), ..session("s") });
    bed.session(session("t"));
    assert_eq!(bed.deadline(&about("t")), None);
    let id = bed.deadline(&about("s")).unwrap();
    assert_eq!(bed.lease(id.get()).unwrap().ttl_seconds, 11, "rounded up");
    for command in [
        Command::LeaseRevoke(LeaseRevoke { id }),
        Command::Put(headwater_types::Put { lease: headwater_types::LeaseChoice::Set(id), ..put_of("k", "v") }),
        Command::LeaseAttach(headwater_types::LeaseAttach { id, key: bytes("k") }),
    ] {
        assert_eq!(bed.apply(command), Outcome::Refused(Refusal::LeaseNotFound));
    }
    assert_eq!(bed.apply(grant(id.get(), 60)), Outcome::Refused(Refusal::LeaseExists));
    assert_eq!(bed.apply(grant(id.get() + 1000, 60)), Outcome::Refused(Refusal::LeaseExists));
    bed.kv(with_session(KvVerb::Lock, "l", "s"));
    assert_eq!(bed.run_out(&about("s")), Outcome::LeaseEnded { deleted: 0 });
    assert_eq!((bed.session_ids(), bed.shown("")), (vec!["t".to_owned()], vec!["l=v/0 1@8/9".to_owned()]));
    assert_eq!((bed.deadline(&about("s")), bed.lease(id.get())), (None, None));
    // Destroying ends the deadline, too.
    bed.session(Session { ttl_ms: 10_000, ..session("u") });
    let id = bed.deadline(&about("u")).unwrap();
    bed.apply(destroy("u"));
    assert_eq!((bed.deadline(&about("u")), bed.lease(id.get())), (None, None));
}

#[test]
fn a_lock_waits_for_its_delay() {
    let mut bed = TestBed::new();
    for behavior in [SessionBehavior::Release, SessionBehavior::Delete] {
        bed.session(Session { lock_delay_ms: 1, behavior, ..session("s") });
        bed.session(session("t"));
        for path in ["l", "m"] {
            assert!(bed.kv(with_session(KvVerb::Lock, path, "s")));
        }
        assert!(bed.kv(with_session(KvVerb::Unlock, "m", "s")), "given back in time: no delay");
        bed.apply(destroy("s"));
        assert!(!bed.kv(with_session(KvVerb::Lock, "l", "t")));
        assert!(bed.kv(with_session(KvVerb::Lock, "m", "t")));
        assert!(bed.kv(set("l", "written all the same")));
        let delay = Deadline::LockDelay(bytes("l"));
        assert_eq!(bed.run_out(&delay), Outcome::LeaseEnded { deleted: 0 });
        assert_eq!(bed.deadline(&delay), None);
        assert!(bed.kv(with_session(KvVerb::Lock, "l", "t")));
        bed.apply(destroy("t"));
        bed.kv(op(KvVerb::DeleteTree, ""));
    }
    let db = bed.store.current();
    let mut leases = 0;
    db.view().unwrap().leases(|_, _| leases += 1).unwrap();
    assert_eq!(leases, 0);
}

#[test]
fn sessions_are_found_by_node() {
    let node = CatalogNode { name: "other".to_owned(), address: "10.0.0.2".to_owned(), ..CatalogNode::default() };
    let check = Check {
        node: "other".to_owned(),
        id: "c".to_owned(),
        name: "c".to_owned(),
        status: CheckStatus::Passing,
        ..Check::default()
    };
    let mut registration = Registration { node, checks: vec![check], ..Registration::default() };
    registration.complete().unwrap();
    let mut bed = TestBed::with([Command::Catalog(CatalogCommand::Register(Box::new(registration)))]);
    bed.session(session("s"));
    bed.session(Session { node: "other".to_owned(), node_checks: vec!["c".to_owned()], ..session("t") });
    let db = bed.store.current();
    let view = db.view().unwrap();
    assert_eq!(view.node_sessions("n").unwrap(), ["s"]);
    assert_eq!(view.node_sessions("other").unwrap(), ["t"]);
    assert_eq!(view.check_sessions("other", "c").unwrap(), ["t"]);
    assert!(view.check_sessions("n", "c").unwrap().is_empty());
    assert_eq!(view.session("t").unwrap().unwrap().created, LogIndex(3));
}
