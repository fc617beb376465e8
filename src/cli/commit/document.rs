//! The document of a commit: conditions and operations of any face, as YAML or JSON.
//!
//! Owns its grammar. An operation is the message of the API by its JSON names, with three
//! easements: bytes are texts (or `{base64: …}`, `{hex: …}`), `prefix: true` stands for the end of
//! an interval, and resources are written as in manifests. Invariant: a mistake has its line and
//! its column.
//!
//! ```yaml
//! conditions:
//! - {target: /kv/app/owner, exists: false}
//! operations:
//! - put: {key: app/owner, value: web-2}
//! - deleteRange: {key: app/old/, prefix: true}
//! - writeResource: {type: Artist, name: korn, data: {name: Korn}}
//! ```

use std::path::Path;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};

use crate::resource::Catalogue;
use crate::resource::manifest::{Content, Location, Problem, YamlEntry, YamlNode, named, plan_one};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::operation::Operation;
use headwater_proto::pb::{PUBLIC_DESCRIPTORS, pbresource};
use headwater_types::kv::prefix_end;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("descriptors that were compiled in"));

/// The members that a document may have, as error texts list them.
const MEMBERS: &str = "conditions, operations, idempotencyKey";

fn message(name: &str) -> MessageDescriptor {
    POOL.get_message_by_name(name).expect("a message of the protos that this is built with")
}

/// Whether an operation writes or deletes a resource, so that reading the document needs the
/// registered types.
pub(super) fn has_resources(document: &YamlNode) -> bool {
    let Content::Map(entries) = &document.content else { return false };
    let operations = entries.iter().filter(|entry| entry.key == "operations");
    let items = operations.filter_map(|entry| match &entry.value.content {
        Content::List(items) => Some(items),
        _ => None,
    });
    items.flatten().any(|item| match &item.content {
        Content::Map(entries) => entries.iter().any(|entry| of_resource(&entry.key).is_some()),
        _ => false,
    })
}

/// Operations that are written as in manifests.
#[derive(Clone, Copy)]
enum OfResource {
    Write,
    Delete,
}

fn of_resource(key: &str) -> Option<OfResource> {
    match key {
        "writeResource" | "write_resource" => Some(OfResource::Write),
        "deleteResource" | "delete_resource" => Some(OfResource::Delete),
        _ => None,
    }
}

/// Reads a document; an error has all its problems. `catalogue` has the types of resources.
/// `folder` is that of the file; `None` for standard input.
pub(super) fn read(
    document: YamlNode,
    folder: Option<&Path>,
    catalogue: &mut Catalogue,
) -> Result<pb::CommitRequest, Vec<Problem>> {
    let (location, kind) = (document.location, document.kind());
    let Content::Map(entries) = document.content else {
        return Err(vec![Problem::at(location, format!("{kind} where a commit is wanted, a map of {MEMBERS}"))]);
    };
    let mut request = pb::CommitRequest::default();
    let mut problems = Vec::new();
    for entry in entries {
        match entry.key.as_str() {
            "conditions" => each(entry.value, &mut problems, |item| {
                request.conditions.push(typed(item, "headwater.v1.Condition")?);
                Ok(())
            }),
            "operations" => each(entry.value, &mut problems, |item| {
                request.operations.push(operation(item, folder, catalogue)?);
                Ok(())
            }),
            "idempotencyKey" | "idempotency_key" => match bytes(&entry.value) {
                Ok(key) => request.idempotency_key = key.into(),
                Err(problem) => problems.push(problem),
            },
            key => problems.push(Problem::at(entry.location, format!("unknown member {key:?}; there are {MEMBERS}"))),
        }
    }
    if request.operations.is_empty() && problems.is_empty() {
        problems.push(Problem::at(location, "the commit has no operations"));
    }
    if problems.is_empty() { Ok(request) } else { Err(problems) }
}

fn each(list: YamlNode, problems: &mut Vec<Problem>, mut read: impl FnMut(YamlNode) -> Result<(), Problem>) {
    let problem = list.wrong("a list");
    let Content::List(items) = list.content else { return problems.push(problem) };
    problems.extend(items.into_iter().filter_map(|item| read(item).err()));
}

fn operation(item: YamlNode, folder: Option<&Path>, catalogue: &mut Catalogue) -> Result<pb::Operation, Problem> {
    let entry = match item.entries()? {
        [entry] => entry,
        _ => {
            let known: Vec<String> =
                message("headwater.v1.Operation").fields().map(|field| field.json_name().to_owned()).collect();
            let text = format!("an operation is a map of one member: {}", known.join(", "));
            return Err(Problem::at(item.location, text));
        }
    };
    let operation = match of_resource(&entry.key) {
        Some(OfResource::Write) => {
            let (resource, version) = plan_one(entry.value.clone(), folder, catalogue)?;
            let resource = pbresource::Resource { version, ..resource.into() };
            Operation::WriteResource(pbresource::WriteRequest { resource: Some(resource) })
        }
        Some(OfResource::Delete) => {
            let (id, version) = named(entry.value.clone(), catalogue)?;
            Operation::DeleteResource(pbresource::DeleteRequest { id: Some(id.into()), version })
        }
        None => return typed(item, "headwater.v1.Operation"),
    };
    Ok(pb::Operation { operation: Some(operation) })
}

/// Reads `node` as the protobuf message with the full name `name`, which must be the message of
/// `M`.
fn typed<M: Message + Default>(mut node: YamlNode, name: &str) -> Result<M, Problem> {
    let descriptor = message(name);
    write_as_json(&mut node, &descriptor)?;
    let location = node.location;
    let read = DynamicMessage::deserialize(descriptor, &node).map_err(|problem| problem.or_at(location))?;
    Ok(M::decode(read.encode_to_vec().as_slice()).expect("the bytes of this message"))
}

fn field_of(descriptor: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name))
}

/// Rewrites a message in place as proto-JSON, at any depth: bytes become base64, and `prefix: true`
/// becomes `rangeEnd`.
fn write_as_json(node: &mut YamlNode, descriptor: &MessageDescriptor) -> Result<(), Problem> {
    let Content::Map(entries) = &mut node.content else { return Ok(()) };
    if let Some(ends) = prefix(entries, descriptor)? {
        entries.push(ends);
    }
    for entry in entries {
        let Some(field) = field_of(descriptor, &entry.key) else { continue };
        let items: Vec<&mut YamlNode> = match &mut entry.value.content {
            Content::List(items) if field.is_list() => items.iter_mut().collect(),
            Content::Map(values) if field.is_map() => values.iter_mut().map(|entry| &mut entry.value).collect(),
            _ => vec![&mut entry.value],
        };
        let kind = match field.kind() {
            Kind::Message(map) if field.is_map() => map.map_entry_value_field().kind(),
            kind => kind,
        };
        for item in items {
            match &kind {
                Kind::Bytes => item.content = Content::Text(STANDARD.encode(bytes(item)?)),
                Kind::Message(inner) => write_as_json(item, inner)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Removes `prefix` from a message with an interval of keys. Returns the `rangeEnd` that takes its
/// place; `None` without a prefix or if it is false.
fn prefix(entries: &mut Vec<YamlEntry>, descriptor: &MessageDescriptor) -> Result<Option<YamlEntry>, Problem> {
    let has_interval = descriptor.get_field_by_name("range_end").is_some();
    let Some(at) = entries.iter().position(|entry| has_interval && entry.key == "prefix") else { return Ok(None) };
    let given = entries.remove(at);
    let Content::Bool(is_prefix) = given.value.content else { return Err(given.value.wrong("true or false")) };
    if let Some(other) = entries.iter().find(|entry| matches!(entry.key.as_str(), "rangeEnd" | "range_end")) {
        return Err(Problem::at(other.location, "rangeEnd and prefix are both given"));
    }
    if !is_prefix {
        return Ok(None);
    }
    let key = entries.iter().find(|entry| entry.key == "key");
    let key = key.map_or(Ok(Vec::new()), |entry| bytes(&entry.value))?;
    if key.is_empty() {
        return Err(Problem::at(
            given.location,
            "a prefix needs a key that is not empty; every key is from \"\\0\" to \"\\0\"",
        ));
    }
    let end = prefix_end(&key).unwrap_or_else(|| b"\0"[..].into());
    let location = given.value.location;
    let text = Content::Map(vec![YamlEntry {
        location,
        key: "hex".to_owned(),
        value: YamlNode { location, content: Content::Text(hex(&end)) },
    }]);
    let value = YamlNode { location, content: text };
    Ok(Some(YamlEntry { location: given.location, key: "rangeEnd".to_owned(), value }))
}

/// Bytes: a text, or a map of `base64` or `hex`.
fn bytes(node: &YamlNode) -> Result<Vec<u8>, Problem> {
    let Content::Map(entries) = &node.content else { return Ok(node.text()?.as_bytes().to_vec()) };
    let [entry] = &entries[..] else { return Err(node.wrong("a text, {base64: …} or {hex: …}")) };
    let (text, location) = (entry.value.text()?, entry.value.location);
    match entry.key.as_str() {
        "base64" => STANDARD.decode(text).map_err(|error| Problem::at(location, format!("no base64: {error}"))),
        "hex" => unhex(text).ok_or_else(|| Problem::at(location, "no hexadecimal number of whole bytes")),
        key => Err(Problem::at(entry.location, format!("unknown form of bytes {key:?}; there are base64, hex"))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}

/// The positions of the items of `list`, which is `conditions` or `operations`, in a document. For
/// errors of the server, which name an item by its number from 0.
pub(super) fn places(document: &YamlNode, list: &str) -> Vec<Location> {
    let Content::Map(entries) = &document.content else { return Vec::new() };
    let lists = entries.iter().filter(|entry| entry.key == list);
    let items = lists.filter_map(|entry| match &entry.value.content {
        Content::List(items) => Some(items),
        _ => None,
    });
    items.flatten().map(|item| item.location).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::manifest::documents;
    use headwater_proto::pb::etcdserverpb;

    fn one(text: &str) -> YamlNode {
        documents(text).unwrap().remove(0)
    }

    fn request(text: &str) -> Result<pb::CommitRequest, Vec<String>> {
        let shown = |problem: Problem| {
            let at = problem.location.map_or_else(String::new, |at| format!("{}:{}: ", at.line, at.column));
            format!("{at}{}", problem.text)
        };
        read(one(text), None, &mut Catalogue::builtin()).map_err(|problems| problems.into_iter().map(shown).collect())
    }

    #[test]
    fn operations_of_all_faces_are_read() {
        let text = r#"
idempotencyKey: once
conditions:
- {target: /kv/app/owner, exists: false}
- {target: "/services/web?recursive=true", unchangedSince: 7}
- key: {key: app/a, target: VERSION, version: 3}
operations:
- put: {key: app/owner, value: web-2, lease: 7}
- put: {key: {hex: 00ff}, value: {base64: AAE=}}
- deleteRange: {key: app/old/, prefix: true}
- grantLease: {ID: 7, TTL: 60}
- revokeLease: {ID: 8}
- writeResource: {type: Partition, name: east, version: "3"}
- deleteResource: {type: Partition, name: west}
- register:
    node: {Node: n1, Address: 10.0.0.1}
    service: {Service: web, ID: web-1, Port: 80, Tags: [a]}
    checks: [{CheckID: c, Status: passing, ServiceID: web-1}]
- deregister: {node: n1, serviceId: web-2}
- createSession: {node: n1, ttlMs: 15000}
- destroySession: {id: s}
- consulKv: {verb: set, path: web/motd, value: hello}
"#;
        let request = request(text).unwrap();
        assert_eq!((&request.idempotency_key[..], request.conditions.len()), (&b"once"[..], 3));
        let compare = request.conditions[2].key.as_ref().unwrap();
        assert_eq!((&compare.key[..], compare.target), (&b"app/a"[..], 0));
        let operations: Vec<_> = request.operations.into_iter().map(|it| it.operation.unwrap()).collect();
        assert_eq!(operations.len(), 12);
        let Operation::Put(put) = &operations[0] else { panic!("{operations:?}") };
        assert_eq!((&put.key[..], &put.value[..], put.lease), (&b"app/owner"[..], &b"web-2"[..], 7));
        let Operation::Put(put) = &operations[1] else { panic!("{operations:?}") };
        assert_eq!((&put.key[..], &put.value[..]), (&b"\x00\xff"[..], &b"\x00\x01"[..]));
        let wanted = etcdserverpb::DeleteRangeRequest {
            key: "app/old/".into(),
            range_end: "app/old0".into(),
            ..Default::default()
        };
        assert_eq!(operations[2], Operation::DeleteRange(wanted));
        let Operation::WriteResource(write) = &operations[5] else { panic!("{operations:?}") };
        assert_eq!(write.resource.as_ref().unwrap().version, "3");
        let Operation::Register(register) = &operations[7] else { panic!("{operations:?}") };
        assert_eq!(register.service.as_ref().unwrap().tags, ["a"]);
        let Operation::ConsulKv(op) = &operations[11] else { panic!("{operations:?}") };
        assert_eq!((&op.path[..], &op.value[..]), (&b"web/motd"[..], &b"hello"[..]));
    }

    #[test]
    fn a_mistake_has_its_place() {
        for (text, wanted) in [
            ("[1]\n", "1:1: a list where a commit is wanted"),
            ("conditions: []\n", "1:1: the commit has no operations"),
            ("operations: {}\n", "1:13: a map where a list is wanted"),
            ("operation: []\n", "1:1: unknown member \"operation\""),
            ("operations:\n- putt: {}\n", "2:3: "),
            (
                "operations:\n- put: {key: a}\n  deleteRange: {key: a}\n",
                "2:3: an operation is a map of one member: put,",
            ),
            ("operations:\n- put: {key: a, val: b}\n", "2:17: "),
            ("operations:\n- put: {key: 7}\n", "2:14: a number where a text is wanted"),
            ("operations:\n- put: {key: {hex: abc}}\n", "2:20: no hexadecimal"),
            ("operations:\n- put: {key: {rot13: n}}\n", "2:15: unknown form of bytes"),
            ("operations:\n- deleteRange: {prefix: true}\n", "2:17: a prefix needs a key"),
            ("operations:\n- deleteRange: {key: a, rangeEnd: b, prefix: true}\n", "2:25: rangeEnd and prefix"),
            ("operations:\n- writeResource: {type: Artist, name: x}\n", "2:25: "),
            ("operations:\n- writeResource: {type: Partition, name: X}\n", "2:42: the name"),
            ("conditions:\n- {target: /kv/a, exist: true}\noperations:\n- put: {key: a}\n", "2:19: "),
        ] {
            let problems = request(text).unwrap_err();
            assert!(problems[0].starts_with(wanted), "{text}: {problems:?}");
        }
        let both = request("operations:\n- put: {key: 7}\n- put: {key: 8}\n").unwrap_err();
        assert_eq!(both.len(), 2, "all mistakes of a document: {both:?}");
    }

    #[test]
    fn parts_have_their_places() {
        let document = one("operations:\n- put: {key: a}\n- writeResource: {type: Partition, name: x}\n");
        let lines: Vec<u64> = places(&document, "operations").iter().map(|at| at.line).collect();
        assert_eq!((lines, has_resources(&document)), (vec![2, 3], true));
        assert!(!has_resources(&one("operations:\n- put: {key: a}\n")));
    }
}
