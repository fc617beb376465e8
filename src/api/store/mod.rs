//! The API over all parts of the store: `headwater.v1.Store` with `Read`, `History` and `Commit`
//! (docs/store.md).
//!
//! Owns the shape of requests, page tokens, and the texts of refusals. The answers are the node's.
//! Invariant: a page token and a position of a stream are good on every member.
//!
//! ```text
//! POST /v1/store/read     {"targets": ["/kv/app"], "at": {"index": "7"}}
//! POST /v1/store/history  {"targets": ["/kv?recursive=true"], "direction": "BACKWARD"}
//! ```

mod commit;
mod encode;
mod errors;
mod page_token;
mod read;
mod request;
mod service;
mod stream;

pub use service::StoreService;
