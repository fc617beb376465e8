//! The JSON gateway (spec: etcd §4.6), on real members over real connections.

mod calls;
pub mod client;
mod docs;
mod streams;
