//! `subscribe.StateChangeSubscription`: streams of changes of the service catalog (spec: consul
//! §1).
//!
//! Owns the shape of requests, the framing of streams and the payloads. The node decides where a
//! stream begins, the state machine which changes it gets. Invariant: a stream follows the grammar
//! of §1.6; it never skips a change. If it cannot continue exactly, it ends with a status that
//! names the next step.

mod errors;
mod payload;
mod reader;
mod remote;
mod request;
mod service;
mod stream;

pub use service::SubscribeService;
