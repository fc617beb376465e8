//! Streams that keep leases alive, for both faces of etcd: one answer a request, in order (spec:
//! etcd §3.1).

use std::time::Instant;

use futures::stream::{BoxStream, StreamExt};
use tonic::{Status, Streaming};

use super::etcd_texts::node_status;
use crate::ApiOptions;
use headwater_node::{Node, Read, RequestContext};
use headwater_types::LeaseId;

/// Most requests of one stream that wait for their answers at once, count.
const UNDER_WAY_MAX: usize = 256;

/// Answers `requests` in order until they end, one fails, or the member stops; the first failure is
/// the last answer. `encode` gets the lease's time to live in seconds, or `None` if there is no
/// such lease.
pub fn answers<Q, A>(
    node: Node,
    options: ApiOptions,
    ctx: RequestContext,
    requests: Streaming<Q>,
    id: fn(&Q) -> LeaseId,
    encode: fn(&Node, LeaseId, Read<Option<i64>>) -> A,
) -> BoxStream<'static, Result<A, Status>>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    let closing = node.streams_closing();
    // The stream outlives the token. A member that does not know the token yet looks it up later.
    let ctx = node.stream_context(&ctx).unwrap_or(ctx);
    let answer = move |request: Result<Q, Status>| {
        let (node, ctx) = (node.clone(), ctx.clone());
        async move {
            let id = id(&request?);
            // The timeout of a request applies to each answer, not to the stream.
            let ctx = RequestContext { deadline: Instant::now() + options.request_timeout, ..ctx };
            let read = node.leases().keep_alive(&ctx, id).await.map_err(|error| node_status(&error))?;
            Ok(encode(&node, id, read))
        }
    };
    let answers = requests.map(answer).buffered(UNDER_WAY_MAX);
    let mut has_failed = false;
    // The first failure is the last answer.
    let answers = answers.take_while(move |answer: &Result<A, Status>| {
        let goes_on = !has_failed;
        has_failed = answer.is_err();
        std::future::ready(goes_on)
    });
    answers.take_until(closing).boxed()
}
