//! The etcd v3 API (`etcdserverpb`): one file for each service, with its wiring, and one for each
//! command.
//!
//! Owns the validation rules and the table of failures, which the early face imports. Must not know
//! how a request is carried out. Invariant: a header is present wherever etcd sends one; its
//! revision, if it has one, is that of the state that the answer was computed from.

mod alarm;
mod auth;
mod cluster;
mod compact;
mod convert;
mod delete_range;
mod election;
pub(crate) mod errors;
mod header;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod put;
mod range;
mod range_stream;
mod snapshot;
mod txn;
pub(crate) mod validate;
mod watch;

pub(super) use auth::AuthService;
pub(super) use cluster::ClusterService;
pub(super) use election::ElectionService;
pub(super) use kv::KvService;
pub(super) use lease::LeaseService;
pub(super) use lock::LockService;
pub(super) use maintenance::MaintenanceService;
pub(super) use watch::WatchService;
