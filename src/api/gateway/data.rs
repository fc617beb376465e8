//! Reads JSON requests that write resources. The data of a resource has the form of its registered
//! type, which only the node knows. Data of an unregistered type may be a message of this program's
//! protos, or bytes: `{"@type": …, "value": base64}`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage};
use serde_json::{Map, Value};
use tonic::Status;

use super::answer::{ANY, RESOURCE};
use super::json;
use super::routes::Route;
use headwater_node::{Node, TypeMap};
use headwater_proto::well_known::has_own_json;
use headwater_types::resource::{Any, Type};

/// Name of the field of a resource that holds its data.
const DATA: &str = "data";

/// Reads the JSON text of a request, and encodes it as the input of `route`.
///
/// # Errors
///
/// `INVALID_ARGUMENT` with the mistake. `UNAVAILABLE` if the node cannot read its registered types.
pub(super) async fn read(route: &Route, node: Option<&Node>, text: &[u8]) -> Result<Bytes, Status> {
    let (true, Some(node)) = (route.has_resources, node) else { return json::read(&route.input, text) };
    let Ok(mut value) = serde_json::from_slice(text) else { return json::read(&route.input, text) };
    let mut found = Vec::new();
    take(&mut value, &route.input, &mut Vec::new(), &mut found);
    if found.is_empty() {
        return json::read(&route.input, text);
    }
    let types = node.resources().types().await.map_err(|error| Status::unavailable(error.to_string()))?;
    put_back(&route.input, &value, found, &types)
}

/// A step on the path from a message to a part of it.
#[derive(Clone, Debug)]
enum Step {
    Field(FieldDescriptor),
    Item(usize),
}

/// The data of one resource, taken out of a request.
struct Data {
    /// The path from the request to the resource.
    path: Vec<Step>,
    type_: Type,
    data: Map<String, Value>,
}

/// Moves the data of all resources in `value` to `found`. `path` leads from the request to `value`,
/// which is a message of the type `message`.
fn take(value: &mut Value, message: &MessageDescriptor, path: &mut Vec<Step>, found: &mut Vec<Data>) {
    let Value::Object(fields) = value else { return };
    if message.full_name() == RESOURCE {
        let type_ = type_of(fields);
        if let Some(Value::Object(data)) = fields.get(DATA).cloned() {
            fields.remove(DATA);
            found.push(Data { path: path.clone(), type_, data });
        }
        return;
    }
    for (name, value) in fields {
        let field = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
        let Some(field) = field.filter(|field| !field.is_map()) else { continue };
        let Kind::Message(inner) = field.kind() else { continue };
        path.push(Step::Field(field));
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    path.push(Step::Item(at));
                    take(item, &inner, path, found);
                    path.pop();
                }
            }
            value => take(value, &inner, path, found),
        }
        path.pop();
    }
}

fn type_of(resource: &Map<String, Value>) -> Type {
    let type_ = resource.get("id").and_then(|id| id.get("type"));
    let part = |names: [&str; 2]| {
        let part = names.iter().find_map(|name| type_?.get(name)?.as_str());
        part.unwrap_or_default().to_owned()
    };
    Type::new(&part(["group", "group"]), &part(["group_version", "groupVersion"]), &part(["kind", "kind"]))
}

/// Encodes `value` as a message of the type `input`, with the data in `found` put back into its
/// resources.
fn put_back(input: &MessageDescriptor, value: &Value, found: Vec<Data>, types: &TypeMap) -> Result<Bytes, Status> {
    let text = serde_json::to_vec(value).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let encoded = json::read(input, &text)?;
    let broken = |error: prost_reflect::prost::DecodeError| Status::internal(error.to_string());
    let mut message = DynamicMessage::decode(input.clone(), encoded).map_err(broken)?;
    for Data { path, type_, data } in found {
        let place = place(&path);
        let any = read_data(data, &type_, types, input)
            .map_err(|error| Status::invalid_argument(format!("{place}.{DATA}: {error}")))?;
        if let Some(resource) = at(&mut message, &path) {
            let field = resource.descriptor().get_field_by_name(DATA).expect("a resource has data");
            let Kind::Message(kind) = field.kind() else { continue };
            let mut content = DynamicMessage::new(kind);
            content.set_field_by_name("type_url", prost_reflect::Value::String(any.type_url));
            content.set_field_by_name("value", prost_reflect::Value::Bytes(any.value));
            resource.set_field(&field, prost_reflect::Value::Message(content));
        }
    }
    Ok(message.encode_to_vec().into())
}

fn place(path: &[Step]) -> String {
    let mut place = String::new();
    for step in path {
        match step {
            Step::Field(field) if place.is_empty() => place.push_str(field.name()),
            Step::Field(field) => place.extend([".", field.name()]),
            Step::Item(at) => place.push_str(&format!("[{at}]")),
        }
    }
    place
}

/// The part of `message` at the end of `path`; `None` if that part was dropped as unknown.
fn at<'m>(message: &'m mut DynamicMessage, path: &[Step]) -> Option<&'m mut DynamicMessage> {
    let mut message = message;
    let mut steps = path.iter().peekable();
    while let Some(step) = steps.next() {
        let Step::Field(field) = step else { return None };
        if !message.has_field(field) {
            return None;
        }
        let mut value = message.get_field_mut(field);
        if let Some(Step::Item(at)) = steps.peek() {
            steps.next();
            value = value.as_list_mut()?.get_mut(*at)?;
        }
        message = value.as_message_mut()?;
    }
    Some(message)
}

fn read_data(
    mut data: Map<String, Value>,
    type_: &Type,
    types: &TypeMap,
    input: &MessageDescriptor,
) -> Result<Any, String> {
    let named = data.get("@type").and_then(Value::as_str).map(ToOwned::to_owned);
    let schema = types.get(type_).and_then(|known| known.schema()).and_then(Result::ok);
    if let Some(schema) = schema {
        data.remove("@type");
        let name = named.as_deref().and_then(|url| url.rsplit('/').next());
        let content = match data.len() {
            // As data of such a message is written.
            1 if name.is_some_and(has_own_json) && data.contains_key("value") => {
                data.remove("value").unwrap_or_default()
            }
            _ => Value::Object(data),
        };
        let mut any = schema.read_data(content).map_err(|error| error.to_string())?;
        // Another type than the schema's is refused later, with the other rules of resources.
        any.type_url = named.unwrap_or(any.type_url);
        return Ok(any);
    }
    let Some(type_url) = named else {
        return Err(format!("the type {type_} is not registered; with \"@type\" its data may be bytes, as \"value\""));
    };
    let pool = input.parent_pool();
    if pool.get_message_by_name(type_url.rsplit('/').next().unwrap_or_default()).is_some() {
        let any = pool.get_message_by_name(ANY).expect("the pool has it, because resources have one");
        let any = DynamicMessage::deserialize(any, Value::Object(data)).map_err(|error| error.to_string())?;
        let any: prost_types::Any = any.transcode_to().map_err(|error| error.to_string())?;
        return Ok(Any { type_url, value: any.value.into() });
    }
    let value = data.get("value").and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
    let value = value.ok_or_else(|| format!("{type_url} is not known here: give its bytes in base64 as \"value\""))?;
    Ok(Any { type_url, value: value.into() })
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use serde_json::json;

    use super::*;
    use headwater_proto::pb::PUBLIC_DESCRIPTORS;
    use headwater_proto::pb::headwater_v1::CommitRequest;
    use headwater_proto::pb::headwater_v1::operation::Operation;

    fn read(mut value: Value) -> Result<CommitRequest, Status> {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap();
        let input = pool.get_message_by_name("headwater.v1.CommitRequest").unwrap();
        let mut found = Vec::new();
        take(&mut value, &input, &mut Vec::new(), &mut found);
        put_back(&input, &value, found, &TypeMap::default()).map(|read| CommitRequest::decode(read).unwrap())
    }

    fn write(data: &Value) -> Value {
        let id = json!({"name": "a", "type": {"group": "demo", "groupVersion": "v2", "kind": "Artist"}});
        json!({"operations": [
            {"put": {"key": "YQ=="}},
            {"write_resource": {"resource": {"id": id, "data": data}}},
        ]})
    }

    #[test]
    fn data_without_a_registered_type_may_be_bytes() {
        let bytes = json!({"@type": "type.googleapis.com/demo.v2.Artist", "value": "CgFr"});
        let known = json!({"@type": "type.googleapis.com/mvccpb.KeyValue", "key": "aw=="});
        for (data, type_url) in [(bytes, "demo.v2.Artist"), (known, "mvccpb.KeyValue")] {
            let read = read(write(&data)).unwrap();
            let Some(Operation::WriteResource(write)) = &read.operations[1].operation else { panic!("{read:?}") };
            let resource = write.resource.clone().unwrap();
            let data = resource.data.unwrap();
            assert_eq!(
                (&data.type_url[..], &data.value[..]),
                (&*format!("type.googleapis.com/{type_url}"), &b"\n\x01k"[..])
            );
            assert_eq!(resource.id.unwrap().name, "a");
        }
    }

    #[test]
    fn a_mistake_has_its_place() {
        for (data, wanted) in [
            (json!({"name": "x"}), "the type demo.v2.Artist is not registered"),
            (json!({"@type": "x/demo.v2.Artist", "name": "x"}), "give its bytes"),
            (json!({"@type": "x/mvccpb.KeyValue", "key": 5}), "base64"),
        ] {
            let status = read(write(&data)).unwrap_err();
            assert!(status.message().starts_with("operations[1].write_resource.resource.data: "), "{status:?}");
            assert!(status.message().contains(wanted), "{status:?}");
        }
    }
}
