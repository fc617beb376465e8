//! Batches of changes as proto-JSON: names in camel case, bytes as base64, defaults left out; data
//! in the form of its message, with `@type` first.
//!
//! The data of a resource may be of a type that was registered at run time: the registry reads it.
//! Data of an unknown type is left as base64, beside its type.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Map, Value, json};

use headwater_node::TypeMap;
use headwater_proto::pb::PUBLIC_DESCRIPTORS;
use headwater_proto::pb::pbresource;
use headwater_proto::pb::pbwatcher::change::State;
use headwater_proto::pb::pbwatcher::{Change, ChangeBatch};
use headwater_proto::well_known::has_own_json;
use headwater_types::resource::{Any, Type};

const WRITE: SerializeOptions = SerializeOptions::new();
/// The full name of the message of a resource.
const RESOURCE: &str = "hashicorp.consul.resource.Resource";

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("a descriptor set that was compiled in"));

/// Whether types that were registered at run time are needed to write a batch.
pub(super) fn needs_types(batch: &ChangeBatch) -> bool {
    batch.changes.iter().filter_map(|change| change.data.as_ref()).any(|data| name(data) == RESOURCE)
}

/// Writes a batch; an empty object for the empty one.
pub(super) fn write(batch: &ChangeBatch, types: Option<&TypeMap>) -> Value {
    let mut object = Map::new();
    if !batch.changes.is_empty() {
        let changes = batch.changes.iter().map(|change| write_change(change, types)).collect();
        object.insert("changes".to_owned(), Value::Array(changes));
    }
    Value::Object(object)
}

fn write_change(change: &Change, types: Option<&TypeMap>) -> Value {
    let mut object = Map::new();
    if !change.element.is_empty() {
        object.insert("element".to_owned(), change.element.as_str().into());
    }
    if change.state() != State::Exists {
        object.insert("state".to_owned(), change.state().as_str_name().into());
    }
    if !change.resume_marker.is_empty() {
        object.insert("resumeMarker".to_owned(), STANDARD.encode(&change.resume_marker).into());
    }
    if change.continued {
        object.insert("continued".to_owned(), true.into());
    }
    if let Some(data) = &change.data {
        object.insert("data".to_owned(), write_any(data, types));
    }
    Value::Object(object)
}

fn name(any: &prost_types::Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

fn write_any(any: &prost_types::Any, types: Option<&TypeMap>) -> Value {
    let written = match name(any) {
        RESOURCE => write_resource(&any.value, types),
        name => write_message(name, &any.value),
    };
    with_type(any, written)
}

/// The JSON of `any`, whose message was `written`: fields stand beside `@type`, and a message with
/// a JSON form of its own, such as a time, is `value`. Bytes in base64 if it could not be written.
fn with_type(any: &prost_types::Any, written: Option<Value>) -> Value {
    match written {
        Some(Value::Object(mut fields)) if !has_own_json(name(any)) => {
            fields.insert("@type".to_owned(), any.type_url.as_str().into());
            Value::Object(fields)
        }
        Some(value) => json!({"@type": any.type_url, "value": value}),
        None => json!({"@type": any.type_url, "value": STANDARD.encode(&any.value)}),
    }
}

fn write_message(name: &str, encoded: &[u8]) -> Option<Value> {
    let message = DynamicMessage::decode(POOL.get_message_by_name(name)?, encoded).ok()?;
    message.serialize_with_options(serde_json::value::Serializer, &WRITE).ok()
}

fn write_resource(encoded: &[u8], types: Option<&TypeMap>) -> Option<Value> {
    let mut resource = pbresource::Resource::decode(encoded).ok()?;
    let data = resource.data.take();
    let mut value = write_message(RESOURCE, &resource.encode_to_vec())?;
    if let (Some(data), Some(object)) = (data, value.as_object_mut()) {
        let type_ = resource.id.and_then(|id| id.r#type).unwrap_or_default();
        let type_ = Type::new(&type_.group, &type_.group_version, &type_.kind);
        object.insert("data".to_owned(), write_content(&data, &type_, types));
    }
    Some(value)
}

/// The data of a resource: by its registered type, else by a message of this program, else as bytes
/// in base64.
fn write_content(data: &prost_types::Any, type_: &Type, types: Option<&TypeMap>) -> Value {
    let schema = types.and_then(|types| types.get(type_)).and_then(|known| known.schema()).and_then(Result::ok);
    let content = Any { type_url: data.type_url.clone(), value: data.value.clone().into() };
    let known = schema.and_then(|schema| schema.data_as_json(&content).ok());
    match known.and_then(|known| serde_json::to_value(known).ok()) {
        Some(written) => with_type(data, Some(written)),
        None => write_any(data, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::mvccpb::KeyValue;

    fn any(name: &str, message: &impl Message) -> Option<prost_types::Any> {
        Some(prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() })
    }

    #[test]
    fn w54_defaults_are_left_out() {
        let kv = KeyValue { key: "app".into(), value: "d0".into(), mod_revision: 7, ..KeyValue::default() };
        let batch = ChangeBatch { changes: vec![Change { data: any("mvccpb.KeyValue", &kv), ..Change::default() }] };
        let wanted = json!({"changes": [{"data": {
            "@type": "type.googleapis.com/mvccpb.KeyValue", "key": "YXBw", "value": "ZDA=", "modRevision": "7",
        }}]});
        assert_eq!(write(&batch, None), wanted);
        assert_eq!(write(&ChangeBatch::default(), None), json!({}));
    }

    #[test]
    fn everything_has_its_name() {
        let gone = Change {
            element: "a/b".to_owned(),
            state: State::DoesNotExist.into(),
            resume_marker: vec![0xfb, 0xff].into(),
            ..Change::default()
        };
        let implied = Change { continued: true, data: any("google.protobuf.Empty", &()), ..Change::default() };
        let unknown = Change { data: any("some.Message", &KeyValue::default()), ..Change::default() };
        let number = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(1.5)) };
        let fields = prost_types::Struct { fields: [("value".to_owned(), number)].into() };
        let own_form = Change { data: any("google.protobuf.Struct", &fields), ..Change::default() };
        let batch = ChangeBatch { changes: vec![gone, implied, unknown, own_form] };
        let wanted = json!({"changes": [
            {"element": "a/b", "state": "DOES_NOT_EXIST", "resumeMarker": "+/8="},
            {"continued": true, "data": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}},
            {"data": {"@type": "type.googleapis.com/some.Message", "value": ""}},
            {"data": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"value": 1.5}}},
        ]});
        assert_eq!(write(&batch, None), wanted);
    }
}
