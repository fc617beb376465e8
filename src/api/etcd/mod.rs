//! The etcd v3 API (`etcdserverpb`): one file a service for the wiring, one file a command for what it does.
//!
//! Owns the validation rules and the error table, which the early face shares. Knows nothing of how a request is carried
//! out. Invariant: headers are always there; their revision is that of the state that the answer came from.

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

pub(super) use alarm::name as alarm_name;
pub(super) use auth::AuthService;
pub(super) use cluster::ClusterService;
pub(super) use convert::key_value;
pub(super) use election::ElectionService;
pub(super) use kv::KvService;
pub(super) use lease::LeaseService;
pub(super) use lock::LockService;
pub(super) use maintenance::MaintenanceService;
pub(super) use watch::WatchService;
