//! RangeStream (spec: etcd §1.3): a range in several responses.
//!
//! Owns the choice of ranges that may be streamed, and the conversion from parts of a range to
//! responses. Invariant: the pairs of all responses, with the header, `more` and `count` of the
//! last one, are the answer of Range. A range in the order of keys is never whole in memory.

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use tonic::Status;

use super::errors::{Failure, Invalid};
use super::{convert, header, range};
use headwater_node::{Node, NodeError, RangePart, RequestContext};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::limits::REQUEST_BYTES_MAX;
use headwater_types::{KeyValue, LogIndex, SortOrder, SortTarget};

type Responses = BoxStream<'static, Result<pb::RangeStreamResponse, Status>>;

pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    request: pb::RangeRequest,
) -> Result<(LogIndex, Responses), Failure> {
    let consistency = range::consistency(&request);
    let at = range::unary_revision(request.revision);
    let mut query = range::decode(request, at)?;
    streamable(&query.order, &query.target)?;
    if query.filter.is_active() {
        return Err(Invalid::StreamFilter.into());
    }
    if query.target == SortTarget::Key || query.count_only {
        (query.order, query.target) = (SortOrder::None, SortTarget::Key);
    }
    let read = node.keys().range_stream(ctx, consistency, query).await?;
    Ok((read.index, encode_all(header::full(node, read.revision), read.value)))
}

/// Refuses an explicit order other than ascending by key, as etcd does. A target without an order
/// sorts ascending, as in Range.
fn streamable(order: &SortOrder, target: &SortTarget) -> Result<(), Invalid> {
    match (order, target) {
        (SortOrder::None, _) | (SortOrder::Ascend, SortTarget::Key) => Ok(()),
        (SortOrder::Ascend | SortOrder::Descend, _) => Err(Invalid::StreamOrder),
    }
}

/// The responses with the parts of one range.
fn encode_all(
    header: pb::ResponseHeader,
    parts: impl Stream<Item = Result<RangePart, NodeError>> + Send + 'static,
) -> Responses {
    let mut encoder = Encoder { header, held: Vec::new() };
    parts.flat_map(move |part| stream::iter(encoder.encode(part))).boxed()
}

/// Turns parts into responses. Only the last response has a header, `more` and the count; it also
/// has the last pairs, because clients stop reading at their limit of pairs.
struct Encoder {
    header: pb::ResponseHeader,
    /// Pairs that are not sent yet, because they may be the last ones.
    held: Vec<KeyValue>,
}

impl Encoder {
    fn encode(&mut self, part: Result<RangePart, NodeError>) -> Vec<Result<pb::RangeStreamResponse, Status>> {
        let pairs = |kvs| pb::RangeResponse { kvs: convert::key_values(kvs), ..Default::default() };
        let wrap = |range_response| Ok(pb::RangeStreamResponse { range_response: Some(range_response) });
        match part {
            Ok(RangePart::Kvs(kvs)) => {
                let held = std::mem::take(&mut self.held);
                let mut runs: Vec<_> = Some(held).into_iter().chain(split(kvs, REQUEST_BYTES_MAX)).collect();
                self.held = runs.pop().unwrap_or_default();
                runs.into_iter().filter(|run| !run.is_empty()).map(|run| wrap(pairs(run))).collect()
            }
            Ok(RangePart::End { more, count }) => {
                let last = pairs(std::mem::take(&mut self.held));
                vec![wrap(pb::RangeResponse { header: Some(self.header), more, count: convert::count(count), ..last })]
            }
            // Held pairs are dropped: with them, a client that counts pairs would take the range
            // for complete.
            Err(error) => vec![Err(Status::from(Failure::from(error)))],
        }
    }
}

/// Cuts pairs into runs of at most `bytes_max` bytes of keys and values, so that the size of a
/// response does not depend on the size of the parts. A larger pair is a run of its own. No pairs
/// give no runs.
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
    use headwater_types::Refusal;

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

    /// Number of pairs, header, `more` and count of every response.
    type Responses = Vec<Result<(usize, Option<pb::ResponseHeader>, bool, i64), tonic::Code>>;

    fn responses_of(header: pb::ResponseHeader, parts: Vec<Result<RangePart, NodeError>>) -> Responses {
        let responses = encode_all(header, stream::iter(parts)).collect::<Vec<_>>();
        let responses = futures::executor::block_on(responses);
        let summary = |response: pb::RangeStreamResponse| {
            let response = response.range_response.unwrap();
            (response.kvs.len(), response.header, response.more, response.count)
        };
        responses.into_iter().map(|response| response.map(summary).map_err(|status| status.code())).collect()
    }

    #[test]
    fn the_last_pairs_come_with_header_and_count() {
        let header = pb::ResponseHeader { revision: 5, ..Default::default() };
        let kvs = |count| Ok(RangePart::Kvs(vec![kv("a", 1); count]));
        let large = || Ok(RangePart::Kvs(vec![kv("a", REQUEST_BYTES_MAX); 2]));
        let end = || Ok(RangePart::End { more: true, count: 9 });
        let last = |pairs| Ok((pairs, Some(header), true, 9));
        let pairs = |pairs| Ok((pairs, None, false, 0));
        assert_eq!(responses_of(header, vec![kvs(2), end()]), [last(2)]);
        assert_eq!(responses_of(header, vec![kvs(2), kvs(3), kvs(1), end()]), [pairs(2), pairs(3), last(1)]);
        assert_eq!(responses_of(header, vec![large(), end()]), [pairs(1), last(1)]);
        assert_eq!(responses_of(header, vec![large(), large(), end()]), [pairs(1), pairs(1), pairs(1), last(1)]);
        assert_eq!(responses_of(header, vec![end()]), [last(0)], "empty, or only counted");
        assert_eq!(responses_of(header, vec![kvs(0), end()]), [last(0)]);

        let compacted = || Err(NodeError::Refused(Refusal::Compacted { compact_revision: 3.into() }));
        assert_eq!(responses_of(header, vec![compacted()]), [Err(tonic::Code::OutOfRange)]);
        let cut_off = responses_of(header, vec![kvs(2), kvs(3), compacted()]);
        assert_eq!(cut_off, [pairs(2), Err(tonic::Code::OutOfRange)]);
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
