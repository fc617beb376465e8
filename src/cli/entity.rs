//! The data of entities as text for people and as JSON. Messages are read by their descriptors, the
//! data within resources by its registered type.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Freshness;
use super::connect::Cluster;
use super::resource::{Catalogue, Data};
use headwater_client::controller::wire;
use headwater_proto::pb::{PUBLIC_DESCRIPTORS, google, mvccpb, pbresource};
use headwater_proto::well_known::has_own_json;
use headwater_types::resource::{ResourceId, Type};

/// Least time between two reads of the catalogue for the same unknown type. It is read again
/// because the type may have been registered since, or the member may have been behind.
const TYPES_AGAIN: Duration = Duration::from_secs(5);
/// Full name of the protobuf message of a resource.
const RESOURCE: &str = "hashicorp.consul.resource.Resource";

/// Full name of the protobuf message of a key.
const KEY: &str = "mvccpb.KeyValue";

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("a descriptor set that was compiled in"));

/// The types of resources: at first the built-in ones, then also those of the cluster, which
/// [`learn`](Self::learn) reads.
pub(super) struct Types {
    catalogue: Catalogue,
    /// Types that the catalogue lacked when it was last read, or that could not be read, with the
    /// time of that attempt. The catalogue is read for them again after [`TYPES_AGAIN`].
    unknown: HashMap<Type, Instant>,
}

impl Types {
    pub(super) fn new() -> Self {
        Self { catalogue: Catalogue::builtin(), unknown: HashMap::new() }
    }

    /// Whether `type_` is unknown and the catalogue was not read for it within [`TYPES_AGAIN`].
    fn wants(&self, type_: &Type, now: Instant) -> bool {
        let is_due = |tried: &Instant| now.saturating_duration_since(*tried) >= TYPES_AGAIN;
        self.catalogue.get(type_).is_none() && self.unknown.get(type_).is_none_or(is_due)
    }

    /// Reads the catalogue again if any of `data` is a resource of an unknown type for which it was
    /// not read within [`TYPES_AGAIN`]. If that fails, the known types stay.
    pub(super) async fn learn(&mut self, data: impl Iterator<Item = &prost_types::Any>, cluster: &Cluster) {
        let met = data.filter_map(|data| Some(id_of(&resource(data)?).type_));
        let now = Instant::now();
        let new: HashSet<Type> = met.filter(|type_| self.wants(type_, now)).collect();
        if new.is_empty() {
            return;
        }
        // On failure the data is printed in base64, from which a program can still decode it.
        if let Ok(catalogue) = Catalogue::read(cluster, Freshness::Serializable).await {
            self.catalogue = catalogue;
        }
        self.unknown.retain(|type_, _| self.catalogue.get(type_).is_none());
        let still = new.into_iter().filter(|type_| self.catalogue.get(type_).is_none());
        self.unknown.extend(still.map(|type_| (type_, now)));
    }

    /// The data of a resource as JSON, in base64 if its type is unknown or does not fit. `None`
    /// without data.
    fn data(&self, resource: &pbresource::Resource) -> Option<Value> {
        let data = wire::data_from_pb(resource)?;
        serde_json::to_value(Data::of(&id_of(resource), data, &self.catalogue)).ok()
    }
}

fn id_of(resource: &pbresource::Resource) -> ResourceId {
    wire::id_from_pb(resource.id.as_ref())
}

/// The resource in an element. `None` if the element is another message or does not decode.
fn resource(any: &prost_types::Any) -> Option<pbresource::Resource> {
    (name(any) == RESOURCE).then(|| pbresource::Resource::decode(any.value.as_slice()).ok()).flatten()
}

/// The full name of the protobuf message in `any`.
pub(super) fn name(any: &prost_types::Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

/// The data of an element, on one line for people: `/` for a directory, the value of a key, version
/// and data of a resource, the message of a status. These are empty if they do not decode. Other
/// messages are JSON.
pub(super) fn shown(any: &prost_types::Any, types: &Types) -> String {
    let bytes = any.value.as_slice();
    match name(any) {
        "google.protobuf.Empty" => "/".to_owned(),
        "mvccpb.KeyValue" => mvccpb::KeyValue::decode(bytes)
            .map(|kv| String::from_utf8_lossy(&kv.value).escape_debug().to_string())
            .unwrap_or_default(),
        RESOURCE => resource(any)
            .map(|resource| {
                let data = types.data(&resource).map(|data| format!("  {data}")).unwrap_or_default();
                format!("version {}{data}", resource.version)
            })
            .unwrap_or_default(),
        "google.rpc.Status" => google::rpc::Status::decode(bytes).map(|status| status.message).unwrap_or_default(),
        _ => data_as_json(any, types).to_string(),
    }
}

/// The data of an element as proto-JSON, with its `@type`. The data within a resource is written by
/// its registered type. The bytes of the element are the field `value`, in base64, if they do not
/// decode, or if this program has no descriptor of the message or of a message within it. A message
/// with a JSON form of its own, such as the directory's, is `value`, too.
pub(super) fn data_as_json(any: &prost_types::Any, types: &Types) -> Value {
    if let Some(key) = WrittenKey::of(any) {
        return serde_json::to_value(key).unwrap_or_default();
    }
    if let Some(resource) = resource(any) {
        let data = types.data(&resource);
        let rest = pbresource::Resource { data: None, ..resource }.encode_to_vec();
        let mut json = known_as_json(any, &rest);
        if let (Some(fields), Some(data)) = (json.as_object_mut(), data) {
            fields.insert("data".to_owned(), data);
        }
        return json;
    }
    known_as_json(any, &any.value)
}

/// The data of an element, to be written as [`data_as_json`] makes it.
pub(super) struct WrittenData<'a> {
    pub(super) data: &'a prost_types::Any,
    pub(super) types: &'a Types,
}

impl Serialize for WrittenData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match WrittenKey::of(self.data) {
            Some(key) => key.serialize(serializer),
            None => data_as_json(self.data, self.types).serialize(serializer),
        }
    }
}

/// A key as proto-JSON with its `@type`, its fields in the order of their names. Written without
/// the descriptor and without a tree, which is faster: most of a history is keys.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenKey<'a> {
    #[serde(rename = "@type")]
    type_url: &'a str,
    #[serde(skip_serializing_if = "is_zero", serialize_with = "as_text")]
    create_revision: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    key: String,
    #[serde(skip_serializing_if = "is_zero", serialize_with = "as_text")]
    lease: i64,
    #[serde(skip_serializing_if = "is_zero", serialize_with = "as_text")]
    mod_revision: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    value: String,
    #[serde(skip_serializing_if = "is_zero", serialize_with = "as_text")]
    version: i64,
}

impl<'a> WrittenKey<'a> {
    /// The key in `any`. `None` if it has another message, or does not decode.
    fn of(any: &'a prost_types::Any) -> Option<Self> {
        if name(any) != KEY {
            return None;
        }
        let kv = mvccpb::KeyValue::decode(any.value.as_slice()).ok()?;
        Some(Self {
            type_url: &any.type_url,
            create_revision: kv.create_revision,
            key: STANDARD.encode(&kv.key),
            lease: kv.lease,
            mod_revision: kv.mod_revision,
            value: STANDARD.encode(&kv.value),
            version: kv.version,
        })
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A number as protobuf's mapping writes 64 bits.
fn as_text<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn known_as_json(any: &prost_types::Any, value: &[u8]) -> Value {
    let message = POOL.get_message_by_name(name(any));
    let message = message.and_then(|message| DynamicMessage::decode(message, value).ok());
    match message.and_then(|message| serde_json::to_value(message).ok()) {
        Some(Value::Object(mut fields)) if !has_own_json(name(any)) => {
            fields.insert("@type".to_owned(), any.type_url.as_str().into());
            Value::Object(fields)
        }
        Some(value) => json!({"@type": any.type_url, "value": value}),
        None => json!({"@type": any.type_url, "value": STANDARD.encode(&any.value)}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::etcdserverpb;

    #[test]
    fn a_key_is_written_as_its_descriptor_says() {
        let kv = mvccpb::KeyValue { key: "k".into(), mod_revision: 7, version: -1, ..Default::default() };
        for kv in [kv.clone(), mvccpb::KeyValue { value: vec![255].into(), lease: 9, create_revision: 3, ..kv }] {
            let type_url = "type.googleapis.com/mvccpb.KeyValue".to_owned();
            let any = prost_types::Any { type_url, value: kv.encode_to_vec() };
            let types = Types::new();
            assert_eq!(data_as_json(&any, &types), known_as_json(&any, &any.value));
            let written = serde_json::to_string(&WrittenData { data: &any, types: &types }).unwrap();
            assert_eq!(written, data_as_json(&any, &types).to_string());
        }
    }

    #[test]
    fn a_message_with_a_json_form_of_its_own_is_the_value() {
        for (name, encoded, wanted) in [
            ("google.protobuf.Empty", vec![], json!({})),
            ("google.protobuf.Duration", vec![8, 3], json!("3s")),
            ("google.protobuf.Struct", vec![], json!({})),
        ] {
            let any = prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: encoded };
            assert_eq!(data_as_json(&any, &Types::new()), json!({"@type": any.type_url, "value": wanted}));
        }
        let lease = etcdserverpb::LeaseGrantResponse { id: 5, ttl: 60, ..Default::default() };
        let type_url = "type.googleapis.com/etcdserverpb.LeaseGrantResponse".to_owned();
        let any = prost_types::Any { type_url: type_url.clone(), value: lease.encode_to_vec() };
        assert_eq!(data_as_json(&any, &Types::new()), json!({"@type": type_url, "ID": "5", "TTL": "60"}));
    }

    #[test]
    fn an_unknown_type_is_read_again_after_a_while() {
        let now = Instant::now();
        let lost = Type::new("demo", "v2", "Artist");
        let mut types = Types::new();
        assert!(!types.wants(&Type::partition(), now), "it is built in");
        assert!(types.wants(&lost, now));
        types.unknown.insert(lost.clone(), now);
        assert!(!types.wants(&lost, now + TYPES_AGAIN / 2));
        assert!(types.wants(&lost, now + TYPES_AGAIN));
    }
}
