//! The face of typed resources: `hashicorp.consul.resource.ResourceService` (spec: consul §5).
//!
//! Owns the shape of requests, the order in which they are checked, and the words in which they are
//! refused. Metadata that is Headwater's own (pages, resuming) is read here. The generated server
//! would encode every event for every stream, so the methods are routed by hand.

mod errors;
mod metadata;
mod service;
mod validate;
mod watch;

pub(crate) use service::ResourceService;
