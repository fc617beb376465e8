use std::sync::LazyLock;

use proptest::prelude::*;
use prost::encoding::{encode_key, encode_varint};
use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, MapKey, ReflectMessage};
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

fn as_the_library_writes(message: &DynamicMessage) -> Result<Value, serde_json::Error> {
    message.serialize_with_options(serde_json::value::Serializer, &WRITE)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_message_is_written_as_the_library_writes_it(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let descriptor = at.get(&OWN_MESSAGES[..]);
        let message = filled(descriptor, &mut Choices(&bytes), 0);
        let ours = value_of(descriptor.full_name(), &message.encode_to_vec());
        prop_assert_eq!(ours, as_the_library_writes(&message).unwrap(), "{}", descriptor.full_name());
    }

    #[test]
    fn other_encodings_are_read_as_the_library_reads_them(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let descriptor = at.get(&OWN_MESSAGES[..]);
        let mut choices = Choices(&bytes);
        let message = filled(descriptor, &mut choices, 0);
        let encoded = scrambled(&message, &mut choices).concat();
        let read = DynamicMessage::decode(descriptor.clone(), &encoded[..]).unwrap();
        let ours = value_of(descriptor.full_name(), &encoded);
        prop_assert_eq!(ours, as_the_library_writes(&read).unwrap(), "{}", descriptor.full_name());
    }

    #[test]
    fn broken_encodings_are_refused_where_the_library_refuses_them(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        position in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let descriptor = at.get(&OWN_MESSAGES[..]);
        let mut encoded = filled(descriptor, &mut Choices(&bytes), 0).encode_to_vec();
        encoded.push(byte);
        let position = position.index(encoded.len());
        encoded[position] = byte;
        encoded.truncate(position + usize::from(byte));
        let known = DynamicMessage::decode(descriptor.clone(), &encoded[..]);
        // The library does not write an `Any` of an unknown type.
        let is_malformed = known.is_err();
        let known = known.ok().and_then(|message| as_the_library_writes(&message).ok());
        match (text_of(descriptor.full_name(), &encoded), known) {
            (Ok(text), Some(known)) => {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), known, "{:?}", encoded);
            }
            (Ok(text), None) => prop_assert!(!is_malformed, "{:?} is refused by the library: {}", encoded, text),
            (Err(problem), known) => prop_assert_eq!(known, None, "{:?}: {:?}", encoded, problem),
        }
        // Whatever it is, an `Any` with it can be written.
        let any = prost_types::Any { type_url: format!("x/{}", descriptor.full_name()), value: encoded };
        let written = value_of(ANY, &any.encode_to_vec());
        prop_assert_eq!(&written["@type"], &any.type_url);
    }
}

/// The messages of this program's own protos.
static OWN_MESSAGES: LazyLock<Vec<prost_reflect::MessageDescriptor>> = LazyLock::new(|| {
    let is_own = |message: &prost_reflect::MessageDescriptor| {
        !message.package_name().starts_with("google.") && !message.is_map_entry()
    };
    POOL.all_messages().filter(is_own).collect()
});

/// Parts of another encoding of `message`: fields in any order, some in two parts, some twice, with
/// unknown fields between.
fn scrambled(message: &DynamicMessage, choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    use prost_reflect::Value as Field;
    let alone = |field: &FieldDescriptor, value: Field| {
        let mut part = DynamicMessage::new(message.descriptor());
        part.set_field(field, value);
        part.encode_to_vec()
    };
    let within = |field: &FieldDescriptor, bytes: &[u8]| {
        let mut part = Vec::new();
        encode_key(field.number(), WireType::LengthDelimited, &mut part);
        encode_varint(bytes.len() as u64, &mut part);
        part.extend(bytes);
        part
    };
    let mut parts = Vec::new();
    for (field, value) in message.fields() {
        match value {
            Field::Message(inner) => {
                let inner = scrambled(inner, choices);
                let (one, other) = inner.split_at(usize::from(choices.byte()) % (inner.len() + 1));
                parts.extend([within(&field, &one.concat()), within(&field, &other.concat())]);
            }
            Field::List(values) => parts.extend(values.iter().map(|value| match value {
                Field::Message(inner) => within(&field, &scrambled(inner, choices).concat()),
                value => alone(&field, Field::List(vec![value.clone()])),
            })),
            Field::Map(entries) => {
                let entry = |(key, value): (&MapKey, &Field)| {
                    alone(&field, Field::Map([(key.clone(), value.clone())].into_iter().collect()))
                };
                parts.extend(entries.iter().map(entry));
                parts.extend(entries.iter().take(usize::from(choices.byte() % 2)).map(entry));
            }
            value => parts.extend(vec![alone(&field, value.clone()); 1 + usize::from(choices.byte() % 2)]),
        }
        if choices.byte().is_multiple_of(4) {
            // An unknown field.
            parts.push(vec![0xa0, 0x9c, 0x3f, 7]);
        }
    }
    for at in 0..parts.len() {
        let other = usize::from(choices.byte()) % parts.len();
        parts.swap(at, other);
    }
    parts
}

/// A field with a length.
fn part(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut part = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut part);
    encode_varint(bytes.len() as u64, &mut part);
    part.extend(bytes);
    part
}

#[test]
fn later_fields_replace_earlier_ones() {
    let metadata = |entry: &[Vec<u8>]| part(5, &entry.concat());
    let status = |observed: &[u8]| part(2, observed);
    for (name, bytes, wanted) in [
        // Two members of a oneof.
        (
            "etcdserverpb.RequestOp",
            [part(1, &part(1, b"a")), part(2, &part(1, b"b"))].concat(),
            json!({"request_put": {"key": "Yg=="}}),
        ),
        // A key of a map again, and the value of an entry twice.
        (
            RESOURCE,
            [metadata(&[part(1, b"k"), part(2, b"1")]), metadata(&[part(1, b"k"), part(2, b"2")])].concat(),
            json!({"metadata": {"k": "2"}}),
        ),
        (RESOURCE, metadata(&[part(1, b"k"), part(2, b"1"), part(2, b"2")]), json!({"metadata": {"k": "2"}})),
        // The value of an entry in two parts.
        (
            RESOURCE,
            part(6, &[part(1, b"c"), status(&part(1, b"g")), status(&part(2, &part(1, b"t")))].concat()),
            json!({"status": {"c": {"observed_generation": "g", "conditions": [{"type": "t"}]}}}),
        ),
        // A time that has no form in JSON, and is replaced by another.
        (
            "hashicorp.consul.resource.Status",
            [part(3, &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), part(3, &[0x08, 0x00])].concat(),
            json!({"updated_at": "1970-01-01T00:00:00Z"}),
        ),
        // Zero, in more bits than the field has.
        ("headwater.v1.EntityChange", vec![0x10, 0x80, 0x80, 0x80, 0x80, 0x10], json!({})),
    ] {
        let known = DynamicMessage::decode(POOL.get_message_by_name(name).unwrap(), &bytes[..]).unwrap();
        assert_eq!(as_the_library_writes(&known).unwrap(), wanted);
        assert_eq!(value_of(name, &bytes), wanted);
    }
}

/// An encoded `Any`.
fn any_of(name: &str, value: &[u8]) -> Vec<u8> {
    [part(1, format!("/{name}").as_bytes()), part(2, value)].concat()
}

#[test]
fn only_messages_with_a_form_of_their_own_stand_under_value() {
    for (name, bytes, wanted) in [
        ("google.protobuf.DescriptorProto", part(1, b"a"), json!({"name": "a"})),
        ("google.protobuf.Timestamp", vec![0x08, 0x01], json!({"value": "1970-01-01T00:00:01Z"})),
        ("google.protobuf.Struct", Vec::new(), json!({"value": {}})),
    ] {
        let any = any_of(name, &bytes);
        let known = DynamicMessage::decode(POOL.get_message_by_name(ANY).unwrap(), &any[..]).unwrap();
        let mut wanted = wanted;
        wanted["@type"] = format!("/{name}").into();
        assert_eq!(value_of(ANY, &any), wanted);
        assert_eq!(as_the_library_writes(&known).unwrap(), wanted);
    }
}

#[test]
fn the_cost_of_hostile_bytes_is_bounded() {
    // Each level would double the work if it were written before its order is known.
    let mut entity = Vec::new();
    for _ in 0..60 {
        let data = part(2, &any_of("headwater.v1.Entity", &entity));
        entity = [part(1, b"a"), data, part(1, b"b")].concat();
    }
    let text = text_of("headwater.v1.Entity", &entity).unwrap();
    assert_eq!(text.matches("\"path\":\"b\"").count(), DEPTH_MAX / 2 + 1, "{text}");
    // More levels than the stack has room for are left as bytes.
    let mut any = any_of("headwater.v1.Entity", b"");
    for _ in 0..3_000 {
        any = any_of(ANY, &any);
    }
    let written = value_of(ANY, &any);
    assert_eq!(written["value"]["value"]["@type"], "/google.protobuf.Any");
    // Comparing every key with all others would take minutes.
    let entry = |number: u32| part(5, &[part(1, format!("{number}").as_bytes()), part(2, b"v")].concat());
    let many: Vec<u8> = (0..150_000).rev().flat_map(entry).collect();
    let written = value_of(RESOURCE, &many);
    assert_eq!(written["metadata"].as_object().unwrap().len(), 150_000);
}

#[test]
fn the_data_of_a_resource_has_its_number() {
    let resource = POOL.get_message_by_name(RESOURCE).unwrap();
    assert_eq!(resource.get_field_by_name("data").unwrap().number(), DATA);
}

#[test]
fn messages_have_a_limit_of_levels() {
    // Two levels each: the transaction, and the operation in which it is.
    let nested = |count: usize| (0..count).fold(Vec::new(), |inner, _| part(2, &part(4, &inner)));
    let (most, more) = (nested(DEPTH_MAX / 2), nested(DEPTH_MAX / 2 + 1));
    let transaction = POOL.get_message_by_name("etcdserverpb.TxnRequest").unwrap();
    let known = DynamicMessage::decode(transaction.clone(), &most[..]).unwrap();
    // As texts: the reader of JSON has a lower limit.
    let mut text = Vec::new();
    known.serialize_with_options(&mut serde_json::Serializer::new(&mut text), &WRITE).unwrap();
    assert_eq!(text_of("etcdserverpb.TxnRequest", &most).unwrap().as_bytes(), text);
    assert!(DynamicMessage::decode(transaction, &more[..]).is_err());
    assert_eq!(text_of("etcdserverpb.TxnRequest", &more), Err(Problem::Malformed));
    // Also where it is looked through first.
    let again = |bytes: &[u8]| [part(2, b""), part(1, b""), bytes.to_vec()].concat();
    assert!(text_of("etcdserverpb.TxnRequest", &again(&most)).is_ok());
    assert_eq!(text_of("etcdserverpb.TxnRequest", &again(&more)), Err(Problem::Malformed));
}
