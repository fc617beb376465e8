use super::*;
use headwater_types::limits::TXN_OPS_MAX;
use headwater_types::{Deleted, KeyValue, PutDone, RangeDone, RangeQuery, RangeResult};
use pb::compare::TargetUnion;
use pb::request_op::Request;

fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn get(key: &'static str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), ..Default::default() }
}

fn range(request: pb::RangeRequest) -> pb::RequestOp {
    op(Request::RequestRange(request))
}

fn put(key: &'static str) -> pb::RequestOp {
    op(Request::RequestPut(pb::PutRequest { key: key.into(), ..Default::default() }))
}

fn nested(txn: pb::TxnRequest) -> pb::RequestOp {
    op(Request::RequestTxn(txn))
}

fn success(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..Default::default() }
}

fn condition(result: i32, target: i32, target_union: Option<TargetUnion>) -> pb::Compare {
    pb::Compare { result, target, key: "k".into(), target_union, range_end: Default::default() }
}

#[test]
fn longest_list_is_counted_and_nested_ones_get_the_rest() {
    let puts = |count| vec![put("k"); count];
    let gets = |count| vec![range(get("k")); count];
    let compares = |count| vec![condition(0, 0, None); count];
    let max = TXN_OPS_MAX;
    let fits = [
        success(puts(max)),
        pb::TxnRequest { failure: gets(max), ..Default::default() },
        pb::TxnRequest { compare: compares(max), success: gets(max), failure: gets(max) },
        success(vec![nested(success(gets(max - 1)))]),
        success([gets(99), vec![nested(success(gets(max - 100)))]].concat()),
        success(vec![nested(success(vec![nested(success(gets(max - 2)))]))]),
        pb::TxnRequest { compare: compares(100), success: vec![nested(success(gets(max - 100)))], failure: vec![] },
        // Siblings do not share a budget.
        success(vec![nested(success(gets(max - 2))), nested(success(gets(max - 2)))]),
    ];
    for (n, request) in fits.into_iter().enumerate() {
        assert!(decode(request, max).is_ok(), "{n}");
    }
    let too_many = [
        success(puts(max + 1)),
        pb::TxnRequest { failure: gets(max + 1), ..Default::default() },
        pb::TxnRequest { compare: compares(max + 1), ..Default::default() },
        success(vec![nested(success(gets(max)))]),
        success([gets(99), vec![nested(success(gets(max - 99)))]].concat()),
        success(vec![nested(success(vec![nested(success(gets(max - 1)))]))]),
        pb::TxnRequest { compare: compares(100), success: vec![nested(success(gets(max - 99)))], failure: vec![] },
        pb::TxnRequest { failure: vec![nested(success(gets(max)))], ..Default::default() },
    ];
    for (n, request) in too_many.into_iter().enumerate() {
        assert_eq!(decode(request, max), Err(Invalid::TooManyOperations), "{n}");
    }
}

#[test]
fn a_tree_is_bounded_as_a_whole() {
    let ask = |outer: usize, inner: usize| {
        let innermost = pb::TxnRequest { compare: vec![condition(0, 0, None); inner], ..Default::default() };
        let middle = success(vec![nested(innermost); inner]);
        let request = decode(success(vec![nested(middle); outer]), TXN_OPS_MAX).expect("each list fits");
        validate_txn(&request, TXN_OPS_MAX).map_err(Invalid::from)
    };
    // 42 * (1 + 43 * (1 + 43)) compares and operations take 1.2 MB.
    assert_eq!(ask(42, 43), Err(Invalid::TooManyOperations));
    assert_eq!(ask(5, 9), Ok(()));
}

#[test]
fn malformed_operations_are_refused_wherever_they_are() {
    let put_with = |put: pb::PutRequest| op(Request::RequestPut(pb::PutRequest { key: "k".into(), ..put }));
    let table = [
        (range(pb::RangeRequest::default()), Invalid::EmptyKey),
        (range(pb::RangeRequest { sort_target: 9, ..get("k") }), Invalid::SortOption),
        (put(""), Invalid::EmptyKey),
        (
            put_with(pb::PutRequest { ignore_value: true, value: "v".into(), ..Default::default() }),
            Invalid::ValueProvided,
        ),
        (put_with(pb::PutRequest { ignore_lease: true, lease: 1, ..Default::default() }), Invalid::LeaseProvided),
        (op(Request::RequestDeleteRange(pb::DeleteRangeRequest::default())), Invalid::EmptyKey),
        (pb::RequestOp { request: None }, Invalid::EmptyOperation),
        (nested(pb::TxnRequest { compare: vec![pb::Compare::default()], ..Default::default() }), Invalid::EmptyKey),
    ];
    for (op, wanted) in table {
        let requests = [
            success(vec![op.clone()]),
            pb::TxnRequest { failure: vec![put("a"), op.clone()], ..Default::default() },
            success(vec![nested(success(vec![op.clone()]))]),
        ];
        for request in requests {
            assert_eq!(decode(request, TXN_OPS_MAX), Err(wanted), "{op:?}");
        }
    }
    let compares = [
        (pb::Compare::default(), Invalid::EmptyKey),
        (condition(4, 0, None), Invalid::CompareOption),
        (condition(-1, 0, None), Invalid::CompareOption),
        (condition(0, 5, None), Invalid::CompareOption),
    ];
    for (compare, wanted) in compares {
        let request = pb::TxnRequest { compare: vec![compare.clone()], ..Default::default() };
        assert_eq!(decode(request, TXN_OPS_MAX), Err(wanted), "{compare:?}");
    }
}

#[test]
fn compares_take_only_a_value_of_their_kind() {
    let version = || Some(TargetUnion::Version(7));
    let table = [
        (condition(0, 0, version()), CompareOp::Equal, CompareTarget::Version(7)),
        (condition(1, 1, Some(TargetUnion::CreateRevision(7))), CompareOp::Greater, CompareTarget::CreateRevision(7)),
        (condition(2, 2, Some(TargetUnion::ModRevision(7))), CompareOp::Less, CompareTarget::ModRevision(7)),
        (condition(3, 3, Some(TargetUnion::Value("v".into()))), CompareOp::NotEqual, CompareTarget::Value("v".into())),
        (condition(0, 4, Some(TargetUnion::Lease(7))), CompareOp::Equal, CompareTarget::Lease(7)),
        (condition(0, 0, None), CompareOp::Equal, CompareTarget::Version(0)),
        (condition(0, 1, version()), CompareOp::Equal, CompareTarget::CreateRevision(0)),
        (condition(0, 2, version()), CompareOp::Equal, CompareTarget::ModRevision(0)),
        (condition(0, 3, version()), CompareOp::Equal, CompareTarget::Value("".into())),
        (condition(0, 4, version()), CompareOp::Equal, CompareTarget::Lease(0)),
        (condition(0, 0, Some(TargetUnion::Lease(7))), CompareOp::Equal, CompareTarget::Version(0)),
    ];
    for (wire, op, target) in table {
        let wanted = Compare { range: KeyRange::One("k".into()), op, target };
        assert_eq!(compare(wire.clone()), Ok(wanted), "{wire:?}");
    }
    let open = pb::Compare { range_end: "\0".into(), ..condition(0, 0, None) };
    assert_eq!(compare(open).unwrap().range, KeyRange::Span { start: "k".into(), end: None });
}

#[test]
fn only_zero_is_the_current_revision_inside() {
    for (revision, at) in [(0, ReadAt::Current), (-1, ReadAt::Revision((-1).into())), (3, ReadAt::Revision(3.into()))] {
        let request = success(vec![range(pb::RangeRequest { revision, ..get("k") })]);
        let query = RangeQuery { at, ..RangeQuery::new(KeyRange::One("k".into())) };
        assert_eq!(decode(request, TXN_OPS_MAX).unwrap().success, [TxnOp::Range(query)]);
    }
}

#[test]
fn serializable_only_if_every_range_says_so() {
    let fast = || range(pb::RangeRequest { serializable: true, ..get("k") });
    let table = [
        (success(vec![fast()]), Consistency::Serializable),
        (pb::TxnRequest { success: vec![fast()], failure: vec![fast()], compare: vec![] }, Consistency::Serializable),
        (
            pb::TxnRequest { success: vec![fast()], failure: vec![range(get("k"))], compare: vec![] },
            Consistency::Linearizable,
        ),
        (success(vec![fast(), range(get("k"))]), Consistency::Linearizable),
        (success(vec![]), Consistency::Linearizable),
        (success(vec![fast(), put("k")]), Consistency::Linearizable),
    ];
    for (request, wanted) in table {
        assert_eq!(consistency(&request), wanted, "{request:?}");
    }
}

#[test]
fn inner_headers_have_a_revision_and_nested_ones_nothing() {
    let kv = KeyValue { key: "k".into(), ..Default::default() };
    let done = TxnDone {
        succeeded: true,
        responses: vec![
            TxnOpDone::Range(RangeDone {
                revision: 5.into(),
                result: RangeResult { kvs: vec![kv.clone()], more: true, count: 3 },
            }),
            TxnOpDone::Put(PutDone { revision: 6.into(), prev: Some(kv.clone()) }),
            TxnOpDone::DeleteRange(Deleted { revision: 6.into(), deleted: 1, prev: vec![kv] }),
            TxnOpDone::Txn(TxnDone {
                succeeded: false,
                responses: vec![TxnOpDone::Put(PutDone { revision: 6.into(), prev: None })],
            }),
        ],
    };
    let outer = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 6, raft_term: 4 };
    let pair = || headwater_proto::pb::mvccpb::KeyValue { key: "k".into(), ..Default::default() };
    let inner = |revision| Some(pb::ResponseHeader { revision, ..Default::default() });
    use pb::response_op::Response;
    let response = |response| pb::ResponseOp { response: Some(response) };
    let wanted = pb::TxnResponse {
        header: Some(outer),
        succeeded: true,
        responses: vec![
            response(Response::ResponseRange(pb::RangeResponse {
                header: inner(5),
                kvs: vec![pair()],
                more: true,
                count: 3,
            })),
            response(Response::ResponsePut(pb::PutResponse { header: inner(6), prev_kv: Some(pair()) })),
            response(Response::ResponseDeleteRange(pb::DeleteRangeResponse {
                header: inner(6),
                deleted: 1,
                prev_kvs: vec![pair()],
            })),
            response(Response::ResponseTxn(pb::TxnResponse {
                header: Some(pb::ResponseHeader::default()),
                succeeded: false,
                responses: vec![response(Response::ResponsePut(pb::PutResponse { header: inner(6), prev_kv: None }))],
            })),
        ],
    };
    assert_eq!(encode(outer, done), wanted);
}
