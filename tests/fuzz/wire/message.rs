//! Random messages of a descriptor, with nested and repeated fields and values at limits; and their
//! encodings, correct or damaged.

use std::collections::HashMap;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};

use crate::dice::Dice;
use crate::mutate;

/// Deepest nesting of a message that is made field by field.
const DEPTH_MAX: usize = 7;
const ANY: &str = "google.protobuf.Any";

/// Texts that have a meaning in some API, and texts that no API should accept.
const TEXTS: &[&str] = &[
    "",
    "k",
    "web",
    "node1",
    "default",
    "*",
    "demo",
    "v1",
    "v2",
    "Artist",
    "Album",
    "korn",
    "0.3",
    "../../etc/passwd",
    "/kv",
    "/kv/k",
    "/services/web",
    "/resources/demo",
    "consul/kv/k",
    "now",
    "\0",
    "a\0b",
    "\u{202e}\u{feff}é",
    "-1",
    "18446744073709551616",
    "00000000-0000-0000-0000-000000000000",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "http://127.0.0.1:9",
    "https://[::1]:99999",
    "type.googleapis.com/demo.v2.Artist",
    "self.name != '' && self.x > 10",
    "%n%s{}",
];

/// A random message of the type `desc`. `pool` has the types that an `Any` in it may have.
pub(crate) fn message(pool: &DescriptorPool, desc: &MessageDescriptor, dice: &mut Dice) -> DynamicMessage {
    at_depth(pool, desc, dice, 0)
}

fn at_depth(pool: &DescriptorPool, desc: &MessageDescriptor, dice: &mut Dice, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(desc.clone());
    if desc.full_name() == ANY && !dice.once_in(6) {
        fill_any(pool, &mut message, dice, depth);
        return message;
    }
    // Messages with few fields get further in the server: all fields together are seldom legal.
    let density = *dice.pick(&[1, 2, 2, 4, 8]);
    for field in desc.fields() {
        if dice.once_in(density) {
            let value = field_value(pool, &field, dice, depth);
            message.set_field(&field, value);
        }
    }
    message
}

fn fill_any(pool: &DescriptorPool, message: &mut DynamicMessage, dice: &mut Dice, depth: usize) {
    let types: Vec<MessageDescriptor> = pool.all_messages().collect();
    let inner = dice.pick(&types).clone();
    let mut bytes = match depth < DEPTH_MAX {
        true => at_depth(pool, &inner, dice, depth + 1).encode_to_vec(),
        false => Vec::new(),
    };
    if dice.once_in(5) {
        mutate::bytes(&mut bytes, dice);
    }
    message.set_field_by_name("type_url", Value::String(format!("type.googleapis.com/{}", inner.full_name())));
    message.set_field_by_name("value", Value::Bytes(bytes.into()));
}

fn field_value(pool: &DescriptorPool, field: &FieldDescriptor, dice: &mut Dice, depth: usize) -> Value {
    // Wide or deep, but not both: the fan-out of every level would multiply.
    let count = if dice.once_in(100) && depth < 2 { 1000 } else { dice.below(4) };
    if field.is_map() {
        let mut map = HashMap::new();
        if let Kind::Message(entry) = field.kind()
            && let (Some(key), Some(value)) = (entry.get_field(1), entry.get_field(2))
        {
            for _ in 0..count {
                map.insert(map_key(&key, dice), single(pool, &value, dice, depth));
            }
        }
        return Value::Map(map);
    }
    if field.is_list() {
        return Value::List((0..count).map(|_| single(pool, field, dice, depth)).collect());
    }
    single(pool, field, dice, depth)
}

fn single(pool: &DescriptorPool, field: &FieldDescriptor, dice: &mut Dice, depth: usize) -> Value {
    match field.kind() {
        Kind::Double => Value::F64(f64::from_bits(dice.number())),
        Kind::Float => Value::F32(f32::from_bits(dice.number() as u32)),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(dice.number() as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(dice.number() as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(dice.number() as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(dice.number()),
        Kind::Bool => Value::Bool(dice.once_in(2)),
        Kind::String => Value::String(text(dice)),
        Kind::Bytes => Value::Bytes(bytes(dice).into()),
        Kind::Message(inner) if depth < DEPTH_MAX => Value::Message(at_depth(pool, &inner, dice, depth + 1)),
        Kind::Message(inner) => Value::Message(DynamicMessage::new(inner)),
        Kind::Enum(inner) => {
            let known: Vec<i32> = inner.values().map(|value| value.number()).collect();
            Value::EnumNumber(if dice.once_in(5) { dice.number() as i32 } else { *dice.pick(&known) })
        }
    }
}

fn map_key(field: &FieldDescriptor, dice: &mut Dice) -> MapKey {
    match field.kind() {
        Kind::Bool => MapKey::Bool(dice.once_in(2)),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => MapKey::I32(dice.number() as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(dice.number() as i64),
        Kind::Uint32 | Kind::Fixed32 => MapKey::U32(dice.number() as u32),
        Kind::Uint64 | Kind::Fixed64 => MapKey::U64(dice.number()),
        _ => MapKey::String(text(dice)),
    }
}

/// A random text: one of [`TEXTS`], a long one, or one of arbitrary characters.
pub(crate) fn text(dice: &mut Dice) -> String {
    match dice.below(12) {
        0 => "a".repeat(dice.length()),
        1 => {
            let length = dice.length().min(2000);
            String::from_utf8_lossy(&dice.bytes(length)).into_owned()
        }
        _ => (*dice.pick(TEXTS)).to_owned(),
    }
}

fn bytes(dice: &mut Dice) -> Vec<u8> {
    match dice.below(3) {
        0 => {
            let length = dice.length();
            dice.bytes(length)
        }
        _ => text(dice).into_bytes(),
    }
}

/// The encoding of a message: correct, damaged, repeated, with unknown fields, or replaced by one
/// that is nested deeper than decoders allow.
pub(crate) fn encode(message: &DynamicMessage, dice: &mut Dice) -> Vec<u8> {
    let mut encoded = message.encode_to_vec();
    match dice.below(10) {
        0 | 1 => mutate::bytes(&mut encoded, dice),
        2 => encoded.extend(encoded.clone()),
        3 => encoded.extend(unknown_field(dice)),
        4 if dice.once_in(4) => encoded = nested(message.descriptor(), dice),
        _ => {}
    }
    encoded
}

fn unknown_field(dice: &mut Dice) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::encode_varint(dice.number(), &mut field);
    let length = dice.below(20);
    field.extend(dice.bytes(length));
    field
}

/// An encoding in which one field contains itself, up to 5000 levels deep.
fn nested(desc: MessageDescriptor, dice: &mut Dice) -> Vec<u8> {
    let numbers: Vec<u32> = desc.fields().map(|field| field.number()).chain([1]).collect();
    let number = *dice.pick(&numbers);
    let mut encoded = Vec::new();
    for _ in 0..*dice.pick(&[50, 99, 100, 101, 5000]) {
        let mut outer = Vec::new();
        prost::encoding::encode_varint(u64::from(number) << 3 | 2, &mut outer);
        prost::encoding::encode_varint(encoded.len() as u64, &mut outer);
        outer.extend(encoded);
        encoded = outer;
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> DescriptorPool {
        DescriptorPool::decode(headwater_proto::pb::PUBLIC_DESCRIPTORS).expect("public descriptors")
    }

    #[test]
    fn messages_of_every_type_are_made_alike_from_like_dice() {
        let pool = pool();
        let make = |seed| -> Vec<Vec<u8>> {
            let each = |(input, desc): (usize, MessageDescriptor)| {
                let mut dice = Dice::new(seed, "message", input as u64);
                let made = message(&pool, &desc, &mut dice);
                // Maps have no order; all else must be equal.
                vec![made.fields().count() as u8, dice.below(256) as u8]
            };
            pool.all_messages().enumerate().map(each).collect()
        };
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
    }

    #[test]
    fn undamaged_messages_decode() {
        let pool = pool();
        let desc = pool.get_message_by_name("etcdserverpb.TxnRequest").expect("a message");
        let mut nested = 0;
        for input in 0..500 {
            let made = message(&pool, &desc, &mut Dice::new(1, "message", input));
            let encoded = made.encode_to_vec();
            DynamicMessage::decode(desc.clone(), encoded.as_slice()).expect("a sound message");
            nested += usize::from(encoded.len() > 100);
        }
        assert!(nested > 50, "only {nested} of 500 have a body");
    }
}
