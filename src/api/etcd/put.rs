//! Put (spec: etcd §1.4).

use super::errors::{Failure, Invalid};
use super::{convert, header, validate};
use headwater_node::{Node, RequestContext};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{Command, LeaseChoice, LeaseId, LogIndex, Outcome, Put, ValueChoice};

pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    request: pb::PutRequest,
) -> Result<(LogIndex, pb::PutResponse), Failure> {
    let applied = node.propose(ctx, Command::Put(decode(request)?)).await?;
    let Outcome::Put(done) = applied.outcome else { return Err(Failure::Mismatch) };
    Ok((applied.index, convert::put(header::full(node, applied.revision), done)))
}

/// The command of a Put request.
///
/// # Errors
///
/// [`Invalid::EmptyKey`] if the key is empty; [`Invalid::ValueProvided`] and
/// [`Invalid::LeaseProvided`] if a value or a lease is given together with the flag to ignore it.
pub fn decode(request: pb::PutRequest) -> Result<Put, Invalid> {
    validate::key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Invalid::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Invalid::LeaseProvided);
    }
    Ok(Put {
        key: request.key,
        value: if request.ignore_value { ValueChoice::Keep } else { ValueChoice::Set(request.value) },
        lease: if request.ignore_lease { LeaseChoice::Keep } else { LeaseChoice::Set(LeaseId(request.lease)) },
        prev_kv: request.prev_kv,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> pb::PutRequest {
        pb::PutRequest { key: "k".into(), ..Default::default() }
    }

    #[test]
    fn fields_reach_the_command() {
        let set = |value: &'static str, lease| (ValueChoice::Set(value.into()), LeaseChoice::Set(LeaseId(lease)));
        let table = [
            (pb::PutRequest { value: "v".into(), lease: 7, ..ask() }, set("v", 7), false),
            (ask(), set("", 0), false),
            (pb::PutRequest { prev_kv: true, ..ask() }, set("", 0), true),
            (
                pb::PutRequest { ignore_value: true, lease: 7, ..ask() },
                (ValueChoice::Keep, LeaseChoice::Set(LeaseId(7))),
                false,
            ),
            (
                pb::PutRequest { ignore_lease: true, value: "v".into(), ..ask() },
                (ValueChoice::Set("v".into()), LeaseChoice::Keep),
                false,
            ),
        ];
        for (request, (value, lease), prev_kv) in table {
            assert_eq!(decode(request.clone()), Ok(Put { key: "k".into(), value, lease, prev_kv }), "{request:?}");
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        let table = [
            (pb::PutRequest { value: "v".into(), ..Default::default() }, Invalid::EmptyKey),
            (pb::PutRequest { value: "v".into(), ignore_value: true, ..ask() }, Invalid::ValueProvided),
            (pb::PutRequest { lease: 1, ignore_lease: true, ..ask() }, Invalid::LeaseProvided),
            (pb::PutRequest { lease: -1, ignore_lease: true, ..ask() }, Invalid::LeaseProvided),
        ];
        for (request, wanted) in table {
            assert_eq!(decode(request.clone()), Err(wanted), "{request:?}");
        }
    }
}
