//! Writes answers that contain messages of any type (`google.protobuf.Any`) as JSON: each as
//! `@type` with the fields of the message. The node knows the types of resources that were
//! registered at run time. A message of an unknown type is written as its bytes in base64, in the
//! field `value`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, ReflectMessage, SerializeOptions};
use serde_json::{Map, Value, json};
use tonic::Status;

use super::json;
use super::routes::Route;
use headwater_node::{Node, TypeMap};
use headwater_proto::pb::pbresource;
use headwater_types::resource::{Any, Type};

/// The full name of the message that contains a message of any type.
pub(super) const ANY: &str = "google.protobuf.Any";
/// The full name of the message of a resource.
pub(super) const RESOURCE: &str = "hashicorp.consul.resource.Resource";
/// The package of messages with a form of their own in JSON.
const WELL_KNOWN: &str = "google.protobuf";
const WRITE: SerializeOptions = SerializeOptions::new().use_proto_field_name(true);

/// Writes the answers of one route as JSON.
#[derive(Clone)]
pub(super) struct AnswerWriter {
    has_any: bool,
    node: Option<Node>,
}

impl AnswerWriter {
    /// The writer for the answers of `route`. `node` supplies the registered types of resources;
    /// without it, only the types in this program's protos are known.
    pub(super) fn new(route: Option<&Route>, node: Option<&Node>) -> Self {
        let has_any = route.is_some_and(|route| route.has_any);
        Self { has_any, node: node.filter(|_| has_any).cloned() }
    }

    /// Writes a message.
    ///
    /// # Errors
    ///
    /// As [`json::write`].
    pub(super) async fn write(&self, message: &DynamicMessage) -> Result<Vec<u8>, Status> {
        if !self.has_any {
            return json::write(message);
        }
        let types = match &self.node {
            Some(node) => node.resources().types().await.ok(),
            None => None,
        };
        serde_json::to_vec(&message_value(message, types.as_deref())?).map_err(|error| unwritable(&error))
    }

    /// Writes a message as one line of a stream: `{"result":…}`.
    ///
    /// # Errors
    ///
    /// As [`json::write`].
    pub(super) async fn write_result(&self, message: &DynamicMessage) -> Result<Vec<u8>, Status> {
        if !self.has_any {
            return json::write_result(message);
        }
        let mut line = b"{\"result\":".to_vec();
        line.extend(self.write(message).await?);
        line.extend_from_slice(b"}\n");
        Ok(line)
    }
}

fn unwritable(error: &serde_json::Error) -> Status {
    Status::internal(format!("headwater: an answer cannot be written as JSON: {error}"))
}

fn message_value(message: &DynamicMessage, types: Option<&TypeMap>) -> Result<Value, Status> {
    let descriptor = message.descriptor();
    if descriptor.full_name() == ANY {
        let any: prost_types::Any = message.transcode_to().map_err(|error| Status::internal(error.to_string()))?;
        return any_value(&any, &descriptor.parent_pool().clone(), types);
    }
    if descriptor.package_name() == WELL_KNOWN {
        let written = message.serialize_with_options(serde_json::value::Serializer, &WRITE);
        return written.map_err(|error| unwritable(&error));
    }
    let mut object = Map::new();
    for (field, value) in message.fields() {
        object.insert(field.name().to_owned(), value_of(&field.kind(), value, types)?);
    }
    if descriptor.full_name() == RESOURCE
        && let Ok(resource) = message.transcode_to::<pbresource::Resource>()
        && let Some(data) = &resource.data
    {
        let content = content_value(data, &type_of(&resource), &descriptor.parent_pool().clone(), types)?;
        object.insert("data".to_owned(), content);
    }
    Ok(Value::Object(object))
}

fn value_of(kind: &Kind, value: &prost_reflect::Value, types: Option<&TypeMap>) -> Result<Value, Status> {
    use prost_reflect::Value as Field;
    Ok(match value {
        Field::Bool(value) => Value::Bool(*value),
        Field::I32(value) => (*value).into(),
        Field::U32(value) => (*value).into(),
        Field::I64(value) => value.to_string().into(),
        Field::U64(value) => value.to_string().into(),
        Field::F32(value) => float(f64::from(*value)),
        Field::F64(value) => float(*value),
        Field::String(value) => value.as_str().into(),
        Field::Bytes(value) => STANDARD.encode(value).into(),
        Field::EnumNumber(number) => match kind.as_enum().and_then(|kind| kind.get_value(*number)) {
            Some(value) => value.name().into(),
            None => (*number).into(),
        },
        Field::Message(message) => message_value(message, types)?,
        Field::List(values) => {
            Value::Array(values.iter().map(|value| value_of(kind, value, types)).collect::<Result<_, _>>()?)
        }
        Field::Map(entries) => {
            let kind = kind.as_message().map_or_else(|| kind.clone(), |entry| entry.map_entry_value_field().kind());
            let mut object = Map::new();
            for (key, value) in entries {
                object.insert(key_text(key), value_of(&kind, value, types)?);
            }
            Value::Object(object)
        }
    })
}

fn float(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

fn name(any: &prost_types::Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

fn any_value(any: &prost_types::Any, pool: &DescriptorPool, types: Option<&TypeMap>) -> Result<Value, Status> {
    let known = pool.get_message_by_name(name(any));
    let resource = match name(any) {
        RESOURCE => pbresource::Resource::decode(&any.value[..]).ok(),
        _ => None,
    };
    // The data of a resource may be of a type that no proto of this program has.
    let (encoded, content) = match resource {
        Some(mut resource) => {
            let data = resource.data.take();
            let content = data.map(|data| content_value(&data, &type_of(&resource), pool, types)).transpose()?;
            (resource.encode_to_vec(), content)
        }
        None => (any.value.clone(), None),
    };
    let message = known.and_then(|known| DynamicMessage::decode(known, &encoded[..]).ok());
    let has_own_form = message.as_ref().is_some_and(|message| message.descriptor().package_name() == WELL_KNOWN);
    let written = message.map(|message| message_value(&message, types)).transpose()?;
    Ok(match written {
        // As proto-JSON has it.
        Some(value) if has_own_form => json!({"@type": any.type_url, "value": value}),
        Some(Value::Object(mut fields)) => {
            fields.extend(content.map(|content| ("data".to_owned(), content)));
            with_type(any, fields)
        }
        Some(value) => json!({"@type": any.type_url, "value": value}),
        None => json!({"@type": any.type_url, "value": STANDARD.encode(&any.value)}),
    })
}

fn type_of(resource: &pbresource::Resource) -> Type {
    let type_ = resource.id.as_ref().and_then(|id| id.r#type.clone()).unwrap_or_default();
    Type::new(&type_.group, &type_.group_version, &type_.kind)
}

/// The data of a resource as JSON: by its registered type, else by a message that the program
/// knows, else as bytes in base64.
fn content_value(
    data: &prost_types::Any,
    type_: &Type,
    pool: &DescriptorPool,
    types: Option<&TypeMap>,
) -> Result<Value, Status> {
    let schema = types.and_then(|types| types.get(type_)).and_then(|known| known.schema()).and_then(Result::ok);
    let content = Any { type_url: data.type_url.clone(), value: data.value.clone().into() };
    let known = schema.and_then(|schema| schema.data_as_json(&content).ok());
    match known.and_then(|known| serde_json::to_value(known).ok()) {
        Some(Value::Object(fields)) => Ok(with_type(data, fields)),
        Some(value) => Ok(json!({"@type": data.type_url, "value": value})),
        None => any_value(data, pool, None),
    }
}

fn with_type(any: &prost_types::Any, fields: Map<String, Value>) -> Value {
    let mut object = Map::new();
    object.insert("@type".to_owned(), any.type_url.as_str().into());
    object.extend(fields);
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::headwater_v1::{CommandChanges, Entity, EntityChange, HistoryResponse, ReadResponse};
    use headwater_proto::pb::{PUBLIC_DESCRIPTORS, mvccpb};

    fn any(name: &str, message: &impl Message) -> Option<prost_types::Any> {
        Some(prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() })
    }

    fn written(name: &str, message: &impl Message) -> Value {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
        let descriptor = pool.get_message_by_name(name).unwrap();
        let message = DynamicMessage::decode(descriptor, &message.encode_to_vec()[..]).unwrap();
        message_value(&message, None).unwrap()
    }

    #[test]
    fn entities_are_written_with_their_types() {
        let kv = mvccpb::KeyValue { key: "app".into(), value: "d0".into(), mod_revision: 7, ..Default::default() };
        let entity = |data| Entity { path: "/kv/app".to_owned(), data, index: 9 };
        let read = ReadResponse {
            index: 9,
            entities: vec![entity(any("mvccpb.KeyValue", &kv)), entity(any("google.protobuf.Empty", &()))],
            ..Default::default()
        };
        let wanted = json!({"index": "9", "entities": [
            {"path": "/kv/app", "index": "9", "data": {
                "@type": "type.googleapis.com/mvccpb.KeyValue", "key": "YXBw", "value": "ZDA=", "mod_revision": "7",
            }},
            {"path": "/kv/app", "index": "9", "data": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}},
        ]});
        assert_eq!(written("headwater.v1.ReadResponse", &read), wanted);
    }

    #[test]
    fn data_of_unknown_types_is_left_as_bytes() {
        let resource = pbresource::Resource {
            version: "7".to_owned(),
            data: any("demo.v2.Artist", &mvccpb::KeyValue { key: "k".into(), ..Default::default() }),
            ..Default::default()
        };
        let change = EntityChange {
            kind: 2,
            after: Some(Entity { data: any(RESOURCE, &resource), ..Default::default() }),
            ..Default::default()
        };
        let commands = vec![CommandChanges { changes: vec![change], ..Default::default() }];
        let history = HistoryResponse { commands, ..Default::default() };
        let written = written("headwater.v1.HistoryResponse", &history);
        let change = &written["commands"][0]["changes"][0];
        assert_eq!(change["kind"], "UPDATED");
        let data = json!({"@type": "type.googleapis.com/demo.v2.Artist", "value": "CgFr"});
        assert_eq!((&change["after"]["data"]["version"], &change["after"]["data"]["data"]), (&json!("7"), &data));
    }
}
