//! `subscribe.StateChangeSubscription`: streams of changes of the service catalog (spec: consul
//! §1).
//!
//! Owns the shape of requests, the framing of streams and the payloads. Where a stream begins is
//! the node's, and what changed is the state machine's. Invariant: a stream follows the grammar of
//! §1.6; whatever cannot be kept up ends it with a status that says what to do.

mod errors;
pub(super) mod payload;
mod remote;
mod request;
mod service;
mod stream;

pub(super) use service::SubscribeService;
