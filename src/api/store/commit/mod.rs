//! `Commit`: operations of all faces in one log entry (docs/commits.md).
//!
//! Owns the shape of a commit and the code of each reason for which it changes nothing. Operations
//! are decoded and refused as their faces do it. Invariant: an error about one condition or
//! operation names it, in its text and in its metadata.

mod decode;
mod encode;
mod errors;

use tonic::{Request, Response, Status};

pub(super) use errors::too_large;

use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply_with_epoch};
use headwater_node::Node;
use headwater_proto::pb::headwater_v1 as pb;

/// Answers one commit.
pub(super) async fn run(
    node: &Node,
    options: ApiOptions,
    request: Request<pb::CommitRequest>,
) -> Result<Response<pb::CommitResponse>, Status> {
    let (context, message) = open(request, options.request_timeout)?;
    let kinds = encode::kinds(&message);
    let request = decode::request(message, node.name(), options.max_txn_ops).map_err(Status::from)?;
    let done = node.commit(&context, request).await.map_err(|error| errors::status(&error))?;
    let epoch = node.epoch();
    Ok(reply_with_epoch(epoch, done.index, encode::response(done.value, &kinds, epoch)))
}
