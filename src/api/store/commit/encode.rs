//! The answer of a commit.

use headwater_api_shared::context::write_epoch_text;
use headwater_api_shared::key_value::key_value;
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::operation::Operation;
use headwater_proto::pb::{etcdserverpb, pbresource};
use headwater_types::StoreEpoch;
use headwater_types::commit::{CommitDone, CommitResult};
use headwater_types::resource::ResourceDeletion;

/// The kind of an operation, as far as the message of its result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Status,
    Deregister,
    Other,
}

/// The kind of each operation of a request, in order.
pub(super) fn kinds(request: &pb::CommitRequest) -> Vec<Kind> {
    let kind = |operation: &pb::Operation| match operation.operation {
        Some(Operation::WriteResourceStatus(_)) => Kind::Status,
        Some(Operation::Deregister(_)) => Kind::Deregister,
        _ => Kind::Other,
    };
    request.operations.iter().map(kind).collect()
}

/// The answer to a commit. `kinds` are those of its operations, in order: they choose the message
/// of each result. `epoch` is the lineage of the index, if the node knows it.
pub(super) fn response(done: CommitDone, kinds: &[Kind], epoch: Option<StoreEpoch>) -> pb::CommitResponse {
    let results = done.results.into_iter().enumerate();
    pb::CommitResponse {
        index: done.index.get(),
        revision: done.revision.get(),
        done_before: done.is_repeated,
        results: results.map(|(number, it)| result(it, kinds.get(number).copied().unwrap_or(Kind::Other))).collect(),
        epoch: epoch.map(write_epoch_text).unwrap_or_default(),
    }
}

fn result(result: CommitResult, kind: Kind) -> pb::OperationResult {
    use pb::operation_result::Result as Wire;
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let result = match result {
        CommitResult::Put { prev } => {
            Wire::Put(etcdserverpb::PutResponse { header: None, prev_kv: prev.map(key_value) })
        }
        CommitResult::Deleted { deleted, prev } => Wire::DeleteRange(etcdserverpb::DeleteRangeResponse {
            header: None,
            deleted: count(deleted),
            prev_kvs: prev.into_iter().map(key_value).collect(),
        }),
        CommitResult::LeaseGranted { id, ttl_seconds } => Wire::GrantLease(etcdserverpb::LeaseGrantResponse {
            header: None,
            id: id.get(),
            ttl: ttl_seconds,
            error: String::new(),
        }),
        CommitResult::LeaseRevoked { deleted: _ } => {
            Wire::RevokeLease(etcdserverpb::LeaseRevokeResponse { header: None })
        }
        CommitResult::ResourceWritten(resource) => {
            let resource = Some((*resource).into());
            match kind {
                Kind::Status => Wire::WriteResourceStatus(pbresource::WriteStatusResponse { resource }),
                Kind::Deregister | Kind::Other => Wire::WriteResource(pbresource::WriteResponse { resource }),
            }
        }
        CommitResult::ResourceDeleted(
            ResourceDeletion::Nothing | ResourceDeletion::Marked | ResourceDeletion::Removed,
        ) => Wire::DeleteResource(pbresource::DeleteResponse {}),
        CommitResult::Catalog { changed: _ } => match kind {
            Kind::Deregister => Wire::Deregister(pb::Deregistered {}),
            Kind::Status | Kind::Other => Wire::Register(pb::Registered {}),
        },
        CommitResult::SessionCreated { id } => Wire::CreateSession(pb::SessionCreated { id }),
        CommitResult::SessionDestroyed => Wire::DestroySession(pb::SessionDestroyed {}),
        CommitResult::ConsulKv => Wire::ConsulKv(pb::ConsulKvDone {}),
    };
    pb::OperationResult { result: Some(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{LogIndex, Revision};

    #[test]
    fn results_are_of_the_kind_of_their_operations() {
        let operation = |operation| pb::Operation { operation: Some(operation) };
        let request = pb::CommitRequest {
            operations: vec![
                operation(Operation::Register(pb::Register::default())),
                operation(Operation::Deregister(pb::Deregister::default())),
                operation(Operation::WriteResource(pbresource::WriteRequest::default())),
                operation(Operation::WriteResourceStatus(pbresource::WriteStatusRequest::default())),
            ],
            ..Default::default()
        };
        let written = || CommitResult::ResourceWritten(Box::default());
        let catalog = || CommitResult::Catalog { changed: true };
        let results = vec![catalog(), catalog(), written(), written()];
        let done = CommitDone { index: LogIndex(5), revision: Revision(3), is_repeated: true, results };
        let answer = response(done, &kinds(&request), Some(StoreEpoch(1)));
        assert_eq!((answer.index, answer.revision, answer.done_before), (5, 3, true));
        use pb::operation_result::Result as Wire;
        let [a, b, c, d] = &answer.results[..] else { panic!("four results") };
        assert!(matches!(a.result, Some(Wire::Register(_))) && matches!(b.result, Some(Wire::Deregister(_))));
        assert!(matches!(c.result, Some(Wire::WriteResource(_))));
        assert!(matches!(d.result, Some(Wire::WriteResourceStatus(_))));
    }
}
