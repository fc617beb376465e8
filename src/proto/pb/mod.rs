//! Generated code, one module for each proto package. Imported by `codec`, by `raft` for the peer
//! port, and by the code that speaks a public API: faces, clients, commands. The layers between
//! (`node`, `fsm`, `storage`) do not import it.
//!
//! A package with dots in its name is a nested module, any other a module here, because generated
//! code names messages of other packages by paths with `super::`.
#![allow(missing_docs, unreachable_pub, clippy::all)]

/// Keys, values and events of the etcd v3 API (`proto/etcd/kv.proto`).
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Permissions of the etcd v3 API (`proto/etcd/auth.proto`).
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// The etcd v3 API (`proto/etcd/rpc.proto`).
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// The first draft of the etcd v3 API, which has no package (`proto/etcd/early.proto`).
pub mod early {
    tonic::include_proto!("_");
}

/// Locks over keys and leases (`proto/etcd/lock.proto`).
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// Elections over keys and leases (`proto/etcd/election.proto`).
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

/// Subscribing to the service catalog (`proto/consul/subscribe.proto`).
pub mod subscribe {
    tonic::include_proto!("subscribe");
}

/// Typed resources (`proto/consul/resource.proto`), the units of tenancy, and the data of the
/// service catalog.
pub mod hashicorp {
    pub mod consul {
        pub mod internal {
            pub mod common {
                tonic::include_proto!("hashicorp.consul.internal.common");
            }
            pub mod service {
                tonic::include_proto!("hashicorp.consul.internal.service");
            }
        }
        pub mod resource {
            tonic::include_proto!("hashicorp.consul.resource");
        }
        pub mod tenancy {
            pub mod v2beta1 {
                tonic::include_proto!("hashicorp.consul.tenancy.v2beta1");
            }
        }
    }
}

/// Watches of entities (`proto/google/watcher/v1/watch.proto`), and the status messages of their
/// errors.
pub mod google {
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
    pub mod watcher {
        pub mod v1 {
            tonic::include_proto!("google.watcher.v1");
        }
    }
}

pub(crate) mod checked;
mod json;
mod sized;

pub use google::watcher::v1 as pbwatcher;
pub use hashicorp::consul::internal::{common as pbcommon, service as pbservice};
pub use hashicorp::consul::{resource as pbresource, tenancy::v2beta1 as pbtenancy};

/// The project's own packages, nested like their names, because generated code refers to other
/// packages by `super::`.
pub mod headwater {
    pub mod internal {
        tonic::include_proto!("headwater.internal");
    }
    pub mod peer {
        tonic::include_proto!("headwater.peer");
    }
    pub mod v1 {
        tonic::include_proto!("headwater.v1");
    }
}

/// The public API of Headwater itself: store, commits, members, invitations, versions, and the data
/// of resources that register types (`proto/headwater/*.proto`).
pub use headwater::v1 as headwater_v1;
/// `internal`: stored records, commands and outcomes. `peer`: the messages of the peer port.
pub use headwater::{internal, peer};

pub use json::struct_to_json;
pub use sized::{SizedCodec, SizedEncoder, small_decoder};

/// The encoded `FileDescriptorSet` of every public proto, for gRPC reflection. Internal records are
/// not in it.
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/public_descriptors.bin"));
