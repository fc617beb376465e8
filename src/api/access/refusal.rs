//! The texts with which each kind of API refuses a principal (spec: security §3, §4). They do
//! not repeat the request.

use http::Response;
use tonic::Status;
use tonic::body::Body;

use headwater_api_shared::{errors, etcd_texts, http_errors};
use headwater_node::NodeError;
use headwater_types::Refusal;

/// Prefixes of the paths of services whose clients match etcd's texts.
const ETCD: [&str; 5] = ["/etcdserverpb.", "/etcd/", "/watch/", "/v3lockpb.", "/v3electionpb."];

/// The status with which the gRPC method at `path` is refused.
pub(crate) fn grpc(path: &str, error: &NodeError) -> Status {
    match error {
        NodeError::Refused(Refusal::Auth(refusal)) if !ETCD.iter().any(|begin| path.starts_with(begin)) => {
            errors::denied(*refusal)
        }
        error => etcd_texts::node_status(error),
    }
}

/// The answer, as JSON, with which a path of plain HTTP, the console or REST is refused. Consul's
/// paths have refusals of their own.
pub(crate) fn plain(error: &NodeError) -> Response<Body> {
    let status = match error {
        NodeError::Refused(Refusal::Auth(refusal)) => errors::denied(*refusal),
        error => etcd_texts::node_status(error),
    };
    http_errors::response(&status)
}
