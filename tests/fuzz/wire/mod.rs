//! Encodings of hostile input: messages from descriptors, gRPC calls, frames of HTTP/2.

pub(crate) mod frames;
pub(crate) mod grpc;
pub(crate) mod harm;
pub(crate) mod message;
pub(crate) mod reflection;
