//! Txn (spec: etcd §1.6).

use super::errors::{Failure, Invalid};
use super::{convert, delete_range, header, put, range, validate};
use headwater_node::{Consistency, Node, RequestContext, validate_txn};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{
    Command, Compare, CompareOp, CompareTarget, KeyRange, LogIndex, Outcome, ReadAt, Revision, Txn, TxnDone, TxnOp,
    TxnOpDone,
};

pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    request: pb::TxnRequest,
    ops_max: usize,
) -> Result<(LogIndex, pb::TxnResponse), Failure> {
    let consistency = consistency(&request);
    let txn = decode(request, ops_max)?;
    validate_txn(&txn, ops_max).map_err(Invalid::from)?;
    let (index, revision, done) = if txn.is_read_only() {
        let read = node.keys().read_txn(ctx, consistency, txn).await?;
        (read.index, read.revision, read.value)
    } else {
        let applied = node.propose(ctx, Command::Txn(txn)).await?;
        let Outcome::Txn(done) = applied.outcome else { return Err(Failure::Mismatch) };
        (applied.index, applied.revision, done)
    };
    Ok((index, encode(header::full(node, revision), done)))
}

/// The consistency of a read-only transaction: serializable if it has operations and each is a
/// range that asks for it, else linearizable.
fn consistency(request: &pb::TxnRequest) -> Consistency {
    let mut ops = request.success.iter().chain(&request.failure).peekable();
    let gives_up = |op: &pb::RequestOp| match &op.request {
        Some(pb::request_op::Request::RequestRange(range)) => range.serializable,
        _ => false,
    };
    if ops.peek().is_some() && ops.all(gives_up) { Consistency::Serializable } else { Consistency::Linearizable }
}

/// Decodes a transaction. Each of its lists may have at most `budget` items. The budget of each
/// nested transaction is `budget` minus the length of the longest list. Nesting is bounded by the
/// depth that protobuf decoding allows.
fn decode(request: pb::TxnRequest, budget: usize) -> Result<Txn, Invalid> {
    let (compares, success, failure) = (request.compare.len(), request.success.len(), request.failure.len());
    let rest = validate::operations(compares, success, failure, budget)?;
    Ok(Txn {
        compares: request.compare.into_iter().map(compare).collect::<Result<_, _>>()?,
        success: operations(request.success, rest)?,
        failure: operations(request.failure, rest)?,
    })
}

fn operations(ops: Vec<pb::RequestOp>, budget: usize) -> Result<Vec<TxnOp>, Invalid> {
    use pb::request_op::Request;
    ops.into_iter()
        .map(|op| match op.request {
            Some(Request::RequestRange(request)) => {
                let at = inner_revision(request.revision);
                range::decode(request, at).map(TxnOp::Range)
            }
            Some(Request::RequestPut(request)) => put::decode(request).map(TxnOp::Put),
            Some(Request::RequestDeleteRange(request)) => delete_range::decode(request).map(TxnOp::DeleteRange),
            Some(Request::RequestTxn(request)) => decode(request, budget).map(TxnOp::Txn),
            None => Err(Invalid::EmptyOperation),
        })
        .collect()
}

/// The state that a revision inside a transaction names: the current one for 0 only. A negative
/// revision counts as compacted, unlike outside of transactions.
fn inner_revision(revision: i64) -> ReadAt {
    if revision == 0 { ReadAt::Current } else { ReadAt::Revision(Revision(revision)) }
}

/// The compare of a message. A value of another kind than the target counts as zero or empty.
///
/// # Errors
///
/// [`Invalid::EmptyKey`] if the key is empty; [`Invalid::CompareOption`] if the result or the
/// target is unknown.
pub fn compare(compare: pb::Compare) -> Result<Compare, Invalid> {
    use pb::compare::{CompareResult, CompareTarget as Target, TargetUnion};
    validate::key(&compare.key)?;
    let op = match CompareResult::try_from(compare.result).map_err(|_| Invalid::CompareOption)? {
        CompareResult::Equal => CompareOp::Equal,
        CompareResult::Greater => CompareOp::Greater,
        CompareResult::Less => CompareOp::Less,
        CompareResult::NotEqual => CompareOp::NotEqual,
    };
    // A value of another kind than the target counts as missing, and a missing value is zero or
    // empty.
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
        Target::Lease => CompareTarget::Lease(match compare.target_union {
            Some(TargetUnion::Lease(lease)) => lease,
            _ => 0,
        }),
    };
    Ok(Compare { range: KeyRange::from_etcd(compare.key, compare.range_end), op, target })
}

fn encode(header: pb::ResponseHeader, done: TxnDone) -> pb::TxnResponse {
    let responses = done.responses.into_iter().map(operation_done).collect();
    pb::TxnResponse { header: Some(header), succeeded: done.succeeded, responses }
}

fn operation_done(done: TxnOpDone) -> pb::ResponseOp {
    use pb::response_op::Response;
    let response = match done {
        TxnOpDone::Range(done) => Response::ResponseRange(convert::ranged(header::inner(done.revision), done.result)),
        TxnOpDone::Put(done) => Response::ResponsePut(convert::put(header::inner(done.revision), done)),
        TxnOpDone::DeleteRange(done) => {
            Response::ResponseDeleteRange(convert::deleted(header::inner(done.revision), done))
        }
        // The header of a nested transaction is present and empty.
        TxnOpDone::Txn(done) => Response::ResponseTxn(encode(pb::ResponseHeader::default(), done)),
    };
    pb::ResponseOp { response: Some(response) }
}

#[cfg(test)]
#[path = "txn_tests.rs"]
mod tests;
