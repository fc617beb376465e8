//! The etcd v3 API (`etcdserverpb`): one file for each service, with its wiring, and one for each
//! command.
//!
//! Owns the validation rules and the table of failures, which the early face imports. Must not know
//! how a request is carried out. Invariant: a header is present wherever etcd sends one; its
//! revision, if it has one, is that of the state that was read or written.

mod alarm;
mod auth;
mod cluster;
mod compact;
mod convert;
mod delete_range;
mod election;
pub mod errors;
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
pub mod validate;
mod watch;

pub use self::delete_range::decode as decode_delete_range;
pub use self::put::decode as decode_put;
pub use self::txn::compare as decode_compare;

use tower::Service;

use auth::AuthService;
use cluster::ClusterService;
use election::ElectionService;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::grpc_request::{GrpcFuture, GrpcRequest};
use headwater_api_shared::stream_metrics::WatchMetrics;
use headwater_node::Node;
use headwater_proto::pb::etcdserverpb::auth_server::AuthServer;
use headwater_proto::pb::etcdserverpb::cluster_server::ClusterServer;
use headwater_proto::pb::etcdserverpb::kv_server::KvServer;
use headwater_proto::pb::etcdserverpb::lease_server::LeaseServer;
use headwater_proto::pb::etcdserverpb::maintenance_server::MaintenanceServer;
use headwater_proto::pb::v3electionpb::election_server::ElectionServer;
use headwater_proto::pb::v3lockpb::lock_server::LockServer;
use kv::KvService;
use lease::LeaseService;
use lock::LockService;
use maintenance::MaintenanceService;
use watch::WatchService;

/// The services of the API, one method each. The last part of a request's path names the method of
/// the service; an unknown one is `UNIMPLEMENTED`.
pub struct Etcd {
    kv: KvServer<KvService>,
    watch: WatchService,
    lease: LeaseServer<LeaseService>,
    cluster: ClusterServer<ClusterService>,
    maintenance: MaintenanceServer<MaintenanceService>,
    auth: AuthServer<AuthService>,
    lock: LockServer<LockService>,
    election: ElectionServer<ElectionService>,
}

impl Etcd {
    /// The services of `node`. Watch streams are counted in `streams`.
    pub fn new(node: &Node, options: ApiOptions, streams: WatchMetrics) -> Self {
        let bytes_max = options.message_bytes_max();
        let kv = KvServer::new(KvService::new(node.clone(), options));
        let lease = LeaseServer::new(LeaseService::new(node.clone(), options));
        let cluster = ClusterServer::new(ClusterService::new(node.clone(), options));
        let maintenance = MaintenanceServer::new(MaintenanceService::new(node.clone(), options));
        let auth = AuthServer::new(AuthService::new(node.clone(), options));
        let lock = LockServer::new(LockService::new(node.clone(), options));
        let election = ElectionServer::new(ElectionService::new(node.clone(), options));
        Self {
            kv: kv.max_decoding_message_size(bytes_max),
            watch: WatchService::new(node.clone(), options, streams),
            lease: lease.max_decoding_message_size(bytes_max),
            cluster: cluster.max_decoding_message_size(bytes_max),
            maintenance: maintenance.max_decoding_message_size(bytes_max),
            auth: auth.max_decoding_message_size(bytes_max),
            lock: lock.max_decoding_message_size(bytes_max),
            election: election.max_decoding_message_size(bytes_max),
        }
    }

    /// Answers a call of `etcdserverpb.KV`.
    pub fn kv(&self, request: GrpcRequest) -> GrpcFuture {
        self.kv.clone().call(request)
    }

    /// Answers a call of `etcdserverpb.Watch`.
    pub fn watch(&self, request: GrpcRequest) -> GrpcFuture {
        self.watch.call(request)
    }

    /// Answers a call of `etcdserverpb.Lease`.
    pub fn lease(&self, request: GrpcRequest) -> GrpcFuture {
        self.lease.clone().call(request)
    }

    /// Answers a call of `etcdserverpb.Cluster`.
    pub fn cluster(&self, request: GrpcRequest) -> GrpcFuture {
        self.cluster.clone().call(request)
    }

    /// Answers a call of `etcdserverpb.Maintenance`.
    pub fn maintenance(&self, request: GrpcRequest) -> GrpcFuture {
        self.maintenance.clone().call(request)
    }

    /// Answers a call of `etcdserverpb.Auth`.
    pub fn auth(&self, request: GrpcRequest) -> GrpcFuture {
        self.auth.clone().call(request)
    }

    /// Answers a call of `v3lockpb.Lock`.
    pub fn lock(&self, request: GrpcRequest) -> GrpcFuture {
        self.lock.clone().call(request)
    }

    /// Answers a call of `v3electionpb.Election`.
    pub fn election(&self, request: GrpcRequest) -> GrpcFuture {
        self.election.clone().call(request)
    }
}
