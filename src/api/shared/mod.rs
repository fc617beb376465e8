//! Parts that every face may use: request context, errors, frames, streams, metrics, and messages
//! that several faces send.
//!
//! Must not know any face. Invariant: a face imports this folder and its own files, never another
//! face; `tests/tidy` holds it, with its short list of exceptions.

pub(crate) mod caller;
pub(crate) mod catalog;
pub(crate) mod context;
pub(crate) mod duration;
pub(crate) mod errors;
pub(crate) mod etcd_texts;
pub(crate) mod frames;
pub(crate) mod http_errors;
pub(crate) mod http_metadata;
pub(crate) mod keep_alive;
pub(crate) mod key_value;
mod leader_probe;
pub(crate) mod mesh;
pub(crate) mod stream;
pub(crate) mod stream_metrics;
pub(crate) mod stream_server;
pub(crate) mod timed_body;

use http::{HeaderMap, Version, header};

/// Whether a request is a gRPC call. gRPC needs HTTP/2; on HTTP/1 the same content type is just
/// another unknown request.
pub(crate) fn is_grpc(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2
        && headers.get(header::CONTENT_TYPE).is_some_and(|value| {
            let rest = value.as_bytes().strip_prefix(b"application/grpc");
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
        })
}
