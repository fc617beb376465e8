//! The face of typed resources: `hashicorp.consul.resource.ResourceService` (spec: consul §5).
//!
//! Owns the shape of requests, the order of their checks, and the words of refusals. Headwater's
//! own metadata (pages, resuming) is read here. The generated server would encode every event for
//! every stream, so the methods are routed by hand.

pub mod errors;
mod metadata;
mod service;
pub mod validate;
mod watch;

pub use service::ResourceService;
