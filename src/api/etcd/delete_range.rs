//! DeleteRange (spec: etcd §1.5).

use super::errors::{Failure, Invalid};
use super::{convert, header, validate};
use headwater_node::{Node, RequestContext};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{Command, DeleteRange, KeyRange, LogIndex, Outcome};

pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    request: pb::DeleteRangeRequest,
) -> Result<(LogIndex, pb::DeleteRangeResponse), Failure> {
    let applied = node.propose(ctx, Command::DeleteRange(decode(request)?)).await?;
    let Outcome::DeleteRange(done) = applied.outcome else { return Err(Failure::Mismatch) };
    Ok((applied.index, convert::deleted(header::full(node, applied.revision), done)))
}

/// The command of a DeleteRange request.
///
/// # Errors
///
/// [`Invalid::EmptyKey`] if the key is empty.
pub fn decode(request: pb::DeleteRangeRequest) -> Result<DeleteRange, Invalid> {
    validate::key(&request.key)?;
    Ok(DeleteRange { range: KeyRange::from_etcd(request.key, request.range_end), prev_kv: request.prev_kv })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_conventions_end_here() {
        let span = |end: Option<&'static str>| KeyRange::Span { start: "k".into(), end: end.map(Into::into) };
        for (range_end, range) in [("", KeyRange::One("k".into())), ("\0", span(None)), ("z", span(Some("z")))] {
            let request = pb::DeleteRangeRequest { key: "k".into(), range_end: range_end.into(), prev_kv: true };
            assert_eq!(decode(request), Ok(DeleteRange { range, prev_kv: true }));
        }
        assert_eq!(decode(pb::DeleteRangeRequest::default()), Err(Invalid::EmptyKey));
    }
}
