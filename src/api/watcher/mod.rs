//! The watcher: `google.watcher.v1.Watcher`, and `GET /v1/watch` (spec: watcher §1, §2;
//! docs/watcher.md).
//!
//! Owns markers, the encoding of changes, and the texts of refusals. The content of a
//! stream is the node's. Invariant: a marker is sent with the last change of a group and with no
//! other.

mod encode;
mod errors;
mod http;
mod json;
mod marker;
mod service;
mod stream;

pub use self::http::WatchPath;
pub use service::WatcherService;
