//! RangeStream (spec: etcd §1.3): a range in pieces, never whole in memory.

use std::vec;

use futures::{Stream, StreamExt, stream};
use tonic::Status;

use super::errors::{Failure, Invalid};
use super::{convert, header, range};
use crate::node::{Node, NodeError, RangePiece, RequestContext};
use crate::pb::etcdserverpb as pb;
use crate::types::limits::REQUEST_BYTES_MAX;
use crate::types::{KeyValue, LogIndex, SortOrder, SortTarget};

pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    request: pb::RangeRequest,
) -> Result<(LogIndex, impl Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send + use<>), Failure> {
    let consistency = range::consistency(&request);
    let at = range::unary_revision(request.revision);
    let mut query = range::decode(request, at)?;
    streamable(&query.order, &query.target)?;
    if query.filter.is_active() {
        return Err(Invalid::StreamFilter.into());
    }
    (query.order, query.target) = (SortOrder::None, SortTarget::Key);

    let read = node.range_stream(ctx, consistency, query).await?;
    let header = header::full(node, read.revision);
    let responses = read.value.flat_map(move |piece| stream::iter(encode(&header, piece)));
    Ok((read.index, responses))
}

/// Only key order can be streamed. A target without an order is let through and ignored, as etcd does.
fn streamable(order: &SortOrder, target: &SortTarget) -> Result<(), Invalid> {
    match (order, target) {
        (SortOrder::None, _) | (SortOrder::Ascend, SortTarget::Key) => Ok(()),
        (SortOrder::Ascend | SortOrder::Descend, _) => Err(Invalid::StreamOrder),
    }
}

/// Only the last response has a header, `more` and the count.
fn encode(
    header: &pb::ResponseHeader,
    piece: Result<RangePiece, NodeError>,
) -> vec::IntoIter<Result<pb::RangeStreamResponse, Status>> {
    let responses = match piece {
        Ok(RangePiece::Kvs(kvs)) => split(kvs, REQUEST_BYTES_MAX)
            .into_iter()
            .map(|kvs| Ok(pb::RangeResponse { kvs: convert::key_values(kvs), ..Default::default() }))
            .collect(),
        Ok(RangePiece::End { more, count }) => {
            vec![Ok(pb::RangeResponse { header: Some(*header), kvs: vec![], more, count: convert::count(count) })]
        }
        Err(error) => vec![Err(Status::from(Failure::from(error)))],
    };
    let wrap = |range_response| pb::RangeStreamResponse { range_response: Some(range_response) };
    responses.into_iter().map(|response| response.map(wrap)).collect::<Vec<_>>().into_iter()
}

/// Cuts pairs into runs of about `bytes_max` of keys and values, at least one pair each, so that a response stays near
/// the size of a request however the pieces come.
fn split(kvs: Vec<KeyValue>, bytes_max: usize) -> Vec<Vec<KeyValue>> {
    let size = |kv: &KeyValue| kv.key.len() + kv.value.len();
    if kvs.iter().map(size).sum::<usize>() <= bytes_max {
        return if kvs.is_empty() { vec![] } else { vec![kvs] };
    }
    let (mut runs, mut run, mut bytes) = (vec![], vec![], 0);
    for kv in kvs {
        if !run.is_empty() && bytes + size(&kv) > bytes_max {
            runs.push(std::mem::take(&mut run));
            bytes = 0;
        }
        bytes += size(&kv);
        run.push(kv);
    }
    runs.push(run);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Refusal;

    fn kv(key: &'static str, bytes: usize) -> KeyValue {
        KeyValue { key: key.into(), value: vec![0; bytes].into(), ..Default::default() }
    }

    #[test]
    fn only_key_order_streams() {
        for target in [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value] {
            assert_eq!(streamable(&SortOrder::None, &target), Ok(()));
            assert_eq!(streamable(&SortOrder::Descend, &target), Err(Invalid::StreamOrder));
            assert_eq!(streamable(&SortOrder::Ascend, &target).is_ok(), target == SortTarget::Key);
        }
    }

    #[test]
    fn only_the_end_has_header_and_count() {
        let header = pb::ResponseHeader { revision: 5, ..Default::default() };
        let pairs: Vec<_> = encode(&header, Ok(RangePiece::Kvs(vec![kv("a", 1), kv("b", 1)]))).collect();
        let [Ok(response)] = pairs.as_slice() else { panic!("{pairs:?}") };
        let response = response.range_response.as_ref().unwrap();
        assert_eq!((response.kvs.len(), response.header, response.more, response.count), (2, None, false, 0));

        let end: Vec<_> = encode(&header, Ok(RangePiece::End { more: true, count: 9 })).collect();
        let [Ok(response)] = end.as_slice() else { panic!("{end:?}") };
        let response = response.range_response.as_ref().unwrap();
        assert_eq!((response.kvs.len(), response.header, response.more, response.count), (0, Some(header), true, 9));

        let compacted = NodeError::Refused(Refusal::Compacted { compact_revision: 3.into() });
        let failed: Vec<_> = encode(&header, Err(compacted)).collect();
        let [Err(status)] = failed.as_slice() else { panic!("{failed:?}") };
        assert_eq!(status.code(), tonic::Code::OutOfRange);
    }

    #[test]
    fn responses_stay_bounded() {
        let sizes = |kvs, max| -> Vec<usize> { split(kvs, max).iter().map(Vec::len).collect() };
        assert_eq!(sizes(vec![], 10), [0; 0]);
        assert_eq!(sizes(vec![kv("a", 4), kv("b", 4)], 10), [2]);
        assert_eq!(sizes(vec![kv("a", 4), kv("b", 5)], 10), [1, 1]);
        assert_eq!(sizes(vec![kv("a", 50), kv("b", 50), kv("c", 1)], 10), [1, 1, 1]);
        assert_eq!(sizes(vec![kv("a", 1), kv("b", 1), kv("c", 50)], 10), [2, 1]);
    }
}
