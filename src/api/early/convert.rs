//! Conversions between the early messages and the types of the store. The messages have fewer
//! fields than those of the modern API (`etcdserverpb`), and a put keeps the key's lease.

use headwater_api_etcd::errors::{Failure, Invalid};
use headwater_api_etcd::validate;
use headwater_proto::pb::early as pb;
use headwater_types::{
    Compare, CompareOp, CompareTarget, DeleteRange, KeyRange, KeyValue, LeaseChoice, Put, RangeQuery, RangeResult,
    ReadAt, Revision, Txn, TxnDone, TxnOp, TxnOpDone, ValueChoice,
};

/// The query of a range request. A revision of at most 0 means the current state, also inside a
/// transaction. There, the modern API takes only 0 for the current state.
pub(super) fn range(request: pb::RangeRequest) -> Result<RangeQuery, Invalid> {
    validate::key(&request.key)?;
    let at = match request.revision {
        ..=0 => ReadAt::Current,
        revision => ReadAt::Revision(Revision(revision)),
    };
    let limit = u64::try_from(request.limit).unwrap_or(0);
    Ok(RangeQuery { at, limit, ..RangeQuery::new(KeyRange::from_etcd(request.key, request.range_end)) })
}

/// The command of a put. It keeps the key's lease, because this API attaches leases apart from puts
/// (spec: etcd §7.5).
pub(super) fn put(request: pb::PutRequest) -> Result<Put, Invalid> {
    validate::key(&request.key)?;
    Ok(Put {
        key: request.key,
        value: ValueChoice::Set(request.value),
        lease: LeaseChoice::KeepIfPresent,
        prev_kv: false,
    })
}

pub(super) fn delete_range(request: pb::DeleteRangeRequest) -> Result<DeleteRange, Invalid> {
    validate::key(&request.key)?;
    Ok(DeleteRange { range: KeyRange::from_etcd(request.key, request.range_end), prev_kv: false })
}

pub(super) fn txn(request: pb::TxnRequest, budget: usize) -> Result<Txn, Invalid> {
    validate::operations(request.compare.len(), request.success.len(), request.failure.len(), budget)?;
    let operations = |ops: Vec<pb::RequestUnion>| ops.into_iter().map(operation).collect::<Result<_, _>>();
    Ok(Txn {
        compares: request.compare.into_iter().map(compare).collect::<Result<_, _>>()?,
        success: operations(request.success)?,
        failure: operations(request.failure)?,
    })
}

fn operation(op: pb::RequestUnion) -> Result<TxnOp, Invalid> {
    use pb::request_union::Request;
    match op.request {
        Some(Request::RequestRange(request)) => range(request).map(TxnOp::Range),
        Some(Request::RequestPut(request)) => put(request).map(TxnOp::Put),
        Some(Request::RequestDeleteRange(request)) => delete_range(request).map(TxnOp::DeleteRange),
        None => Err(Invalid::EmptyOperation),
    }
}

fn compare(compare: pb::Compare) -> Result<Compare, Invalid> {
    use pb::compare::{CompareResult, CompareTarget as Target, TargetUnion};
    validate::key(&compare.key)?;
    let op = match CompareResult::try_from(compare.result).map_err(|_| Invalid::CompareOption)? {
        CompareResult::Equal => CompareOp::Equal,
        CompareResult::Greater => CompareOp::Greater,
        CompareResult::Less => CompareOp::Less,
    };
    let target = match Target::try_from(compare.target).map_err(|_| Invalid::CompareOption)? {
        Target::Version => CompareTarget::Version(match compare.target_union {
            Some(TargetUnion::Version(version)) => version,
            _ => 0,
        }),
        Target::Create => CompareTarget::CreateRevision(match compare.target_union {
            Some(TargetUnion::CreateRevision(revision)) => revision,
            _ => 0,
        }),
        Target::Mod => CompareTarget::ModRevision(match compare.target_union {
            Some(TargetUnion::ModRevision(revision)) => revision,
            _ => 0,
        }),
        Target::Value => CompareTarget::Value(match compare.target_union {
            Some(TargetUnion::Value(value)) => value,
            _ => Default::default(),
        }),
    };
    Ok(Compare { range: KeyRange::One(compare.key), op, target })
}

/// The early message of a key-value pair, which has no field for the lease.
pub(super) fn key_value(kv: KeyValue) -> pb::KeyValue {
    pb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision.get(),
        mod_revision: kv.mod_revision.get(),
        version: kv.version,
        value: kv.value,
    }
}

pub(super) fn ranged(header: pb::ResponseHeader, result: RangeResult) -> pb::RangeResponse {
    let kvs = result.kvs.into_iter().map(key_value).collect();
    pb::RangeResponse { header: Some(header), kvs, more: result.more }
}

pub(super) fn txn_done(header: pb::ResponseHeader, done: TxnDone) -> Result<pb::TxnResponse, Failure> {
    let responses = done.responses.into_iter().map(operation_done).collect::<Result<_, _>>()?;
    Ok(pb::TxnResponse { header: Some(header), succeeded: done.succeeded, responses })
}

fn operation_done(done: TxnOpDone) -> Result<pb::ResponseUnion, Failure> {
    use pb::response_union::Response;
    let header = |revision: Revision| pb::ResponseHeader { revision: revision.get(), ..Default::default() };
    let response = match done {
        TxnOpDone::Range(done) => Response::ResponseRange(ranged(header(done.revision), done.result)),
        TxnOpDone::Put(done) => Response::ResponsePut(pb::PutResponse { header: Some(header(done.revision)) }),
        TxnOpDone::DeleteRange(done) => {
            Response::ResponseDeleteRange(pb::DeleteRangeResponse { header: Some(header(done.revision)) })
        }
        // The early API cannot ask for a nested transaction.
        TxnOpDone::Txn(_) => return Err(Failure::Mismatch),
    };
    Ok(pb::ResponseUnion { response: Some(response) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{Deleted, LeaseId, PutDone, RangeDone};
    use pb::compare::TargetUnion;

    fn op(request: pb::request_union::Request) -> pb::RequestUnion {
        pb::RequestUnion { request: Some(request) }
    }

    fn put_op(key: &'static str) -> pb::RequestUnion {
        op(pb::request_union::Request::RequestPut(pb::PutRequest { key: key.into(), value: "v".into() }))
    }

    #[test]
    fn a_put_keeps_the_lease_of_its_key() {
        let wanted = Put {
            key: "k".into(),
            value: ValueChoice::Set("v".into()),
            lease: LeaseChoice::KeepIfPresent,
            prev_kv: false,
        };
        assert_eq!(put(pb::PutRequest { key: "k".into(), value: "v".into() }), Ok(wanted.clone()));
        let request = pb::TxnRequest { success: vec![put_op("k")], ..Default::default() };
        assert_eq!(txn(request, 1).unwrap().success, [TxnOp::Put(wanted)]);
    }

    #[test]
    fn a_revision_up_to_zero_is_current_everywhere() {
        for (revision, wanted) in [
            (i64::MIN, ReadAt::Current),
            (-1, ReadAt::Current),
            (0, ReadAt::Current),
            (2, ReadAt::Revision(Revision(2))),
        ] {
            let request = pb::RangeRequest { key: "k".into(), revision, ..Default::default() };
            assert_eq!(range(request.clone()).unwrap().at, wanted);
            let inside = op(pb::request_union::Request::RequestRange(request));
            let done = txn(pb::TxnRequest { failure: vec![inside], ..Default::default() }, 1).unwrap();
            let [TxnOp::Range(query)] = done.failure.as_slice() else { panic!("{done:?}") };
            assert_eq!(query.at, wanted);
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        assert_eq!(range(pb::RangeRequest::default()), Err(Invalid::EmptyKey));
        assert_eq!(put(pb::PutRequest::default()), Err(Invalid::EmptyKey));
        assert_eq!(delete_range(pb::DeleteRangeRequest::default()), Err(Invalid::EmptyKey));
        let ops = |success: Vec<_>| txn(pb::TxnRequest { success, ..Default::default() }, 128);
        assert!(ops(vec![put_op("k"); 128]).is_ok());
        assert_eq!(ops(vec![put_op("k"); 129]), Err(Invalid::TooManyOperations));
        assert_eq!(ops(vec![put_op("")]), Err(Invalid::EmptyKey));
        assert_eq!(ops(vec![pb::RequestUnion::default()]), Err(Invalid::EmptyOperation));
        let compares = [
            (pb::Compare::default(), Invalid::EmptyKey),
            (pb::Compare { key: "k".into(), result: 3, ..Default::default() }, Invalid::CompareOption),
            (pb::Compare { key: "k".into(), target: 4, ..Default::default() }, Invalid::CompareOption),
        ];
        for (wire, wanted) in compares {
            assert_eq!(compare(wire.clone()), Err(wanted), "{wire:?}");
        }
    }

    #[test]
    fn compares_arrive() {
        let table = [
            (0, 0, TargetUnion::Version(7), CompareOp::Equal, CompareTarget::Version(7)),
            (1, 1, TargetUnion::CreateRevision(7), CompareOp::Greater, CompareTarget::CreateRevision(7)),
            (2, 2, TargetUnion::ModRevision(7), CompareOp::Less, CompareTarget::ModRevision(7)),
            (0, 3, TargetUnion::Value("v".into()), CompareOp::Equal, CompareTarget::Value("v".into())),
            (0, 0, TargetUnion::ModRevision(7), CompareOp::Equal, CompareTarget::Version(0)),
        ];
        for (result, wire_target, given, op, target) in table {
            let wire = pb::Compare { result, target: wire_target, key: "k".into(), target_union: Some(given) };
            assert_eq!(compare(wire), Ok(Compare { range: KeyRange::One("k".into()), op, target }));
        }
    }

    #[test]
    fn answers_leave_out_what_the_early_api_does_not_know() {
        let kv = KeyValue {
            key: "k".into(),
            value: "v".into(),
            create_revision: 2.into(),
            mod_revision: 3.into(),
            version: 4,
            lease: LeaseId(5),
        };
        let wire = pb::KeyValue { key: "k".into(), create_revision: 2, mod_revision: 3, version: 4, value: "v".into() };
        let inner = |revision| Some(pb::ResponseHeader { revision, ..Default::default() });
        let result = RangeResult { kvs: vec![kv.clone()], more: true, count: 9 };
        let done = TxnDone {
            succeeded: true,
            responses: vec![
                TxnOpDone::Range(RangeDone { revision: 3.into(), result }),
                TxnOpDone::Put(PutDone { revision: 4.into(), prev: None }),
                TxnOpDone::DeleteRange(Deleted { revision: 4.into(), deleted: 1, prev: vec![] }),
            ],
        };
        use pb::response_union::Response;
        let response = |response| pb::ResponseUnion { response: Some(response) };
        let header = pb::ResponseHeader { revision: 4, raft_term: 1, ..Default::default() };
        let wanted = pb::TxnResponse {
            header: Some(header.clone()),
            succeeded: true,
            responses: vec![
                response(Response::ResponseRange(pb::RangeResponse { header: inner(3), kvs: vec![wire], more: true })),
                response(Response::ResponsePut(pb::PutResponse { header: inner(4) })),
                response(Response::ResponseDeleteRange(pb::DeleteRangeResponse { header: inner(4) })),
            ],
        };
        assert_eq!(txn_done(header.clone(), done), Ok(wanted));
        let nested = TxnDone { succeeded: true, responses: vec![TxnOpDone::Txn(TxnDone::default())] };
        assert_eq!(txn_done(header, nested), Err(Failure::Mismatch));
    }
}
