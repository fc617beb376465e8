//! Commands and outcomes: bytes that must not change, round trips, and bytes that must be refused.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::{CodecError, decode_applied, decode_proposal, encode_applied, encode_proposal};
use crate::pb::internal as pb;
use headwater_types::limits::TXN_DEPTH_MAX;
use headwater_types::{
    Alarm, AlarmKind, Applied, Command, Compact, Compare, CompareOp, CompareTarget, DeleteRange, Deleted, Face,
    KeyRange, KeyValue, LeaseAttach, LeaseCheckpoint, LeaseChoice, LeaseExpire, LeaseGrant, LeaseId, LeaseRemaining,
    LeaseRevoke, LeaseTxn, LogIndex, NodeId, Outcome, Proposal, Put, PutDone, Quota, RangeDone, RangeQuery,
    RangeResult, ReadAt, Refusal, Revision, RevisionFilter, SetAlarm, SortOrder, SortTarget, StoreEpoch, Supported,
    Term, TrimHistory, Txn, TxnDone, TxnOp, TxnOpDone, ValueChoice,
};

fn put(value: ValueChoice, lease: LeaseChoice) -> Put {
    Put { key: Bytes::from_static(b"k"), value, lease, prev_kv: false }
}

fn proposal(command: Command) -> Proposal {
    Proposal::new(5, command)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Bytes {
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect::<Vec<u8>>().into()
}

/// Commands with their bytes; the tests of the other modules have further kinds. The bytes are in
/// logs: do not edit them; a change needs a new format.
fn golden_proposals() -> Vec<(Proposal, &'static str)> {
    let everything = Txn {
        compares: vec![
            Compare {
                range: KeyRange::One(Bytes::from_static(b"a")),
                op: CompareOp::NotEqual,
                target: CompareTarget::Value(Bytes::from_static(b"v")),
            },
            Compare {
                range: KeyRange::Span { start: Bytes::from_static(b"a"), end: Some(Bytes::from_static(b"b")) },
                op: CompareOp::Equal,
                target: CompareTarget::Lease(0),
            },
        ],
        success: vec![
            TxnOp::Range(RangeQuery {
                range: KeyRange::all(),
                at: ReadAt::Revision(Revision(9)),
                limit: 2,
                order: SortOrder::Descend,
                target: SortTarget::Value,
                filter: RevisionFilter { min_mod: 1, max_mod: 2, min_create: 3, max_create: 4 },
                keys_only: true,
                count_only: true,
            }),
            TxnOp::Txn(Txn::default()),
        ],
        failure: vec![TxnOp::Put(put(ValueChoice::Set(Bytes::new()), LeaseChoice::Set(LeaseId::NONE)))],
    };
    vec![
        (proposal(Command::Bootstrap(StoreEpoch(300))), "01 0805 5203 08ac02"),
        (
            proposal(Command::Put(put(ValueChoice::Set(Bytes::from_static(b"v")), LeaseChoice::Set(LeaseId(7))))),
            "01 0805 5a08 0a016b 120176 2007",
        ),
        (
            proposal(Command::Put(Put { prev_kv: true, ..put(ValueChoice::Keep, LeaseChoice::Keep) })),
            "01 0805 5a09 0a016b 1a00 2a00 3801",
        ),
        (proposal(Command::Put(put(ValueChoice::Keep, LeaseChoice::KeepIfPresent))), "01 0805 5a07 0a016b 1a00 3200"),
        (
            proposal(Command::DeleteRange(DeleteRange {
                range: KeyRange::prefix(Bytes::from_static(b"p")),
                prev_kv: true,
            })),
            "01 0805 620c 0a08 1206 0a0170 120171 1001",
        ),
        (
            proposal(Command::Txn(everything)),
            "01 0805 6a49
             0a0a 0a030a0161 1004 320176
             0a0e 0a0812060a0161120162 1001 3800
             121c 0a1a 0a021200 1009 1802 2003 2805 3208 08011002 18032004 3801 4001
             1202 2200
             1a09 1207 0a016b 1200 2000",
        ),
        (proposal(Command::Compact(Compact { revision: Revision(6) })), "01 0805 7202 0806"),
        (proposal(Command::LeaseGrant(LeaseGrant { id: LeaseId(7), ttl_seconds: 60 })), "01 0805 7a04 0807 103c"),
        (proposal(Command::LeaseRevoke(LeaseRevoke { id: LeaseId(7) })), "01 0805 820102 0807"),
        (
            proposal(Command::LeaseExpire(LeaseExpire { id: LeaseId(7), granted: LogIndex(8), term: Term(9) })),
            "01 0805 8a0106 0807 1008 1809",
        ),
        (
            proposal(Command::LeaseCheckpoint(LeaseCheckpoint {
                term: Term(2),
                clock_ms: 300,
                leases: vec![
                    LeaseRemaining { id: LeaseId(7), granted: LogIndex(8), remaining_ms: Some(0) },
                    LeaseRemaining { id: LeaseId(9), granted: LogIndex(10), remaining_ms: None },
                ],
            })),
            "01 0805 920113 0802 10ac02 1a06 0807 1008 1800 1a04 0809 100a",
        ),
        (
            proposal(Command::LeaseAttach(LeaseAttach { id: LeaseId(7), key: Bytes::from_static(b"k") })),
            "01 0805 9a0105 0807 12016b",
        ),
        (
            proposal(Command::LeaseTxn(LeaseTxn {
                txn: Txn::default(),
                success: vec![LeaseAttach { id: LeaseId(7), key: Bytes::from_static(b"k") }],
                failure: vec![LeaseAttach { id: LeaseId(8), key: Bytes::from_static(b"l") }],
            })),
            "01 0805 a20110 0a00 1205 0807 12016b 1a05 0808 12016c",
        ),
        (
            proposal(Command::SetAlarm(SetAlarm {
                alarm: Alarm { member: NodeId(2), kind: AlarmKind::NoSpace },
                active: true,
            })),
            "01 0805 f20106 0802 1001 1801",
        ),
        (proposal(Command::TrimHistory(TrimHistory { from: LogIndex(300) })), "01 0805 820203 08ac02"),
        (proposal(Command::SetQuota(Quota { bytes_max: Some(300), member: NodeId(2) })), "01 0805 fa0105 08ac02 1002"),
        (proposal(Command::SetQuota(Quota { bytes_max: None, member: NodeId(2) })), "01 0805 fa0102 1002"),
    ]
}

fn golden_outcomes() -> Vec<(Applied, &'static str)> {
    let kv = KeyValue {
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(b"v"),
        create_revision: Revision(2),
        mod_revision: Revision(3),
        version: 2,
        lease: LeaseId(-1),
    };
    let applied = |outcome| Applied { index: LogIndex(8), revision: Revision(4), outcome };
    let txn = TxnDone {
        succeeded: true,
        responses: vec![
            TxnOpDone::Range(RangeDone {
                revision: Revision(3),
                result: RangeResult { kvs: vec![KeyValue::default()], more: true, count: 2 },
            }),
            TxnOpDone::Put(PutDone { revision: Revision(4), prev: None }),
            TxnOpDone::DeleteRange(Deleted::default()),
            TxnOpDone::Txn(TxnDone::default()),
        ],
    };
    vec![
        (applied(Outcome::Nothing), "01 0808 1004 5200"),
        (applied(Outcome::Bootstrapped), "01 0808 1004 5a00"),
        (
            applied(Outcome::Put(PutDone { revision: Revision(4), prev: Some(kv.clone()) })),
            "01 0808 1004 621b 0804 1217 0a016b 120176 1802 2003 2802 30ffffffffffffffffff01",
        ),
        (
            applied(Outcome::DeleteRange(Deleted { revision: Revision(4), deleted: 1, prev: vec![kv] })),
            "01 0808 1004 6a1d 0804 1001 1a17 0a016b 120176 1802 2003 2802 30ffffffffffffffffff01",
        ),
        (
            applied(Outcome::Txn(txn)),
            "01 0808 1004 721e 0801 120c 0a0a 0803 1206 0a00 1001 1802 1204 12020804 1202 1a00 1202 2200",
        ),
        (applied(Outcome::Compacted), "01 0808 1004 7a00"),
        (applied(Outcome::Refused(Refusal::Compacted { compact_revision: Revision(3) })), "01 0808 1004 820102 0803"),
        (applied(Outcome::Refused(Refusal::FutureRevision { current: Revision(4) })), "01 0808 1004 820102 1004"),
        (applied(Outcome::Refused(Refusal::KeyNotFound)), "01 0808 1004 820102 1a00"),
        (applied(Outcome::Refused(Refusal::LeaseNotFound)), "01 0808 1004 820102 2200"),
        (applied(Outcome::Refused(Refusal::DuplicateKey)), "01 0808 1004 820102 2a00"),
        (applied(Outcome::Refused(Refusal::LeaseExists)), "01 0808 1004 820102 3200"),
        (applied(Outcome::Refused(Refusal::LeaseTtlTooLarge)), "01 0808 1004 820102 3a00"),
        (applied(Outcome::Refused(Refusal::LeaseStale)), "01 0808 1004 820102 4200"),
        (applied(Outcome::Refused(Refusal::TooMuchRead)), "01 0808 1004 820102 4a00"),
        (applied(Outcome::LeaseGranted { ttl_seconds: 60 }), "01 0808 1004 8a0102 083c"),
        (applied(Outcome::LeaseEnded { deleted: 3 }), "01 0808 1004 920102 0803"),
        (applied(Outcome::LeaseCheckpointed), "01 0808 1004 9a0100"),
        (applied(Outcome::LeaseAttached), "01 0808 1004 a20100"),
        (applied(Outcome::AlarmSet { was_active: true }), "01 0808 1004 f20102 0801"),
        (applied(Outcome::QuotaSet), "01 0808 1004 fa0100"),
        (applied(Outcome::Refused(Refusal::NoSpace)), "01 0808 1004 820103 f20100"),
        (applied(Outcome::Refused(Refusal::Corrupt)), "01 0808 1004 820103 fa0100"),
    ]
}

#[test]
fn golden_bytes_of_proposals() {
    for (proposal, bytes) in golden_proposals() {
        assert_eq!(hex(&encode_proposal(&proposal).unwrap()), hex(&unhex(bytes)), "{proposal:?}");
        assert_eq!(decode_proposal(unhex(bytes), Supported::RELEASE), Ok(Some(proposal)));
    }
}

#[test]
fn golden_bytes_of_faces() {
    for face in Face::ALL {
        let proposal = Proposal { face: Some(face), ..proposal(Command::Bootstrap(StoreEpoch(9))) };
        let encoded = encode_proposal(&proposal).unwrap();
        assert_eq!(encoded[..], [4, 8, 5, 0x28, face as u8, 0x52, 2, 8, 9], "{face:?}");
        assert_eq!(decode_proposal(encoded, Supported::RELEASE), Ok(Some(proposal)));
    }
    let unknown = decode_proposal(Bytes::from_static(&[4, 8, 5, 0x28, 8, 0x52, 2, 8, 9]), Supported::RELEASE);
    assert_eq!(unknown, Err(CodecError::UnknownValue { field: "Proposal.face", value: 8 }));
}

#[test]
fn golden_bytes_of_outcomes() {
    for (applied, bytes) in golden_outcomes() {
        assert_eq!(hex(&encode_applied(&applied)), hex(&unhex(bytes)), "{applied:?}");
        assert_eq!(decode_applied(unhex(bytes)), Ok(applied));
    }
}

#[test]
fn a_decoded_proposal_shares_the_bytes_that_it_came_in() {
    let key = Bytes::from(vec![b'k'; 100]);
    let value = Bytes::from(vec![b'v'; 1000]);
    let put = Put { key, value: ValueChoice::Set(value), lease: LeaseChoice::KeepIfPresent, prev_kv: false };
    let nested = Txn { success: vec![TxnOp::Put(put.clone())], ..Txn::default() };
    for command in [Command::Put(put), Command::Txn(nested)] {
        let bytes = encode_proposal(&proposal(command)).unwrap();
        let owned = bytes.as_ptr_range();
        let decoded = decode_proposal(bytes.clone(), Supported::RELEASE).unwrap().unwrap();
        let put = match &decoded.command {
            Command::Put(put) => put,
            Command::Txn(txn) => match &txn.success[0] {
                TxnOp::Put(put) => put,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let ValueChoice::Set(value) = &put.value else { panic!("{put:?}") };
        assert!(owned.contains(&put.key.as_ptr()), "the key was copied");
        assert!(owned.contains(&value.as_ptr()), "the value was copied");
    }
}

#[test]
fn unknown_commands_stop_unless_skippable() {
    // Field 99 with an empty message: a command of a later version.
    assert_eq!(decode_proposal(unhex("01 0805 9a0600"), Supported::RELEASE), Err(CodecError::UnknownCommand));
    assert_eq!(decode_proposal(unhex("01 0805 1001 9a0600"), Supported::RELEASE), Ok(None), "marked as skippable");
    // `skippable` has no effect on known commands.
    let known = decode_proposal(unhex("01 0805 1001 72020806"), Supported::RELEASE).unwrap();
    assert_eq!(known, Some(proposal(Command::Compact(Compact { revision: Revision(6) }))));
    assert_eq!(decode_applied(unhex("01 0808 1004 9a0600")), Err(CodecError::UnknownOutcome));
    assert_eq!(decode_applied(unhex("01 0808 1004 8201 03 9a0600")), Err(CodecError::UnknownOutcome), "a refusal");
}

#[test]
fn unknown_formats_and_values_are_errors() {
    let compare = |op: i32| pb::Compare {
        range: Some(pb::KeyRange { keys: Some(pb::key_range::Keys::One(Bytes::from_static(b"a"))) }),
        op,
        target: Some(pb::compare::Target::Version(1)),
    };
    let query =
        |order: i32, target: i32| pb::RangeQuery { range: compare(1).range, order, target, ..Default::default() };
    let txn = |compares: Vec<pb::Compare>, ops: Vec<pb::txn_op::Op>| {
        let success = ops.into_iter().map(|op| pb::TxnOp { op: Some(op) }).collect();
        pb::proposal::Command::Txn(pb::Txn { compares, success, failure: vec![] })
    };
    let put = pb::Put { key: Bytes::from_static(b"k"), ..Default::default() };
    let unknown = |field, value| CodecError::UnknownValue { field, value };
    let missing = |field| CodecError::Missing { field };
    let cases = [
        (txn(vec![compare(5)], vec![]), unknown("Compare.op", 5)),
        (txn(vec![compare(0)], vec![]), missing("Compare.op")),
        (txn(vec![pb::Compare { target: None, ..compare(1) }], vec![]), missing("Compare.target")),
        (txn(vec![pb::Compare { range: None, ..compare(1) }], vec![]), missing("Compare.range")),
        (txn(vec![], vec![pb::txn_op::Op::Range(query(4, 1))]), unknown("RangeQuery.order", 4)),
        (txn(vec![], vec![pb::txn_op::Op::Range(query(1, 6))]), unknown("RangeQuery.target", 6)),
        (txn(vec![], vec![pb::txn_op::Op::Range(query(1, 0))]), missing("RangeQuery.target")),
        (
            pb::proposal::Command::DeleteRange(pb::DeleteRange {
                range: Some(pb::KeyRange { keys: None }),
                prev_kv: false,
            }),
            missing("KeyRange.keys"),
        ),
        (pb::proposal::Command::Put(put.clone()), missing("Put.value")),
        (
            pb::proposal::Command::Put(pb::Put { value: Some(pb::put::Value::Keep(pb::Unit {})), ..put }),
            missing("Put.lease"),
        ),
    ];
    for (command, wanted) in cases {
        let message = pb::Proposal { unix_ms: 5, skippable: true, command: Some(command), ..Default::default() };
        let mut bytes = vec![1];
        message.encode(&mut bytes).unwrap();
        assert_eq!(decode_proposal(bytes.into(), Supported::RELEASE), Err(wanted));
    }
    assert_eq!(decode_proposal(Bytes::new(), Supported::RELEASE), Err(CodecError::Empty { what: "the command" }));
    assert_eq!(decode_proposal(unhex("02 0805"), Supported::RELEASE), Err(CodecError::UnknownCommand));
    let error = decode_proposal(unhex("05 0805"), Supported::RELEASE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the command needs version 0.5, and this program is version 0.4: run version 0.5 or a newer one"
    );
    // An unknown field after a known command.
    let known = encode_proposal(&proposal(Command::Bootstrap(StoreEpoch(7)))).unwrap();
    let unknown = [&known[..], &unhex("f8 07 01")].concat();
    let error = decode_proposal(unknown.into(), Supported::RELEASE).unwrap_err();
    assert_eq!(error, CodecError::UnknownField { what: "the command" });
    assert!(matches!(decode_applied(unhex("01 08")), Err(CodecError::Malformed { .. })));
}

fn nested(depth: usize) -> Txn {
    let query = RangeQuery::new(KeyRange::Span { start: Bytes::new(), end: None });
    let innermost = Txn { success: vec![TxnOp::Range(query)], ..Txn::default() };
    (1..depth).fold(innermost, |txn, _| Txn { failure: vec![TxnOp::Txn(txn)], ..Txn::default() })
}

#[test]
fn nesting_is_bounded_such_that_what_is_written_can_be_read() {
    let deepest = proposal(Command::Txn(nested(TXN_DEPTH_MAX)));
    assert_eq!(decode_proposal(encode_proposal(&deepest).unwrap(), Supported::RELEASE), Ok(Some(deepest)));
    let too_deep = proposal(Command::Txn(nested(TXN_DEPTH_MAX + 1)));
    assert_eq!(encode_proposal(&too_deep), Err(CodecError::TooDeep { max: TXN_DEPTH_MAX }));

    let ranged = RangeDone {
        revision: Revision(1),
        result: RangeResult { kvs: vec![KeyValue::default()], more: false, count: 1 },
    };
    let innermost = TxnDone { succeeded: true, responses: vec![TxnOpDone::Range(ranged)] };
    let deepest =
        (1..TXN_DEPTH_MAX).fold(innermost, |txn, _| TxnDone { succeeded: false, responses: vec![TxnOpDone::Txn(txn)] });
    let applied = Applied { index: LogIndex(1), revision: Revision(1), outcome: Outcome::Txn(deepest) };
    assert_eq!(decode_applied(encode_applied(&applied)), Ok(applied));
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        bytes().prop_map(KeyRange::One),
        (bytes(), prop::option::of(bytes())).prop_map(|(start, end)| KeyRange::Span { start, end }),
    ]
}

fn any_put() -> impl Strategy<Value = Put> {
    let value = prop_oneof![bytes().prop_map(ValueChoice::Set), Just(ValueChoice::Keep)];
    let lease = prop_oneof![
        any::<i64>().prop_map(|id| LeaseChoice::Set(LeaseId(id))),
        Just(LeaseChoice::Keep),
        Just(LeaseChoice::KeepIfPresent),
    ];
    (bytes(), value, lease, any::<bool>()).prop_map(|(key, value, lease, prev_kv)| Put { key, value, lease, prev_kv })
}

fn query() -> impl Strategy<Value = RangeQuery> {
    let order = prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    let target = prop::sample::select(vec![
        SortTarget::Key,
        SortTarget::Version,
        SortTarget::Create,
        SortTarget::Mod,
        SortTarget::Value,
    ]);
    let at = prop_oneof![Just(ReadAt::Current), any::<i64>().prop_map(|at| ReadAt::Revision(Revision(at)))];
    let filter = any::<[i64; 4]>().prop_map(|[min_mod, max_mod, min_create, max_create]| RevisionFilter {
        min_mod,
        max_mod,
        min_create,
        max_create,
    });
    (
        key_range(),
        at,
        any::<u64>(),
        order,
        target,
        prop_oneof![Just(RevisionFilter::default()), filter],
        any::<[bool; 2]>(),
    )
        .prop_map(|(range, at, limit, order, target, filter, [keys_only, count_only])| RangeQuery {
            range,
            at,
            limit,
            order,
            target,
            filter,
            keys_only,
            count_only,
        })
}

fn delete() -> impl Strategy<Value = DeleteRange> {
    (key_range(), any::<bool>()).prop_map(|(range, prev_kv)| DeleteRange { range, prev_kv })
}

fn compare() -> impl Strategy<Value = Compare> {
    let op = prop::sample::select(vec![CompareOp::Equal, CompareOp::Greater, CompareOp::Less, CompareOp::NotEqual]);
    let target = prop_oneof![
        any::<i64>().prop_map(CompareTarget::Version),
        any::<i64>().prop_map(CompareTarget::CreateRevision),
        any::<i64>().prop_map(CompareTarget::ModRevision),
        bytes().prop_map(CompareTarget::Value),
        any::<i64>().prop_map(CompareTarget::Lease),
    ];
    (key_range(), op, target).prop_map(|(range, op, target)| Compare { range, op, target })
}

fn txn() -> impl Strategy<Value = Txn> {
    let flat = prop_oneof![
        query().prop_map(TxnOp::Range),
        any_put().prop_map(TxnOp::Put),
        delete().prop_map(TxnOp::DeleteRange),
        Just(TxnOp::Txn(Txn::default())),
    ];
    let op = flat.prop_recursive(3, 12, 3, |op| {
        let ops = prop::collection::vec(op, 0..3);
        (prop::collection::vec(compare(), 0..2), ops.clone(), ops)
            .prop_map(|(compares, success, failure)| TxnOp::Txn(Txn { compares, success, failure }))
    });
    let ops = prop::collection::vec(op, 0..3);
    (prop::collection::vec(compare(), 0..3), ops.clone(), ops).prop_map(|(compares, success, failure)| Txn {
        compares,
        success,
        failure,
    })
}

fn attachments() -> impl Strategy<Value = Vec<LeaseAttach>> {
    let attach = (any::<i64>(), bytes()).prop_map(|(id, key)| LeaseAttach { id: LeaseId(id), key });
    prop::collection::vec(attach, 0..3)
}

fn lease_command() -> impl Strategy<Value = Command> {
    let remaining = (any::<i64>(), any::<u64>(), any::<Option<u64>>()).prop_map(|(id, granted, remaining_ms)| {
        LeaseRemaining { id: LeaseId(id), granted: LogIndex(granted), remaining_ms }
    });
    prop_oneof![
        any::<[i64; 2]>()
            .prop_map(|[id, ttl_seconds]| Command::LeaseGrant(LeaseGrant { id: LeaseId(id), ttl_seconds })),
        any::<i64>().prop_map(|id| Command::LeaseRevoke(LeaseRevoke { id: LeaseId(id) })),
        (any::<i64>(), any::<[u64; 2]>()).prop_map(|(id, [granted, term])| {
            Command::LeaseExpire(LeaseExpire { id: LeaseId(id), granted: LogIndex(granted), term: Term(term) })
        }),
        (any::<[u64; 2]>(), prop::collection::vec(remaining, 0..4)).prop_map(|([term, clock_ms], leases)| {
            Command::LeaseCheckpoint(LeaseCheckpoint { term: Term(term), clock_ms, leases })
        }),
        (any::<i64>(), bytes()).prop_map(|(id, key)| Command::LeaseAttach(LeaseAttach { id: LeaseId(id), key })),
        (txn(), attachments(), attachments()).prop_map(|(txn, success, failure)| Command::LeaseTxn(LeaseTxn {
            txn,
            success,
            failure
        })),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        lease_command(),
        any::<u64>().prop_map(|epoch| Command::Bootstrap(StoreEpoch(epoch))),
        any_put().prop_map(Command::Put),
        (any::<u64>(), prop::sample::select(AlarmKind::ALL.to_vec()), any::<bool>()).prop_map(|(id, kind, active)| {
            Command::SetAlarm(SetAlarm { alarm: Alarm { member: NodeId(id), kind }, active })
        }),
        (any::<Option<u64>>(), any::<u64>())
            .prop_map(|(bytes_max, id)| { Command::SetQuota(Quota { bytes_max, member: NodeId(id) }) }),
        delete().prop_map(Command::DeleteRange),
        txn().prop_map(Command::Txn),
        any::<i64>().prop_map(|revision| Command::Compact(Compact { revision: Revision(revision) })),
        any::<u64>().prop_map(|from| Command::TrimHistory(TrimHistory { from: LogIndex(from) })),
    ]
}

fn kv() -> impl Strategy<Value = KeyValue> {
    (bytes(), bytes(), any::<[i64; 4]>()).prop_map(|(key, value, [create, modified, version, lease])| KeyValue {
        key,
        value,
        create_revision: Revision(create),
        mod_revision: Revision(modified),
        version,
        lease: LeaseId(lease),
    })
}

fn put_done() -> impl Strategy<Value = PutDone> {
    (any::<i64>(), prop::option::of(kv())).prop_map(|(revision, prev)| PutDone { revision: Revision(revision), prev })
}

fn deleted() -> impl Strategy<Value = Deleted> {
    (any::<i64>(), any::<u64>(), prop::collection::vec(kv(), 0..3)).prop_map(|(revision, deleted, prev)| Deleted {
        revision: Revision(revision),
        deleted,
        prev,
    })
}

fn ranged() -> impl Strategy<Value = RangeDone> {
    (any::<i64>(), prop::collection::vec(kv(), 0..3), any::<bool>(), any::<u64>()).prop_map(
        |(revision, kvs, more, count)| RangeDone {
            revision: Revision(revision),
            result: RangeResult { kvs, more, count },
        },
    )
}

fn txn_done() -> impl Strategy<Value = TxnDone> {
    let flat = prop_oneof![
        ranged().prop_map(TxnOpDone::Range),
        put_done().prop_map(TxnOpDone::Put),
        deleted().prop_map(TxnOpDone::DeleteRange),
    ];
    let op = flat.prop_recursive(3, 8, 3, |op| {
        (any::<bool>(), prop::collection::vec(op, 0..3))
            .prop_map(|(succeeded, responses)| TxnOpDone::Txn(TxnDone { succeeded, responses }))
    });
    (any::<bool>(), prop::collection::vec(op, 0..4)).prop_map(|(succeeded, responses)| TxnDone { succeeded, responses })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let revision = || any::<i64>().prop_map(Revision);
    prop_oneof![
        Just(Outcome::Nothing),
        Just(Outcome::Bootstrapped),
        Just(Outcome::Compacted),
        any::<i64>().prop_map(|ttl_seconds| Outcome::LeaseGranted { ttl_seconds }),
        any::<u64>().prop_map(|deleted| Outcome::LeaseEnded { deleted }),
        Just(Outcome::LeaseCheckpointed),
        Just(Outcome::LeaseAttached),
        put_done().prop_map(Outcome::Put),
        deleted().prop_map(Outcome::DeleteRange),
        txn_done().prop_map(Outcome::Txn),
        revision().prop_map(|compact_revision| Outcome::Refused(Refusal::Compacted { compact_revision })),
        revision().prop_map(|current| Outcome::Refused(Refusal::FutureRevision { current })),
        Just(Outcome::Refused(Refusal::KeyNotFound)),
        Just(Outcome::Refused(Refusal::LeaseNotFound)),
        Just(Outcome::Refused(Refusal::DuplicateKey)),
        Just(Outcome::Refused(Refusal::TooMuchRead)),
        Just(Outcome::Refused(Refusal::NoSpace)),
        Just(Outcome::Refused(Refusal::Corrupt)),
        any::<bool>().prop_map(|was_active| Outcome::AlarmSet { was_active }),
        Just(Outcome::QuotaSet),
    ]
}

proptest! {
    #[test]
    fn proposals_round_trip(unix_ms: u64, command in command(), face in prop::sample::select(&Face::ALL[..])) {
        let proposal = Proposal { face: (unix_ms % 2 == 0).then_some(face), ..Proposal::new(unix_ms, command) };
        let bytes = encode_proposal(&proposal).unwrap();
        prop_assert_eq!(decode_proposal(bytes, Supported::RELEASE), Ok(Some(proposal)));
    }

    #[test]
    fn outcomes_round_trip(index: u64, revision: i64, outcome in outcome()) {
        let applied = Applied { index: LogIndex(index), revision: Revision(revision), outcome };
        prop_assert_eq!(decode_applied(encode_applied(&applied)), Ok(applied));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), known_format: bool) {
        let mut bytes = bytes;
        if let (true, Some(first)) = (known_format, bytes.first_mut()) {
            *first = 1;
        }
        let bytes = Bytes::from(bytes);
        // Only the return matters, not the decoded value.
        drop(decode_proposal(bytes.clone(), Supported::RELEASE));
        drop(decode_applied(bytes));
    }

    #[test]
    fn damaged_proposals_never_panic(command in command(), at: prop::sample::Index, flip in 1..=255u8) {
        let mut bytes = encode_proposal(&proposal(command)).unwrap().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        drop(decode_proposal(bytes.into(), Supported::RELEASE));
    }
}
