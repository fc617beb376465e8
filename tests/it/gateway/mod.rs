//! JSON over HTTP (spec: etcd §4.6), on real members by real connections.

mod calls;
pub mod client;
mod docs;
mod streams;
