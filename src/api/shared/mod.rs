//! Parts that every face may use: request context, errors, frames, streams, metrics, and messages
//! that several faces send.
//!
//! Must not know any face. Invariant: a face imports this folder and its own files, never another
//! face; `tests/tidy` holds it, with its short list of exceptions.

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
