//! The lock of each gRPC method.
//!
//! Every method of every served descriptor has a row; a test compares. The lock of the row is
//! checked before the handler runs. If the lock leaves the judgement to the node, the node checks
//! the exact intervals of the request, and all its side effects.

use headwater_types::{Access, Space};

use super::{Effect, Lock, Row};
use Effect::{Changes, Reads};

const READ: Access = Access::READ;
const WRITE: Access = Access::WRITE;

/// Read access to at least one key.
const READS_KEYS: Lock = Lock::AnyOf(&[(Space::Kv, READ)]);
/// Write access to at least one key.
const WRITES_KEYS: Lock = Lock::AnyOf(&[(Space::Kv, WRITE)]);
const READS_RESOURCES: Lock = Lock::AnyOf(&[(Space::Resource, READ)]);
const WRITES_RESOURCES: Lock = Lock::AnyOf(&[(Space::Resource, WRITE)]);
/// The right to administer the cluster: write access to its space.
const CLUSTER: Lock = Lock::Whole(Space::Cluster, WRITE);

const fn row(path: &'static str, lock: Lock, effect: Effect) -> Row {
    Row { path, lock, effect }
}

/// Every method that is served, by its path.
pub(super) const METHODS: &[Row] = &[
    row("/etcdserverpb.KV/Range", READS_KEYS, Reads),
    row("/etcdserverpb.KV/RangeStream", READS_KEYS, Reads),
    row("/etcdserverpb.KV/Put", WRITES_KEYS, Changes),
    row("/etcdserverpb.KV/DeleteRange", WRITES_KEYS, Changes),
    // Every operation of both branches is judged; a transaction without any needs no right.
    row("/etcdserverpb.KV/Txn", Lock::Request, Changes),
    row("/etcdserverpb.KV/Compact", CLUSTER, Changes),
    // Each watch of the stream is judged by itself, and refused on the stream.
    row("/etcdserverpb.Watch/Watch", Lock::Stream, Reads),
    row("/etcdserverpb.Lease/LeaseGrant", Lock::Authenticated, Changes),
    // By the keys that are attached; there may be none.
    row("/etcdserverpb.Lease/LeaseRevoke", Lock::Request, Changes),
    row("/etcdserverpb.Lease/LeaseKeepAlive", Lock::Request, Changes),
    row("/etcdserverpb.Lease/LeaseTimeToLive", Lock::Request, Reads),
    row("/etcdserverpb.Lease/LeaseLeases", Lock::Request, Reads),
    row("/etcdserverpb.Cluster/MemberAdd", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberRemove", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberUpdate", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberPromote", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberList", Lock::Members, Reads),
    // Every user may read the alarms; setting them is judged by the node.
    row("/etcdserverpb.Maintenance/Alarm", Lock::Authenticated, Changes),
    row("/etcdserverpb.Maintenance/Status", Lock::Authenticated, Reads),
    row("/etcdserverpb.Maintenance/Defragment", CLUSTER, Changes),
    row("/etcdserverpb.Maintenance/Hash", CLUSTER, Reads),
    row("/etcdserverpb.Maintenance/HashKV", CLUSTER, Reads),
    row("/etcdserverpb.Maintenance/Snapshot", Lock::Root, Reads),
    row("/etcdserverpb.Maintenance/MoveLeader", CLUSTER, Changes),
    row("/etcdserverpb.Maintenance/Downgrade", CLUSTER, Changes),
    // Clients ask before they authenticate.
    row("/etcdserverpb.Auth/AuthStatus", Lock::Open, Reads),
    row("/etcdserverpb.Auth/AuthEnable", Lock::Root, Changes),
    row("/etcdserverpb.Auth/AuthDisable", Lock::Root, Changes),
    // The password is the right.
    row("/etcdserverpb.Auth/Authenticate", Lock::Open, Changes),
    row("/etcdserverpb.Auth/UserAdd", Lock::Root, Changes),
    // One's own; the node judges.
    row("/etcdserverpb.Auth/UserGet", Lock::Authenticated, Reads),
    row("/etcdserverpb.Auth/UserList", Lock::Root, Reads),
    row("/etcdserverpb.Auth/UserDelete", Lock::Root, Changes),
    row("/etcdserverpb.Auth/UserChangePassword", Lock::Root, Changes),
    row("/etcdserverpb.Auth/UserGrantRole", Lock::Root, Changes),
    row("/etcdserverpb.Auth/UserRevokeRole", Lock::Root, Changes),
    row("/etcdserverpb.Auth/RoleAdd", Lock::Root, Changes),
    // An own one; the node judges.
    row("/etcdserverpb.Auth/RoleGet", Lock::Authenticated, Reads),
    row("/etcdserverpb.Auth/RoleList", Lock::Root, Reads),
    row("/etcdserverpb.Auth/RoleDelete", Lock::Root, Changes),
    row("/etcdserverpb.Auth/RoleGrantPermission", Lock::Root, Changes),
    row("/etcdserverpb.Auth/RoleRevokePermission", Lock::Root, Changes),
    row("/etcd/Range", READS_KEYS, Reads),
    row("/etcd/Put", WRITES_KEYS, Changes),
    row("/etcd/DeleteRange", WRITES_KEYS, Changes),
    row("/etcd/Txn", Lock::Request, Changes),
    row("/etcd/Compact", CLUSTER, Changes),
    row("/etcd/LeaseCreate", Lock::Authenticated, Changes),
    row("/etcd/LeaseRevoke", Lock::Request, Changes),
    row("/etcd/LeaseAttach", WRITES_KEYS, Changes),
    row("/etcd/LeaseTxn", Lock::Request, Changes),
    row("/etcd/LeaseKeepAlive", Lock::Request, Changes),
    row("/watch/Watch", Lock::Stream, Reads),
    row("/v3lockpb.Lock/Lock", WRITES_KEYS, Changes),
    row("/v3lockpb.Lock/Unlock", WRITES_KEYS, Changes),
    row("/v3electionpb.Election/Campaign", WRITES_KEYS, Changes),
    row("/v3electionpb.Election/Proclaim", WRITES_KEYS, Changes),
    row("/v3electionpb.Election/Leader", READS_KEYS, Reads),
    row("/v3electionpb.Election/Observe", READS_KEYS, Reads),
    row("/v3electionpb.Election/Resign", WRITES_KEYS, Changes),
    row("/hashicorp.consul.resource.ResourceService/Read", READS_RESOURCES, Reads),
    row("/hashicorp.consul.resource.ResourceService/Write", WRITES_RESOURCES, Changes),
    row("/hashicorp.consul.resource.ResourceService/WriteStatus", WRITES_RESOURCES, Changes),
    row("/hashicorp.consul.resource.ResourceService/List", READS_RESOURCES, Reads),
    row("/hashicorp.consul.resource.ResourceService/ListByOwner", READS_RESOURCES, Reads),
    row("/hashicorp.consul.resource.ResourceService/Delete", WRITES_RESOURCES, Changes),
    row("/hashicorp.consul.resource.ResourceService/WatchList", READS_RESOURCES, Reads),
    row("/hashicorp.consul.resource.ResourceService/MutateAndValidate", WRITES_RESOURCES, Reads),
    // By the space of the target.
    row("/google.watcher.v1.Watcher/Watch", Lock::Request, Reads),
    // The token may be a field of the request. Events that it may not read are left out.
    row("/subscribe.StateChangeSubscription/Subscribe", Lock::Stream, Reads),
    row("/headwater.v1.Versions/GetVersions", Lock::Authenticated, Reads),
    row("/headwater.v1.Invitations/CreateInvitation", CLUSTER, Changes),
    row("/headwater.v1.Invitations/ListInvitations", Lock::Whole(Space::Cluster, READ), Reads),
    row("/headwater.v1.Invitations/DeleteInvitation", CLUSTER, Changes),
    row("/grpc.health.v1.Health/Check", Lock::Open, Reads),
    row("/grpc.health.v1.Health/Watch", Lock::Open, Reads),
    // Descriptors of the public protos, which are the same on every node.
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Lock::Open, Reads),
    row("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Lock::Open, Reads),
];
