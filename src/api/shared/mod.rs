//! Parts that every face may use: request context, errors, frames, streams, metrics, and messages
//! that several faces send.
//!
//! Must not know any face. Invariant: a face imports this crate and its own files, never another
//! face; the manifests and `tests/tidy` enforce it, with a short list of exceptions.

pub mod caller;
pub mod catalog;
pub mod context;
pub mod duration;
pub mod entity_data;
pub mod errors;
pub mod etcd_texts;
mod frame_body;
pub mod frames;
pub mod grpc_messages;
pub mod grpc_metrics;
pub mod grpc_request;
pub mod http_errors;
pub mod http_metadata;
pub mod keep_alive;
pub mod key_value;
mod leader_probe;
pub mod mesh;
mod options;
pub mod stream;
pub mod stream_metrics;
pub mod stream_server;
pub mod target;
pub mod timed_body;

use http::{HeaderMap, Version, header};

pub use options::{ApiOptions, ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};

/// Whether a request is a gRPC call: HTTP/2 with gRPC's content type. On HTTP/1 the content type
/// has no meaning.
pub fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2
        && headers.get(header::CONTENT_TYPE).is_some_and(|value| {
            let rest = value.as_bytes().strip_prefix(b"application/grpc");
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
        })
}
