//! The requirement of each gRPC method.
//!
//! Every method of every served descriptor has a row; a test compares. The requirement of the row
//! is checked before the handler runs. For most methods, the node then also checks the exact
//! intervals of the request, and all its side effects.

use headwater_types::{Access, Space};

use super::{Effect, Requirement, Row};
use Effect::{Changes, Reads};

const READ: Access = Access::READ;
const WRITE: Access = Access::WRITE;

/// Read access to at least one key.
const READS_KEYS: Requirement = Requirement::AnyOf(&[(Space::Kv, READ)]);
/// Write access to at least one key.
const WRITES_KEYS: Requirement = Requirement::AnyOf(&[(Space::Kv, WRITE)]);
const READS_RESOURCES: Requirement = Requirement::AnyOf(&[(Space::Resource, READ)]);
const WRITES_RESOURCES: Requirement = Requirement::AnyOf(&[(Space::Resource, WRITE)]);
/// The right to administer the cluster: write access to its space.
const CLUSTER: Requirement = Requirement::Whole(Space::Cluster, WRITE);

const fn row(path: &'static str, requirement: Requirement, effect: Effect) -> Row {
    Row { path, requirement, effect }
}

/// Every method that is served, by its path.
pub(super) const METHODS: &[Row] = &[
    row("/etcdserverpb.KV/Range", READS_KEYS, Reads),
    row("/etcdserverpb.KV/RangeStream", READS_KEYS, Reads),
    row("/etcdserverpb.KV/Put", WRITES_KEYS, Changes),
    row("/etcdserverpb.KV/DeleteRange", WRITES_KEYS, Changes),
    // Every operation of both branches is judged; a transaction without any needs no right.
    row("/etcdserverpb.KV/Txn", Requirement::ByNode, Changes),
    row("/etcdserverpb.KV/Compact", CLUSTER, Changes),
    // Each watch of the stream is judged by itself, and refused on the stream.
    row("/etcdserverpb.Watch/Watch", Requirement::Stream, Reads),
    row("/etcdserverpb.Lease/LeaseGrant", Requirement::Authenticated, Changes),
    // The node judges the keys that are attached to the lease, which may be none.
    row("/etcdserverpb.Lease/LeaseRevoke", Requirement::ByNode, Changes),
    row("/etcdserverpb.Lease/LeaseKeepAlive", Requirement::ByNode, Changes),
    row("/etcdserverpb.Lease/LeaseTimeToLive", Requirement::ByNode, Reads),
    row("/etcdserverpb.Lease/LeaseLeases", Requirement::ByNode, Reads),
    row("/etcdserverpb.Cluster/MemberAdd", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberRemove", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberUpdate", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberPromote", CLUSTER, Changes),
    row("/etcdserverpb.Cluster/MemberList", Requirement::Members, Reads),
    // Every user may read the alarms; setting them is judged by the node.
    row("/etcdserverpb.Maintenance/Alarm", Requirement::Authenticated, Changes),
    row("/etcdserverpb.Maintenance/Status", Requirement::Authenticated, Reads),
    row("/etcdserverpb.Maintenance/Defragment", CLUSTER, Changes),
    row("/etcdserverpb.Maintenance/Hash", CLUSTER, Reads),
    row("/etcdserverpb.Maintenance/HashKV", CLUSTER, Reads),
    row("/etcdserverpb.Maintenance/Snapshot", Requirement::Root, Reads),
    row("/etcdserverpb.Maintenance/MoveLeader", CLUSTER, Changes),
    row("/etcdserverpb.Maintenance/Downgrade", CLUSTER, Changes),
    // Clients ask before they authenticate.
    row("/etcdserverpb.Auth/AuthStatus", Requirement::Open, Reads),
    row("/etcdserverpb.Auth/AuthEnable", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/AuthDisable", Requirement::Root, Changes),
    // The password in the request proves the user.
    row("/etcdserverpb.Auth/Authenticate", Requirement::Open, Changes),
    row("/etcdserverpb.Auth/UserAdd", Requirement::Root, Changes),
    // Each user may read its own row; others need root. The node judges.
    row("/etcdserverpb.Auth/UserGet", Requirement::Authenticated, Reads),
    row("/etcdserverpb.Auth/UserList", Requirement::Root, Reads),
    row("/etcdserverpb.Auth/UserDelete", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/UserChangePassword", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/UserGrantRole", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/UserRevokeRole", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/RoleAdd", Requirement::Root, Changes),
    // Each user may read its own roles; others need root. The node judges.
    row("/etcdserverpb.Auth/RoleGet", Requirement::Authenticated, Reads),
    row("/etcdserverpb.Auth/RoleList", Requirement::Root, Reads),
    row("/etcdserverpb.Auth/RoleDelete", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/RoleGrantPermission", Requirement::Root, Changes),
    row("/etcdserverpb.Auth/RoleRevokePermission", Requirement::Root, Changes),
    row("/etcd/Range", READS_KEYS, Reads),
    row("/etcd/Put", WRITES_KEYS, Changes),
    row("/etcd/DeleteRange", WRITES_KEYS, Changes),
    row("/etcd/Txn", Requirement::ByNode, Changes),
    row("/etcd/Compact", CLUSTER, Changes),
    row("/etcd/LeaseCreate", Requirement::Authenticated, Changes),
    row("/etcd/LeaseRevoke", Requirement::ByNode, Changes),
    row("/etcd/LeaseAttach", WRITES_KEYS, Changes),
    row("/etcd/LeaseTxn", Requirement::ByNode, Changes),
    row("/etcd/LeaseKeepAlive", Requirement::ByNode, Changes),
    row("/watch/Watch", Requirement::Stream, Reads),
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
    // The node judges the spaces that the targets name.
    row("/google.watcher.v1.Watcher/Watch", Requirement::ByNode, Reads),
    row("/headwater.v1.Store/Read", Requirement::ByNode, Reads),
    row("/headwater.v1.Store/History", Requirement::ByNode, Reads),
    row("/headwater.v1.Store/Commit", Requirement::ByNode, Changes),
    // The token may be a field of the request. Events that it may not read are left out.
    row("/subscribe.StateChangeSubscription/Subscribe", Requirement::Stream, Reads),
    row("/headwater.v1.Versions/GetVersions", Requirement::Authenticated, Reads),
    row("/headwater.v1.Members/GetStatus", Requirement::Authenticated, Reads),
    row("/headwater.v1.Invitations/CreateInvitation", CLUSTER, Changes),
    row("/headwater.v1.Invitations/ListInvitations", Requirement::Whole(Space::Cluster, READ), Reads),
    row("/headwater.v1.Invitations/DeleteInvitation", CLUSTER, Changes),
    row("/grpc.health.v1.Health/Check", Requirement::Open, Reads),
    row("/grpc.health.v1.Health/Watch", Requirement::Open, Reads),
    // Descriptors of the public protos, which are the same on every node.
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Requirement::Open, Reads),
    row("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Requirement::Open, Reads),
];
