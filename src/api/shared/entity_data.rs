//! The data of an entity as a message: one type for each space (docs/watcher.md).

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, int64, key_len};

use super::catalog;
use super::key_value::key_value;
use headwater_node::ElementData;
use headwater_proto::pb::{etcdserverpb, pbresource};
use headwater_types::{KeyValue, LeaseId};

/// The type URL in an `Any` of the message with this full name.
macro_rules! type_url {
    ($name:literal) => {
        concat!("type.googleapis.com/", $name)
    };
}

/// The data of an entity, to be sent as `google.protobuf.Any`. A pair is encoded where it is sent:
/// its value is not copied before, and no message is built for it.
pub struct PackedData {
    type_url: &'static str,
    value: PackedValue,
    /// Length of the encoded value, bytes.
    value_len: usize,
}

enum PackedValue {
    Pair(KeyValue),
    Encoded(Vec<u8>),
}

/// Numbers of the fields of `google.protobuf.Any`.
const TYPE_URL: u32 = 1;
const VALUE: u32 = 2;

impl PackedData {
    /// The message of `data`. `datacenter` is the name of the datacenter that messages of catalog
    /// nodes carry.
    pub fn new(data: ElementData, datacenter: &str) -> Self {
        let encoded = |type_url, value: Vec<u8>| {
            let value_len = value.len();
            Self { type_url, value: PackedValue::Encoded(value), value_len }
        };
        match data {
            ElementData::Empty => encoded(type_url!("google.protobuf.Empty"), Vec::new()),
            ElementData::Kv(kv) => {
                let value_len = pair_len(&kv);
                Self { type_url: type_url!("mvccpb.KeyValue"), value: PackedValue::Pair(kv), value_len }
            }
            ElementData::Resource(resource) => {
                let resource: pbresource::Resource = Arc::unwrap_or_clone(resource).into();
                encoded(type_url!("hashicorp.consul.resource.Resource"), resource.encode_to_vec())
            }
            ElementData::Instance(instance) => {
                let instance = catalog::registered(&instance, datacenter);
                encoded(type_url!("hashicorp.consul.internal.service.CheckServiceNode"), instance.encode_to_vec())
            }
            ElementData::CatalogNode(node) => {
                let node = catalog::node(&node, datacenter);
                encoded(type_url!("hashicorp.consul.internal.service.Node"), node.encode_to_vec())
            }
            ElementData::Lease { id, ttl_seconds } => {
                let lease = etcdserverpb::LeaseGrantResponse { id: id.get(), ttl: ttl_seconds, ..Default::default() };
                encoded(type_url!("etcdserverpb.LeaseGrantResponse"), lease.encode_to_vec())
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
                encoded(type_url!("etcdserverpb.Member"), member.encode_to_vec())
            }
        }
    }

    /// Length of the `Any`, bytes.
    pub fn encoded_len(&self) -> usize {
        // As in every message, an empty field is left out.
        let field = if self.value_len == 0 { 0 } else { length_delimited_len(VALUE, self.value_len) };
        length_delimited_len(TYPE_URL, self.type_url.len()) + field
    }

    /// Writes `start`, which has what comes before the `Any`, and then the `Any`. Leaves `start`
    /// with more than that: clear it before its next use.
    pub fn encode(&self, start: &mut Vec<u8>, to: &mut impl BufMut) {
        encode_bytes(TYPE_URL, self.type_url.as_bytes(), start);
        if self.value_len > 0 {
            encode_key(VALUE, WireType::LengthDelimited, start);
            encode_varint(self.value_len as u64, start);
        }
        match &self.value {
            PackedValue::Pair(pair) => encode_pair(pair, start, to),
            PackedValue::Encoded(value) => {
                to.put_slice(start);
                to.put_slice(value);
            }
        }
    }
}

/// Numbers of the fields of `mvccpb.KeyValue`.
mod pair_field {
    pub(super) const KEY: u32 = 1;
    pub(super) const CREATE_REVISION: u32 = 2;
    pub(super) const MOD_REVISION: u32 = 3;
    pub(super) const VERSION: u32 = 4;
    pub(super) const VALUE: u32 = 5;
    pub(super) const LEASE: u32 = 6;
}

/// The numbers of a pair that come before its value, each with its field.
fn leading_numbers(pair: &KeyValue) -> [(u32, i64); 3] {
    [
        (pair_field::CREATE_REVISION, pair.create_revision.get()),
        (pair_field::MOD_REVISION, pair.mod_revision.get()),
        (pair_field::VERSION, pair.version),
    ]
}

/// Length of the message `mvccpb.KeyValue`, bytes.
fn pair_len(pair: &KeyValue) -> usize {
    // As in every message, empty fields are left out.
    let bytes_len = |tag, bytes: &Bytes| if bytes.is_empty() { 0 } else { length_delimited_len(tag, bytes.len()) };
    let number_len = |(tag, number): (u32, i64)| if number == 0 { 0 } else { int64::encoded_len(tag, &number) };
    bytes_len(pair_field::KEY, &pair.key)
        + leading_numbers(pair).map(number_len).iter().sum::<usize>()
        + bytes_len(pair_field::VALUE, &pair.value)
        + number_len((pair_field::LEASE, pair.lease.get()))
}

/// Writes `start`, and then the message `mvccpb.KeyValue`. All but the value is put together in
/// `start` before it is written.
fn encode_pair(pair: &KeyValue, start: &mut Vec<u8>, to: &mut impl BufMut) {
    if !pair.key.is_empty() {
        encode_bytes(pair_field::KEY, &pair.key, start);
    }
    for (tag, number) in leading_numbers(pair) {
        if number != 0 {
            int64::encode(tag, &number, start);
        }
    }
    if !pair.value.is_empty() {
        encode_key(pair_field::VALUE, WireType::LengthDelimited, start);
        encode_varint(pair.value.len() as u64, start);
    }
    to.put_slice(start);
    to.put_slice(&pair.value);
    if pair.lease != LeaseId::NONE {
        int64::encode(pair_field::LEASE, &pair.lease.get(), to);
    }
}

/// Length of the field `tag` with a string, bytes or message of `length` bytes, all with key and
/// length.
pub fn length_delimited_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

/// Writes a field of bytes, or a string.
pub fn encode_bytes(tag: u32, bytes: &[u8], to: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, to);
    encode_varint(bytes.len() as u64, to);
    to.put_slice(bytes);
}

/// The message of the data, packed as `Any`. `datacenter` is as in [`PackedData::new`].
pub fn entity_data(data: ElementData, datacenter: &str) -> prost_types::Any {
    let PackedData { type_url, value, .. } = PackedData::new(data, datacenter);
    let value = match value {
        PackedValue::Pair(pair) => key_value(pair).encode_to_vec(),
        PackedValue::Encoded(value) => value,
    };
    prost_types::Any { type_url: type_url.to_owned(), value }
}
