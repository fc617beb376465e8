//! Leases of the early API (spec: etcd §7.5): those of the modern API, but attached to keys by
//! requests of their own.

use super::{EarlyService, convert, header};
use headwater_api_etcd::errors::{Failure, Invalid};
use headwater_api_etcd::validate;
use headwater_node::{Node, Read, RequestContext, validate_txn};
use headwater_proto::pb::early as pb;
use headwater_types::{Command, LeaseAttach, LeaseId, LeaseRevoke, LeaseTxn, LogIndex, Outcome};

pub(super) async fn create(
    service: &EarlyService,
    ctx: &RequestContext,
    request: pb::LeaseCreateRequest,
) -> Result<(LogIndex, pb::LeaseCreateResponse), Failure> {
    // This API leaves the id to the server.
    let granted = service.node.leases().grant(ctx, LeaseId::NONE, request.ttl).await?;
    let response = pb::LeaseCreateResponse {
        header: Some(service.header(granted.revision)),
        lease_id: granted.id.get(),
        ttl: granted.ttl_seconds,
        error: String::new(),
    };
    Ok((granted.index, response))
}

pub(super) async fn revoke(
    service: &EarlyService,
    ctx: &RequestContext,
    request: pb::LeaseRevokeRequest,
) -> Result<(LogIndex, pb::LeaseRevokeResponse), Failure> {
    let command = Command::LeaseRevoke(LeaseRevoke { id: LeaseId(request.lease_id) });
    let applied = service.node.propose(ctx, command).await?;
    let Outcome::LeaseEnded { .. } = applied.outcome else { return Err(Failure::Mismatch) };
    Ok((applied.index, pb::LeaseRevokeResponse { header: Some(service.header(applied.revision)) }))
}

pub(super) async fn attach(
    service: &EarlyService,
    ctx: &RequestContext,
    request: pb::LeaseAttachRequest,
) -> Result<(LogIndex, pb::LeaseAttachResponse), Failure> {
    let applied = service.node.propose(ctx, Command::LeaseAttach(attachment(request)?)).await?;
    let Outcome::LeaseAttached = applied.outcome else { return Err(Failure::Mismatch) };
    Ok((applied.index, pb::LeaseAttachResponse { header: Some(service.header(applied.revision)) }))
}

pub(super) async fn txn(
    service: &EarlyService,
    ctx: &RequestContext,
    request: pb::LeaseTxnRequest,
) -> Result<(LogIndex, pb::LeaseTxnResponse), Failure> {
    let request = decode(request, service.options.max_txn_ops)?;
    let (success, failure) = (request.success.len(), request.failure.len());
    // Always proposed, unlike a transaction that only reads: it may attach a lease.
    let applied = service.node.propose(ctx, Command::LeaseTxn(request)).await?;
    let Outcome::Txn(done) = applied.outcome else { return Err(Failure::Mismatch) };
    let header = service.header(applied.revision);
    let attached = if done.succeeded { success } else { failure };
    let one = pb::ResponseHeader { revision: applied.revision.get(), ..Default::default() };
    let response = pb::LeaseTxnResponse {
        header: Some(header.clone()),
        response: Some(convert::txn_done(header, done)?),
        attach_responses: vec![pb::LeaseAttachResponse { header: Some(one) }; attached],
    };
    Ok((applied.index, response))
}

pub(super) fn kept_alive(node: &Node, id: LeaseId, read: Read<Option<i64>>) -> pb::LeaseKeepAliveResponse {
    let header = Some(header(node, read.revision));
    pb::LeaseKeepAliveResponse { header, lease_id: id.get(), ttl: read.value.unwrap_or(0) }
}

/// Decodes a transaction with attachments. Refuses it if operations and attachments of one branch
/// together are more than `ops_max`.
fn decode(request: pb::LeaseTxnRequest, ops_max: usize) -> Result<LeaseTxn, Invalid> {
    let txn = convert::txn(request.request.unwrap_or_default(), ops_max)?;
    validate_txn(&txn, ops_max)?;
    validate::operations(0, txn.success.len() + request.success.len(), 0, ops_max)?;
    validate::operations(0, 0, txn.failure.len() + request.failure.len(), ops_max)?;
    let attachments = |list: Vec<pb::LeaseAttachRequest>| list.into_iter().map(attachment).collect::<Result<_, _>>();
    Ok(LeaseTxn { txn, success: attachments(request.success)?, failure: attachments(request.failure)? })
}

fn attachment(request: pb::LeaseAttachRequest) -> Result<LeaseAttach, Invalid> {
    validate::key(&request.key)?;
    Ok(LeaseAttach { id: LeaseId(request.lease_id), key: request.key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(key: &'static str) -> pb::LeaseAttachRequest {
        pb::LeaseAttachRequest { lease_id: 7, key: key.into() }
    }

    #[test]
    fn lists_are_bounded_and_keys_are_not_empty() {
        let put = || pb::RequestUnion {
            request: Some(pb::request_union::Request::RequestPut(pb::PutRequest {
                key: "k".into(),
                value: "v".into(),
            })),
        };
        let ask = |puts: usize, success: usize, failure: usize| {
            let request = pb::LeaseTxnRequest {
                request: Some(pb::TxnRequest { success: vec![put(); puts], ..Default::default() }),
                success: vec![attach("a"); success],
                failure: vec![attach("a"); failure],
            };
            decode(request, 128)
                .map(|request| (request.txn.success.len(), request.success.len(), request.failure.len()))
        };
        assert_eq!(ask(1, 127, 128), Ok((1, 127, 128)));
        assert_eq!(ask(1, 128, 0), Err(Invalid::TooManyOperations));
        assert_eq!(ask(0, 0, 129), Err(Invalid::TooManyOperations));
        assert_eq!(ask(2, 0, 0), Err(Invalid::DuplicateKey));
        let empty = pb::LeaseTxnRequest { success: vec![attach("")], ..Default::default() };
        assert_eq!(decode(empty, 128), Err(Invalid::EmptyKey));
        assert_eq!(decode(pb::LeaseTxnRequest::default(), 128), Ok(LeaseTxn::default()));
        assert_eq!(attachment(attach("k")), Ok(LeaseAttach { id: LeaseId(7), key: "k".into() }));
    }
}
