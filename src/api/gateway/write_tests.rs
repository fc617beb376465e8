use std::sync::LazyLock;

use proptest::prelude::*;
use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, MapKey};
use serde_json::{Value, json};

use super::super::answer::{ANY, RESOURCE};
use super::*;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::headwater_v1::{CommandChanges, Entity, EntityChange, HistoryResponse, ReadResponse};
use headwater_proto::pb::{PUBLIC_DESCRIPTORS, mvccpb};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).unwrap());
static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| Layouts::new(&POOL));

fn text_of(name: &str, bytes: &[u8]) -> Result<String, Problem> {
    let mut text = Vec::new();
    write(&LAYOUTS, None, LAYOUTS.find(name).unwrap(), bytes, &mut text)?;
    Ok(String::from_utf8(text).unwrap())
}

fn value_of(name: &str, bytes: &[u8]) -> Value {
    serde_json::from_str(&text_of(name, bytes).unwrap()).unwrap()
}

fn written(name: &str, message: &impl Message) -> Value {
    value_of(name, &message.encode_to_vec())
}

fn packed(name: &str, message: &impl Message) -> Option<prost_types::Any> {
    Some(prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() })
}

#[test]
fn entities_are_written_with_their_types() {
    let kv = mvccpb::KeyValue { key: "app".into(), value: "d0".into(), mod_revision: 7, ..Default::default() };
    let entity = |data| Entity { path: "/kv/app".to_owned(), data, index: 9 };
    let read = ReadResponse {
        index: 9,
        entities: vec![entity(packed("mvccpb.KeyValue", &kv)), entity(packed("google.protobuf.Empty", &()))],
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
        data: packed("demo.v2.Artist", &mvccpb::KeyValue { key: "k".into(), ..Default::default() }),
        ..Default::default()
    };
    let change = EntityChange {
        kind: 2,
        after: Some(Entity { data: packed(RESOURCE, &resource), ..Default::default() }),
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

#[test]
fn answers_are_written_as_etcd_writes_them() {
    let answer = pb::RangeResponse {
        header: Some(pb::ResponseHeader { cluster_id: u64::MAX, revision: 7, ..Default::default() }),
        kvs: vec![mvccpb::KeyValue { key: "foo".into(), mod_revision: 7, lease: -1, ..Default::default() }],
        more: true,
        count: 0,
    };
    let text = concat!(
        r#"{"header":{"cluster_id":"18446744073709551615","revision":"7"},"#,
        r#""kvs":[{"key":"Zm9v","mod_revision":"7","lease":"-1"}],"more":true}"#
    );
    assert_eq!(text_of("etcdserverpb.RangeResponse", &answer.encode_to_vec()).unwrap(), text);

    let alarms = pb::AlarmResponse {
        header: Some(pb::ResponseHeader::default()),
        alarms: vec![pb::AlarmMember { member_id: 3, alarm: 1 }, pb::AlarmMember { member_id: 4, alarm: 77 }],
    };
    let text = r#"{"header":{},"alarms":[{"memberID":"3","alarm":"NOSPACE"},{"memberID":"4","alarm":77}]}"#;
    assert_eq!(text_of("etcdserverpb.AlarmResponse", &alarms.encode_to_vec()).unwrap(), text);
}

/// Choices, taken from random bytes; zeroes after their end.
struct Choices<'b>(&'b [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        if self.0.has_remaining() { self.0.get_u8() } else { 0 }
    }

    fn bits(&mut self) -> u64 {
        // Small numbers, negative ones and large ones.
        match self.byte() % 4 {
            0 => u64::from(self.byte()),
            1 => u64::MAX - u64::from(self.byte()),
            2 => u64::from(self.byte()) << 56,
            _ => u64::from(self.byte()) << 31,
        }
    }

    fn text(&mut self) -> String {
        let parts = ["", "a", "\"", "\\", "\n", "\u{1}", "é", "\u{1f600}", "/", "</"];
        (0..self.byte() % 4).map(|_| parts[usize::from(self.byte()) % parts.len()]).collect()
    }
}

fn single(kind: &prost_reflect::Kind, choices: &mut Choices<'_>, depth: usize) -> prost_reflect::Value {
    use prost_reflect::{Kind, Value};
    match kind {
        Kind::Bool => Value::Bool(choices.byte() % 2 == 1),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(choices.bits() as i32),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(choices.bits() as u32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(choices.bits() as i64),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(choices.bits()),
        Kind::Float => Value::F32(f32::from_bits(choices.bits() as u32)),
        Kind::Double => Value::F64(f64::from_bits(choices.bits())),
        Kind::String => Value::String(choices.text()),
        Kind::Bytes => Value::Bytes(choices.text().into()),
        Kind::Enum(_) => Value::EnumNumber(i32::from(choices.byte() % 8) - 1),
        Kind::Message(message) => Value::Message(filled(message, choices, depth + 1)),
    }
}

/// A message with random fields. Forms that not every content has, as times, and data of any type
/// are left out.
fn filled(descriptor: &prost_reflect::MessageDescriptor, choices: &mut Choices<'_>, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    let is_own = |field: &FieldDescriptor| {
        field.kind().as_message().is_some_and(|inner| inner.package_name() == "google.protobuf")
    };
    for field in descriptor.fields() {
        if is_own(&field) || depth > 3 || choices.byte().is_multiple_of(3) {
            continue;
        }
        let value = match field.cardinality() {
            _ if field.is_map() => {
                let entry = field.kind().as_message().unwrap().clone();
                let kind = entry.map_entry_value_field();
                if is_own(&kind) {
                    continue;
                }
                let pair = |_| {
                    let key = match single(&entry.map_entry_key_field().kind(), choices, depth) {
                        prost_reflect::Value::String(text) => MapKey::String(text),
                        other => panic!("no public map has such a key: {other:?}"),
                    };
                    (key, single(&kind.kind(), choices, depth))
                };
                prost_reflect::Value::Map((0..3).map(pair).collect())
            }
            Cardinality::Repeated => {
                let count = choices.byte() % 4;
                prost_reflect::Value::List((0..count).map(|_| single(&field.kind(), choices, depth)).collect())
            }
            Cardinality::Optional | Cardinality::Required => single(&field.kind(), choices, depth),
        };
        message.set_field(&field, value);
    }
    message
}

fn as_the_library_writes(message: &DynamicMessage) -> Value {
    message.serialize_with_options(serde_json::value::Serializer, &WRITE).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_message_is_written_as_the_library_writes_it(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let public: Vec<_> = POOL
            .all_messages()
            .filter(|message| !message.package_name().starts_with("google.") && !message.is_map_entry())
            .collect();
        let descriptor = at.get(&public);
        let message = filled(descriptor, &mut Choices(&bytes), 0);
        let text = text_of(descriptor.full_name(), &message.encode_to_vec()).unwrap();
        let ours: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(ours, as_the_library_writes(&message), "{}", descriptor.full_name());
        // Another encoding of the same message: fields backwards, and one of them twice.
        let mut backwards = Vec::new();
        let fields: Vec<_> = message.fields().map(|(field, value)| (field, value.clone())).collect();
        for (field, value) in fields.iter().rev().chain(fields.iter().rev().take(1)) {
            let mut part = DynamicMessage::new(descriptor.clone());
            part.set_field(field, value.clone());
            backwards.extend(part.encode_to_vec());
        }
        let read = DynamicMessage::decode(descriptor.clone(), &backwards[..]).unwrap();
        prop_assert_eq!(value_of(descriptor.full_name(), &backwards), as_the_library_writes(&read));
    }

    #[test]
    fn hostile_bytes_are_written_or_refused(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let all: Vec<_> = POOL.all_messages().collect();
        let descriptor = at.get(&all);
        let text = text_of(descriptor.full_name(), &bytes);
        let is_known = DynamicMessage::decode(descriptor.clone(), &bytes[..]).is_ok();
        if let Ok(text) = &text {
            prop_assert!(serde_json::from_str::<Value>(text).is_ok(), "{}", text);
        }
        prop_assert!(is_known || text.is_err(), "{:?}", text);
        // Whatever it is, an `Any` with it can be written.
        let any = prost_types::Any { type_url: format!("x/{}", descriptor.full_name()), value: bytes };
        let text = text_of(ANY, &any.encode_to_vec()).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap()["@type"], &any.type_url);
    }
}

#[test]
fn the_data_of_a_resource_has_its_number() {
    let resource = POOL.get_message_by_name(RESOURCE).unwrap();
    assert_eq!(resource.get_field_by_name("data").unwrap().number(), DATA);
}

#[test]
fn messages_in_messages_without_end_are_refused() {
    let mut bytes = pb::TxnRequest::default().encode_to_vec();
    for _ in 0..DEPTH_MAX {
        let inner = pb::RequestOp::default();
        let mut op = inner.encode_to_vec();
        prost::encoding::bytes::encode(4, &bytes, &mut op);
        bytes.clear();
        prost::encoding::bytes::encode(2, &op, &mut bytes);
    }
    assert_eq!(text_of("etcdserverpb.TxnRequest", &bytes), Err(Problem::Malformed));
}
