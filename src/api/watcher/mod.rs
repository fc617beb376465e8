//! The face of followers: `google.watcher.v1.Watcher`, and `GET /v1/watch` (spec: watcher §1, §2; docs/watcher.md).
//!
//! Owns what a target is, how a marker is written, how changes are sent, and in which words requests are refused. What a stream tells
//! is the node's. Invariant: a marker is sent with the last change of a group and with no other.

mod encode;
mod errors;
mod http;
mod json;
mod marker;
mod service;
mod stream;
mod target;

pub(super) use self::http::WatchPath;
pub(crate) use service::WatcherService;
