//! Consul's keys and sessions: bytes that must not change, round trips, and bytes that must be
//! refused.

use super::*;
use crate::codec::{decode_applied, decode_proposal, encode_applied, encode_proposal};
use headwater_types::catalog::{CatalogNode, CatalogRefusal};
use headwater_types::consul::CatalogVerb;
use headwater_types::{Applied, Command, Outcome, Proposal, Refusal, Revision, Supported};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn side() -> KvSide {
    KvSide { flags: 1, session: "s".to_owned(), lock_index: 2, created: LogIndex(300) }
}

fn session() -> Session {
    Session {
        id: "i".to_owned(),
        name: "n".to_owned(),
        node: "o".to_owned(),
        node_checks: vec!["c".to_owned()],
        service_checks: vec!["d".to_owned()],
        behavior: SessionBehavior::Delete,
        lock_delay_ms: 1,
        ttl_ms: 2,
        ttl: "t".to_owned(),
        created: LogIndex::ZERO,
    }
}

fn op(verb: KvVerb) -> KvOp {
    KvOp {
        verb,
        path: Bytes::from_static(b"p"),
        value: Bytes::from_static(b"v"),
        flags: 1,
        index: LogIndex(2),
        session: "s".to_owned(),
    }
}

fn node() -> TxnRow {
    TxnRow::Node(Box::new(CatalogNode { name: "n".to_owned(), modified: LogIndex(3), ..CatalogNode::default() }))
}

#[test]
fn golden_bytes_of_records() {
    let bytes = encode_side(&side());
    assert_eq!(hex(&bytes), "010801120173180220ac02");
    assert_eq!(decode_side(bytes), Ok(side()));
    let bytes = encode_session(&session());
    assert_eq!(hex(&bytes), "010a016912016e1a016f2201632a01643001380140024a0174");
    assert_eq!(decode_session(bytes, LogIndex(7)), Ok(Session { created: LogIndex(7), ..session() }));
    assert!(decode_side(Bytes::from_static(&[2])).is_err() && decode_side(Bytes::new()).is_err());
    assert!(decode_session(Bytes::from_static(&[1, 255]), LogIndex(1)).is_err());
}

#[test]
fn golden_bytes_of_commands() {
    let create = SessionCreate { session: session(), default_check: true, node_required: true };
    for (command, bytes) in [
        (ConsulCommand::Kv(op(KvVerb::Lock)), "0108059a03110a0f08031201701a017620012802320173"),
        (
            ConsulCommand::Txn(vec![TxnOp::Kv(op(KvVerb::Set)), TxnOp::Catalog(CatalogVerb::Cas, node())]),
            "0108059a032412220a110a0f08011201701a0176200128023201730a0d120b080312070a050a016e4003",
        ),
        (
            ConsulCommand::SessionCreate(Box::new(create)),
            "0108059a03201a1e0a180a016912016e1a016f2201632a01643001380140024a017410011801",
        ),
        (ConsulCommand::SessionDestroy("i".to_owned()), "0108059a0303220169"),
    ] {
        let proposal = Proposal::new(5, Command::Consul(command));
        let encoded = encode_proposal(&proposal).unwrap();
        assert_eq!(hex(&encoded), bytes, "{proposal:?}");
        assert_eq!(decode_proposal(encoded, Supported::RELEASE), Ok(Some(proposal)));
    }
}

#[test]
fn golden_bytes_of_outcomes() {
    let entry = KvEntry { path: "p".into(), value: "v".into(), side: side(), modified: LogIndex(9) };
    let fault = |reason| TxnFault { op: 1, reason };
    let faults = vec![
        fault(TxnFaultReason::Stale),
        fault(SessionRefusal::CheckCritical.into()),
        fault(CatalogRefusal::MissingNode.into()),
    ];
    for (outcome, bytes) in [
        (Outcome::Consul(ConsulOutcome::Kv(true)), "01080810049a03020801"),
        (Outcome::Consul(ConsulOutcome::Kv(false)), "01080810049a03020800"),
        (
            Outcome::Consul(ConsulOutcome::Txn(vec![TxnItem::Kv(entry), TxnItem::Catalog(node())])),
            "01080810049a032512230a160a140a01701201761a0a0801120173180220ac0220090a0912070a050a016e4003",
        ),
        (Outcome::Consul(ConsulOutcome::TxnFailed(faults)), "01080810049a03141a120a04080112000a04080140060a0408015002"),
        (Outcome::Consul(ConsulOutcome::SessionCreated), "01080810049a03022200"),
        (Outcome::Consul(ConsulOutcome::SessionDestroyed), "01080810049a03022a00"),
        (Outcome::Refused(Refusal::Session(SessionRefusal::Invalid)), "0108081004820103980302"),
    ] {
        let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
        let encoded = encode_applied(&applied);
        assert_eq!(hex(&encoded), bytes, "{applied:?}");
        assert_eq!(decode_applied(encoded), Ok(applied));
    }
}

#[test]
fn every_number_is_read_back_and_others_are_refused() {
    for verb in KvVerb::ALL {
        assert_eq!(read_op(write_op(&op(verb))), Ok(op(verb)));
    }
    for verb in CatalogVerb::ALL {
        assert_eq!(read_catalog_op(write_catalog_op(verb, &node())), Ok(TxnOp::Catalog(verb, node())));
    }
    for refusal in SessionRefusal::ALL {
        assert_eq!(read_refusal(write_refusal(refusal)), Ok(refusal));
    }
    let reasons = [
        TxnFaultReason::Stale,
        TxnFaultReason::Held,
        TxnFaultReason::NotHeld,
        TxnFaultReason::Delayed,
        TxnFaultReason::Absent,
        TxnFaultReason::Present,
        TxnFaultReason::RowAbsent,
        TxnFaultReason::ResultTooLarge,
    ];
    for reason in reasons {
        let fault = TxnFault { op: 0, reason };
        assert_eq!(read_fault(write_fault(&fault)), Ok(fault));
    }
    for number in [-1, 0, 1000] {
        assert!(read_refusal(number).is_err());
        assert!(read_op(pb::ConsulKvOp { verb: number, ..write_op(&op(KvVerb::Set)) }).is_err());
    }
}
