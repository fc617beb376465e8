//! The data of an entity as a message: one type for each space (docs/watcher.md).

use std::sync::Arc;

use prost::Message;

use super::catalog;
use super::key_value::key_value;
use headwater_node::ElementData;
use headwater_proto::pb::{etcdserverpb, mvccpb, pbresource};

/// The type URL in an `Any` of the message with this full name.
macro_rules! type_url {
    ($name:literal) => {
        concat!("type.googleapis.com/", $name)
    };
}

/// The message of the data, packed as `Any`. `datacenter` is the name of the datacenter that
/// messages of catalog nodes carry.
pub fn entity_data(data: ElementData, datacenter: &str) -> prost_types::Any {
    let pack = |type_url: &str, value: Vec<u8>| prost_types::Any { type_url: type_url.to_owned(), value };
    match data {
        ElementData::Empty => pack(type_url!("google.protobuf.Empty"), Vec::new()),
        ElementData::Kv(kv) => {
            let kv: mvccpb::KeyValue = key_value(kv);
            pack(type_url!("mvccpb.KeyValue"), kv.encode_to_vec())
        }
        ElementData::Resource(resource) => {
            let resource: pbresource::Resource = Arc::unwrap_or_clone(resource).into();
            pack(type_url!("hashicorp.consul.resource.Resource"), resource.encode_to_vec())
        }
        ElementData::Instance(instance) => {
            let instance = catalog::registered(&instance, datacenter);
            pack(type_url!("hashicorp.consul.internal.service.CheckServiceNode"), instance.encode_to_vec())
        }
        ElementData::CatalogNode(node) => {
            pack(type_url!("hashicorp.consul.internal.service.Node"), catalog::node(&node, datacenter).encode_to_vec())
        }
        ElementData::Lease { id, ttl_seconds } => {
            let lease = etcdserverpb::LeaseGrantResponse { id: id.get(), ttl: ttl_seconds, ..Default::default() };
            pack(type_url!("etcdserverpb.LeaseGrantResponse"), lease.encode_to_vec())
        }
        ElementData::Member(member) => {
            let urls = |url: &String| if url.is_empty() { Vec::new() } else { vec![url.clone()] };
            let member = etcdserverpb::Member {
                id: member.id.get(),
                name: member.name.clone(),
                peer_ur_ls: urls(&member.peer_url),
                client_ur_ls: urls(&member.client_url),
                is_learner: member.is_learner,
            };
            pack(type_url!("etcdserverpb.Member"), member.encode_to_vec())
        }
    }
}
