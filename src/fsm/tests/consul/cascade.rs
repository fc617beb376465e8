//! Effects of the catalog on sessions and deadlines, and transactions that change both.

use super::*;
use headwater_storage::state::CatalogReader;
use headwater_types::catalog::{
    CatalogCommand, CatalogNode, CatalogRefusal, Check, CheckDefinition, CheckStatus, Deregistration,
    DeregistrationTarget, Registration, Service,
};
use headwater_types::consul::{CatalogVerb, SessionRefusal, TxnFault, TxnFaultReason, TxnItem, TxnOp, TxnRow};
use headwater_types::{Outcome, Refusal};

const SECOND_NS: i64 = 1_000_000_000;

fn node() -> CatalogNode {
    CatalogNode { name: "N".to_owned(), address: "10.0.0.1".to_owned(), ..CatalogNode::default() }
}

fn service() -> Service {
    Service { node: "N".to_owned(), id: "web-1".to_owned(), name: "web".to_owned(), ..Service::default() }
}

/// A check of `web-1`, passing.
fn check(id: &str) -> Check {
    Check {
        node: "N".to_owned(),
        id: id.to_owned(),
        name: id.to_owned(),
        status: CheckStatus::Passing,
        service_id: "web-1".to_owned(),
        ..Check::default()
    }
}

fn register(checks: Vec<Check>) -> Command {
    let mut registration = Registration { node: node(), service: Some(service()), checks, ..Registration::default() };
    registration.complete().unwrap();
    Command::Catalog(CatalogCommand::Register(Box::new(registration)))
}

fn deregister(what: DeregistrationTarget) -> Command {
    let deregistration = Deregistration { node: "n".to_owned(), what, ..Deregistration::default() };
    Command::Catalog(CatalogCommand::Deregister(Box::new(deregistration)))
}

impl TestBed {
    fn check(&self, id: &str) -> Option<Check> {
        let db = self.store.current();
        db.view().unwrap().check("n", id).unwrap().map(|check| Check::clone(&check.row))
    }

    /// Applies a command that must be accepted.
    fn accept(&mut self, command: Command) {
        let outcome = self.apply(command);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
}

/// A store with a session on a check and one on the node alone, each with a lock.
fn bed_with_sessions() -> TestBed {
    let mut bed = TestBed::with([register(vec![check("c"), check("d")])]);
    bed.session(Session { node: "N".to_owned(), service_checks: vec!["c".to_owned()], ..session("on-c") });
    bed.session(Session { node: "n".to_owned(), ..session("on-n") });
    for id in ["on-c", "on-n"] {
        assert!(bed.kv(with_session(KvVerb::Lock, id, id)));
    }
    bed
}

#[test]
fn sessions_end_with_what_they_stand_on_in_the_same_command() {
    let critical = |id: &str| Check { status: CheckStatus::Critical, ..check(id) };
    for (name, command, left) in [
        ("another check fails", register(vec![critical("d")]), vec!["on-c", "on-n"]),
        ("it warns", register(vec![Check { status: CheckStatus::Warning, ..check("c") }]), vec!["on-c", "on-n"]),
        ("it fails", register(vec![critical("c")]), vec!["on-n"]),
        ("it goes", deregister(DeregistrationTarget::Check("c".to_owned())), vec!["on-n"]),
        ("its service goes", deregister(DeregistrationTarget::Service("web-1".to_owned())), vec!["on-n"]),
        ("the node goes", deregister(DeregistrationTarget::Node), vec![]),
    ] {
        let mut bed = bed_with_sessions();
        let (revision, next) = (bed.revision(), bed.next);
        let (_, committed) = bed.apply_all([command], true);
        assert_eq!(bed.session_ids(), left, "{name}");
        let ended = 2 - left.len();
        assert_eq!(bed.revision() - revision, i64::from(ended > 0), "{name}");
        assert_eq!(committed.events.iter().map(|commit| commit.kv.len()).sum::<usize>(), ended, "{name}");
        for entry in bed.shown("") {
            let is_held = left.iter().any(|id| entry.starts_with(id));
            assert_eq!(entry.ends_with(&format!("/{next}")), !is_held, "{name}: {entry}");
        }
    }
}

#[test]
fn a_session_needs_its_node_and_its_checks() {
    let mut bed = TestBed::with([register(vec![check("c"), Check { status: CheckStatus::Critical, ..check("bad") }])]);
    let make = |node: &str, checks: &[&str], default_check| {
        let node_checks = checks.iter().map(|&check| check.to_owned()).collect();
        let session = Session { node: node.to_owned(), node_checks, ..session("s") };
        Command::Consul(ConsulCommand::SessionCreate(Box::new(SessionCreate {
            session,
            default_check,
            node_required: true,
        })))
    };
    for (command, refusal) in [
        (make("other", &[], true), SessionRefusal::NodeUnknown),
        (make("n", &["c", "x"], false), SessionRefusal::CheckUnknown),
        (make("n", &["bad"], false), SessionRefusal::CheckCritical),
    ] {
        assert_eq!(bed.apply(command), Outcome::Refused(Refusal::Session(refusal)));
    }
    bed.accept(make("n", &[], true));
    bed.accept(destroy("s"));
    // The session depends on the default check only if the node has it.
    bed.accept(register(vec![Check { service_id: String::new(), ..check("serfHealth") }]));
    bed.accept(make("n", &[], true));
    assert!(bed.session_ids() == ["s"]);
    bed.accept(deregister(DeregistrationTarget::Check("serfHealth".to_owned())));
    assert!(bed.session_ids().is_empty());
}

#[test]
fn a_ttl_check_that_nobody_refreshes_turns_critical() {
    let ttl = |status| {
        let definition = CheckDefinition { ttl_ns: 10 * SECOND_NS + 1, ..CheckDefinition::default() };
        Check { status, definition, output: "fine".to_owned(), ..check("c") }
    };
    let about = Deadline::TtlCheck { node: "n".to_owned(), check: "c".to_owned() };
    let mut bed = TestBed::with([register(vec![ttl(CheckStatus::Passing)])]);
    let first = bed.deadline(&about).unwrap();
    assert_eq!(bed.lease(first.get()).unwrap().ttl_seconds, 11, "rounded up");
    bed.session(Session { node: "n".to_owned(), service_checks: vec!["c".to_owned()], ..session("s") });
    bed.kv(with_session(KvVerb::Lock, "l", "s"));
    // Every write refreshes the check, also an equal one.
    bed.accept(register(vec![ttl(CheckStatus::Passing)]));
    let second = bed.deadline(&about).unwrap();
    assert!(first != second && bed.lease(first.get()).is_none());
    bed.run_out(&about);
    let expired = bed.check("c").unwrap();
    assert_eq!((expired.status, expired.output.as_str()), (CheckStatus::Critical, "TTL expired"));
    assert!(bed.session_ids().is_empty());
    assert_eq!(bed.shown(""), ["l=v/0 1@3/5"], "released in the same command");
    assert_eq!(bed.deadline(&about), None, "until somebody gives a sign of life");
    bed.accept(register(vec![ttl(CheckStatus::Warning)]));
    assert!(bed.deadline(&about).is_some());
    bed.accept(deregister(DeregistrationTarget::Check("c".to_owned())));
    assert_eq!(bed.deadline(&about), None);
    bed.accept(register(vec![ttl(CheckStatus::Passing)]));
    bed.accept(register(vec![check("c")]));
    assert_eq!(bed.deadline(&about), None, "it is no TTL check any more");
}

#[test]
fn a_service_that_stays_critical_goes() {
    let of = |status, seconds: i64| {
        let after = seconds * SECOND_NS;
        let definition = CheckDefinition { deregister_critical_after_ns: after, ..CheckDefinition::default() };
        Check { status, definition, ..check("c") }
    };
    let about = Deadline::CriticalService { node: "n".to_owned(), check: "c".to_owned() };
    let mut bed = TestBed::with([register(vec![of(CheckStatus::Passing, 90), check("d")])]);
    assert_eq!(bed.deadline(&about), None);
    bed.accept(register(vec![of(CheckStatus::Critical, 90)]));
    let first = bed.deadline(&about).unwrap();
    assert_eq!(bed.lease(first.get()).unwrap().ttl_seconds, 90);
    bed.accept(register(vec![Check { output: "still".to_owned(), ..of(CheckStatus::Critical, 90) }]));
    assert_eq!(bed.deadline(&about), Some(first), "its time goes on");
    bed.accept(register(vec![of(CheckStatus::Warning, 90)]));
    assert_eq!(bed.deadline(&about), None);
    bed.accept(register(vec![of(CheckStatus::Critical, 1)]));
    let second = bed.deadline(&about).unwrap();
    assert_eq!(bed.lease(second.get()).unwrap().ttl_seconds, 60, "a minute at least");
    bed.run_out(&about);
    let db = bed.store.current();
    let view = db.view().unwrap();
    assert!(view.service("n", "web-1").unwrap().is_none() && view.node("n").unwrap().value.is_some());
    assert!(view.checks_of_node("n").unwrap().value.is_empty());
    assert_eq!(bed.deadline(&about), None);
}

fn row(verb: CatalogVerb, row: TxnRow) -> TxnOp {
    TxnOp::Catalog(verb, row)
}

fn txn_of(ops: Vec<TxnOp>) -> Command {
    Command::Consul(ConsulCommand::Txn(ops))
}

#[test]
fn a_transaction_changes_catalog_and_keys_or_neither() {
    let mut bed = bed_with_sessions();
    let boxed_check = |check: Check| TxnRow::Check(Box::new(check));
    let other = CatalogNode { name: "other".to_owned(), address: "10.0.0.2".to_owned(), ..CatalogNode::default() };
    let (revision, shown) = (bed.revision(), bed.shown(""));
    let refused = bed.apply(txn_of(vec![
        TxnOp::Kv(set("a", "1")),
        row(CatalogVerb::Set, TxnRow::Node(Box::new(other.clone()))),
        row(CatalogVerb::Get, boxed_check(check("x"))),
        row(CatalogVerb::Cas, TxnRow::Node(Box::new(CatalogNode { modified: LogIndex(99), ..node() }))),
        row(CatalogVerb::Set, boxed_check(Check { service_id: "none".to_owned(), ..check("e") })),
        TxnOp::Kv(op(KvVerb::Get, "absent")),
    ]));
    let fault = |op, reason| TxnFault { op, reason };
    let faults = vec![
        fault(2, TxnFaultReason::RowAbsent),
        fault(3, TxnFaultReason::Stale),
        fault(4, CatalogRefusal::MissingService.into()),
        fault(5, TxnFaultReason::Absent),
    ];
    assert_eq!(refused, Outcome::Consul(ConsulOutcome::TxnFailed(faults)));
    assert_eq!((bed.revision(), bed.shown("")), (revision, shown));

    // A check that fails ends its session, which releases a key that the transaction writes.
    let at = LogIndex(bed.next);
    let done = bed.apply(txn_of(vec![
        row(CatalogVerb::Set, TxnRow::Node(Box::new(other))),
        TxnOp::Kv(set("on-c", "written")),
        row(CatalogVerb::Set, boxed_check(Check { status: CheckStatus::Critical, ..check("c") })),
        row(CatalogVerb::Delete, boxed_check(check("d"))),
        row(CatalogVerb::Get, TxnRow::Service(Box::new(service()))),
        row(CatalogVerb::Cas, TxnRow::Node(Box::new(CatalogNode { modified: LogIndex(1), ..node() }))),
    ]));
    let Outcome::Consul(ConsulOutcome::Txn(items)) = done else { panic!("{done:?}") };
    let results: Vec<_> = items
        .iter()
        .map(|item| match item {
            TxnItem::Kv(entry) => show_entry(entry),
            TxnItem::Catalog(TxnRow::Node(row)) => format!("node {} {}/{}", row.name, row.created, row.modified),
            TxnItem::Catalog(TxnRow::Service(row)) => format!("service {} {}/{}", row.id, row.created, row.modified),
            TxnItem::Catalog(TxnRow::Check(row)) => {
                format!("check {} {} {}/{}", row.id, row.status, row.created, row.modified)
            }
        })
        .collect();
    let wanted = [
        format!("node other {at}/{at}"),
        format!("on-c=/0 1on-c@4/{at}"),
        format!("check c critical 1/{at}"),
        "service web-1 1/1".to_owned(),
        "node N 1/1".to_owned(),
    ];
    assert_eq!(results, wanted);
    assert_eq!(bed.session_ids(), ["on-n"]);
    assert_eq!(bed.shown("on-c"), [format!("on-c=written/0 1@4/{at}")]);
    assert_eq!(bed.revision(), revision + 1);
    assert!(bed.check("d").is_none());
}

#[test]
fn a_session_that_ends_lets_go_of_what_its_transaction_took_and_of_nothing_else() {
    let mut bed = bed_with_sessions();
    bed.session(session("bystander"));
    bed.kv(with_session(KvVerb::Lock, "held", "on-c"));
    bed.kv(with_session(KvVerb::Lock, "unlocked", "on-c"));
    bed.kv(with_session(KvVerb::Lock, "retaken", "on-c"));
    let critical = Check { status: CheckStatus::Critical, ..check("c") };
    let at = LogIndex(bed.next);
    bed.accept(txn_of(vec![
        TxnOp::Kv(with_session(KvVerb::Lock, "taken", "on-c")),
        TxnOp::Kv(with_session(KvVerb::Lock, "another's", "bystander")),
        TxnOp::Kv(with_session(KvVerb::Lock, "taken and unlocked", "on-c")),
        TxnOp::Kv(with_session(KvVerb::Unlock, "taken and unlocked", "on-c")),
        TxnOp::Kv(with_session(KvVerb::Unlock, "unlocked", "on-c")),
        TxnOp::Kv(with_session(KvVerb::Unlock, "retaken", "on-c")),
        TxnOp::Kv(with_session(KvVerb::Lock, "retaken", "bystander")),
        TxnOp::Kv(set("plain", "v")),
        row(CatalogVerb::Set, TxnRow::Check(Box::new(critical))),
    ]));
    assert_eq!(bed.session_ids(), ["bystander", "on-n"]);
    let entries: Vec<String> = bed.shown("").iter().map(|entry| entry.split_once('@').unwrap().0.to_owned()).collect();
    let wanted = [
        "another's=v/0 1bystander",
        "held=v/0 1",
        "on-c=v/0 1",
        "on-n=v/0 1on-n",
        "plain=v/0 0",
        "retaken=v/0 2bystander",
        "taken=v/0 1",
        "taken and unlocked=v/0 1",
        "unlocked=v/0 1",
    ];
    assert_eq!(entries, wanted);
    assert_eq!(bed.consul_entry("held").unwrap().modified, at);
}

#[test]
fn operations_compare_the_index_that_an_earlier_one_carried() {
    let at = |modified| TxnRow::Node(Box::new(CatalogNode { modified: LogIndex(modified), ..node() }));
    let stale = |op| Outcome::Consul(ConsulOutcome::TxnFailed(vec![TxnFault { op, reason: TxnFaultReason::Stale }]));
    let mut bed = TestBed::with([register(vec![])]);
    let set = || row(CatalogVerb::Set, at(0));
    let outcome = bed.apply(txn_of(vec![set(), row(CatalogVerb::Cas, at(1))]));
    assert_eq!(outcome, stale(1), "an operation of the same transaction wrote it");
    let outcome = bed.apply(txn_of(vec![set(), row(CatalogVerb::DeleteCas, at(1))]));
    assert_eq!(outcome, stale(1));
    bed.accept(txn_of(vec![set(), row(CatalogVerb::Get, at(0))]));
    let stored = bed.store.current().view().unwrap().node("n").unwrap().value.unwrap();
    assert_eq!((stored.created, stored.modified), (LogIndex(1), LogIndex(1)), "nothing but the index differed");
    let outcome = bed.apply(txn_of(vec![set(), row(CatalogVerb::DeleteCas, at(0))]));
    assert!(matches!(outcome, Outcome::Consul(ConsulOutcome::Txn(_))), "{outcome:?}");
    assert!(bed.store.current().view().unwrap().node("n").unwrap().value.is_none());
}
