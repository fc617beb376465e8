//! The data of an entity as a message: one type for each space (docs/watcher.md).

use prost::Message;

use super::catalog;
use super::key_value::key_value;
use headwater_node::ElementData;
use headwater_proto::pb::{etcdserverpb, mvccpb, pbresource};
use headwater_types::Resource;

/// Prefix of a message's name in an `Any`.
const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// The message of the data, packed as `Any`. `datacenter` is the name of the datacenter that
/// messages of catalog nodes carry.
pub fn entity_data(data: &ElementData, datacenter: &str) -> prost_types::Any {
    let pack = |name: &str, value: Vec<u8>| prost_types::Any { type_url: format!("{TYPE_URL_PREFIX}{name}"), value };
    match data {
        ElementData::Empty => pack("google.protobuf.Empty", Vec::new()),
        ElementData::Kv(kv) => {
            let kv: mvccpb::KeyValue = key_value(kv.clone());
            pack("mvccpb.KeyValue", kv.encode_to_vec())
        }
        ElementData::Resource(resource) => {
            let resource: pbresource::Resource = Resource::clone(resource).into();
            pack("hashicorp.consul.resource.Resource", resource.encode_to_vec())
        }
        ElementData::Instance(instance) => {
            let instance = catalog::registered(instance, datacenter);
            pack("hashicorp.consul.internal.service.CheckServiceNode", instance.encode_to_vec())
        }
        ElementData::CatalogNode(node) => {
            pack("hashicorp.consul.internal.service.Node", catalog::node(node, datacenter).encode_to_vec())
        }
        ElementData::Lease { id, ttl_seconds } => {
            let lease = etcdserverpb::LeaseGrantResponse { id: id.get(), ttl: *ttl_seconds, ..Default::default() };
            pack("etcdserverpb.LeaseGrantResponse", lease.encode_to_vec())
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
            pack("etcdserverpb.Member", member.encode_to_vec())
        }
    }
}
