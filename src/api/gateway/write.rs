//! Writes encoded messages as JSON, in the form of etcd's gateway: names as in the proto, bytes as
//! base64, 64-bit integers as strings, defaults left out.
//!
//! Reads the encoded bytes and writes the text in one pass: messages in between would cost several
//! times as much. That is right for the encoding that everyone produces: each field once, the items
//! of a list in a row. Protobuf allows others, with fields that replace or merge others; bytes that
//! a client gave (the data of a resource) may be so. These are encoded anew by the library first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Buf;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{DynamicMessage, SerializeOptions};
use smallvec::SmallVec;

use super::layout::{Field, Form, Kind, Layout, Layouts, Place, Shape};
use headwater_node::TypeMap;
use headwater_proto::pb::pbresource;
use headwater_types::resource::{Any, Type};

const WRITE: SerializeOptions = SerializeOptions::new().use_proto_field_name(true);
/// Greatest depth of messages in messages, as the library has it.
const DEPTH_MAX: usize = 100;
/// Number of the field `data` of a resource.
const DATA: u32 = 7;

/// Reason for which encoded bytes were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// A field occurs again after another one, or a second field of a oneof, or a key of a map
    /// again.
    Order,
    /// The bytes are no message of the type.
    Malformed,
}

/// Writes the message at `place`, encoded in `bytes`, to `out`. `types` are the registered types of
/// resources. After an error, `out` has a part of the text.
///
/// # Errors
///
/// [`Problem::Malformed`].
pub(super) fn write(
    layouts: &Layouts,
    types: Option<&TypeMap>,
    place: Place,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    Writer { layouts, types, out, depth: 0 }.message(place, bytes)
}

struct Writer<'w> {
    layouts: &'w Layouts,
    types: Option<&'w TypeMap>,
    out: &'w mut Vec<u8>,
    depth: usize,
}

/// The field that was read last, if more of its items may follow.
struct Open<'l> {
    field: &'l Field,
    /// Whether its bracket is written.
    is_begun: bool,
    /// The keys so far, if it is a map.
    keys: Vec<Vec<u8>>,
}

impl Writer<'_> {
    fn message(&mut self, place: Place, bytes: &[u8]) -> Result<(), Problem> {
        let layout = self.layouts.get(place);
        match layout.form {
            Form::Any => self.any(&prost_types::Any::decode(bytes).map_err(malformed)?),
            Form::Own => self.own(layout, bytes),
            Form::Fields | Form::Resource => {
                self.out.push(b'{');
                self.fields(layout, bytes)?;
                self.out.push(b'}');
                Ok(())
            }
        }
    }

    /// A message with a form of its own.
    fn own(&mut self, layout: &Layout, bytes: &[u8]) -> Result<(), Problem> {
        let message = DynamicMessage::decode(layout.descriptor.clone(), bytes).map_err(malformed)?;
        let to = &mut serde_json::Serializer::new(&mut *self.out);
        message.serialize_with_options(to, &WRITE).map_err(malformed)
    }

    /// The fields of a message, without brackets.
    fn fields(&mut self, layout: &Layout, bytes: &[u8]) -> Result<(), Problem> {
        if self.depth == DEPTH_MAX {
            return Err(Problem::Malformed);
        }
        self.depth += 1;
        let start = self.out.len();
        let written = match self.fields_in_order(layout, bytes) {
            Err(Problem::Order) => {
                self.out.truncate(start);
                let message = DynamicMessage::decode(layout.descriptor.clone(), bytes).map_err(malformed)?;
                self.fields_in_order(layout, &message.encode_to_vec()).map_err(malformed)
            }
            written => written,
        };
        self.depth -= 1;
        written
    }

    fn fields_in_order(&mut self, layout: &Layout, mut bytes: &[u8]) -> Result<(), Problem> {
        let whole = bytes;
        let mut seen = SmallVec::<[(u32, Option<usize>); 8]>::new();
        let mut open: Option<Open<'_>> = None;
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).map_err(malformed)?;
            let Some(field) = layout.field(number) else {
                skip(wire, number, &mut bytes)?;
                continue;
            };
            if open.as_ref().is_none_or(|open| open.field.number != number) {
                self.close(open.take());
                let is_again = |(other, oneof): &(u32, Option<usize>)| {
                    *other == number || (oneof.is_some() && *oneof == field.oneof)
                };
                if seen.iter().any(is_again) {
                    return Err(Problem::Order);
                }
                seen.push((number, field.oneof));
                if !matches!(field.shape, Shape::Single { .. }) {
                    open = Some(Open { field, is_begun: false, keys: Vec::new() });
                }
            }
            match (field.shape, &mut open) {
                (Shape::Map, Some(open)) => self.entry(open, length_delimited(wire, &mut bytes)?)?,
                (Shape::List, Some(open)) => self.items(open, wire, &mut bytes)?,
                (Shape::Single { has_presence }, _) => {
                    if number == DATA && layout.form == Form::Resource {
                        self.data(field, whole, length_delimited(wire, &mut bytes)?)?;
                        continue;
                    }
                    let value = Value::read(&field.kind, wire, &mut bytes)?;
                    if has_presence || !value.is_default() {
                        self.name(field);
                        self.value(&field.kind, value)?;
                    }
                }
                (Shape::Map | Shape::List, None) => unreachable!("it was opened above"),
            }
        }
        self.close(open);
        Ok(())
    }

    fn close(&mut self, open: Option<Open<'_>>) {
        if let Some(open) = open.filter(|open| open.is_begun) {
            self.out.push(if open.field.shape == Shape::Map { b'}' } else { b']' });
        }
    }

    fn begin(&mut self, open: &mut Open<'_>) {
        if !open.is_begun {
            open.is_begun = true;
            self.name(open.field);
            self.out.push(if open.field.shape == Shape::Map { b'{' } else { b'[' });
        }
        self.separate();
    }

    /// A comma, unless an object or a list has just begun: no value ends with their brackets.
    fn separate(&mut self) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.out.push(b',');
        }
    }

    fn name(&mut self, field: &Field) {
        self.separate();
        self.out.extend_from_slice(field.name.as_bytes());
    }

    /// The items of a list: one, or several numbers that are packed.
    fn items(&mut self, open: &mut Open<'_>, wire: WireType, bytes: &mut &[u8]) -> Result<(), Problem> {
        let kind = &open.field.kind;
        let Some(wanted) = kind.packed_wire().filter(|_| wire == WireType::LengthDelimited) else {
            let value = Value::read(kind, wire, bytes)?;
            self.begin(open);
            return self.value(kind, value);
        };
        let mut packed = length_delimited(wire, bytes)?;
        while !packed.is_empty() {
            let value = Value::read(kind, wanted, &mut packed)?;
            self.begin(open);
            self.value(kind, value)?;
        }
        Ok(())
    }

    /// An entry of a map. A key or a value that is absent is the default.
    fn entry(&mut self, open: &mut Open<'_>, mut bytes: &[u8]) -> Result<(), Problem> {
        let Kind::Message(place) = open.field.kind else { return Err(Problem::Malformed) };
        let entry = self.layouts.get(place);
        let (Some(key), Some(value)) = (entry.field(1), entry.field(2)) else { return Err(Problem::Malformed) };
        let (mut key_found, mut value_found) = (Value::Empty, Value::Empty);
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).map_err(malformed)?;
            match number {
                1 => key_found = Value::read(&key.kind, wire, &mut bytes)?,
                2 => value_found = Value::read(&value.kind, wire, &mut bytes)?,
                _ => skip(wire, number, &mut bytes)?,
            }
        }
        self.begin(open);
        let start = self.out.len();
        self.value(&key.kind, key_found)?;
        // Names of members are texts, whatever the type of the key.
        if self.out[start] != b'"' {
            self.out.insert(start, b'"');
            self.out.push(b'"');
        }
        let written = self.out[start..].to_vec();
        if open.keys.contains(&written) {
            return Err(Problem::Order);
        }
        open.keys.push(written);
        self.out.push(b':');
        self.value(&value.kind, value_found)
    }

    fn value(&mut self, kind: &Kind, value: Value<'_>) -> Result<(), Problem> {
        let (bits, bytes) = match value {
            Value::Number(bits) => (bits, &[][..]),
            Value::Bytes(bytes) => (0, bytes),
            Value::Empty => (0, &[][..]),
        };
        match kind {
            Kind::Bool => self.plain(&(bits != 0)),
            Kind::Int32 | Kind::Sfixed32 => self.plain(&(bits as i32)),
            Kind::Uint32 | Kind::Fixed32 => self.plain(&(bits as u32)),
            Kind::Sint32 => self.plain(&(unzigzag(bits & u64::from(u32::MAX)) as i32)),
            Kind::Float => match f32::from_bits(bits as u32) {
                number if number.is_finite() => self.plain(&number),
                number => self.not_finite(number.into()),
            },
            Kind::Double => match f64::from_bits(bits) {
                number if number.is_finite() => self.plain(&number),
                number => self.not_finite(number),
            },
            Kind::Int64 | Kind::Sfixed64 => self.quoted(&(bits as i64)),
            Kind::Uint64 | Kind::Fixed64 => self.quoted(&bits),
            Kind::Sint64 => self.quoted(&unzigzag(bits)),
            Kind::String => self.plain(&std::str::from_utf8(bytes).map_err(malformed)?),
            Kind::Bytes => {
                self.base64(bytes);
                Ok(())
            }
            Kind::Enum(names) => match names.get(&(bits as i32)) {
                Some(name) => {
                    self.out.extend_from_slice(name.as_bytes());
                    Ok(())
                }
                None => self.plain(&(bits as i32)),
            },
            Kind::Message(place) => self.message(*place, bytes),
        }
    }

    fn plain(&mut self, value: &impl serde::Serialize) -> Result<(), Problem> {
        serde_json::to_writer(&mut *self.out, value).map_err(malformed)
    }

    fn quoted(&mut self, value: &impl serde::Serialize) -> Result<(), Problem> {
        self.out.push(b'"');
        self.plain(value)?;
        self.out.push(b'"');
        Ok(())
    }

    fn not_finite(&mut self, number: f64) -> Result<(), Problem> {
        let sign = if number < 0.0 { "-" } else { "" };
        self.plain(&if number.is_nan() { "NaN".to_owned() } else { format!("{sign}Infinity") })
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        let start = self.out.len();
        let length = base64::encoded_len(bytes.len(), true).expect("invariant: a message is no larger than memory");
        self.out.resize(start + length, 0);
        let written = STANDARD.encode_slice(bytes, &mut self.out[start..]);
        written.expect("invariant: the slice has the length of the text");
        self.out.push(b'"');
    }

    /// A message of any type: `@type` with the fields of the message, or with `value` if it has a
    /// form of its own, or is of an unknown type: bytes then.
    fn any(&mut self, any: &prost_types::Any) -> Result<(), Problem> {
        self.out.extend_from_slice(b"{\"@type\":");
        self.plain(&any.type_url)?;
        let after_type = self.out.len();
        let depth = self.depth;
        let written = match self.layouts.find(name(any)) {
            None => Err(Problem::Malformed),
            Some(place) => {
                let layout = self.layouts.get(place);
                match layout.form {
                    Form::Fields | Form::Resource => self.fields(layout, &any.value),
                    Form::Any | Form::Own => {
                        self.out.extend_from_slice(b",\"value\":");
                        self.message(place, &any.value)
                    }
                }
            }
        };
        if written.is_err() {
            // Bytes that are no message of the type are left as they are.
            self.depth = depth;
            self.out.truncate(after_type);
            self.out.extend_from_slice(b",\"value\":");
            self.base64(&any.value);
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The data of the resource that is encoded in `resource`: by its registered type, else as any
    /// message.
    fn data(&mut self, field: &Field, resource: &[u8], data: &[u8]) -> Result<(), Problem> {
        let resource = pbresource::Resource::decode(resource).map_err(malformed)?;
        let data = prost_types::Any::decode(data).map_err(malformed)?;
        self.name(field);
        let schema = self.types.and_then(|types| types.get(&type_of(&resource)));
        let schema = schema.and_then(|known| known.schema()).and_then(Result::ok);
        let content = Any { type_url: data.type_url.clone(), value: data.value.clone().into() };
        let known = schema.and_then(|schema| schema.data_as_json(&content).ok());
        match known.and_then(|known| serde_json::to_value(known).ok()) {
            Some(serde_json::Value::Object(fields)) => {
                self.out.extend_from_slice(b"{\"@type\":");
                self.plain(&data.type_url)?;
                for (name, value) in fields {
                    self.separate();
                    self.plain(&name)?;
                    self.out.push(b':');
                    self.plain(&value)?;
                }
                self.out.push(b'}');
                Ok(())
            }
            Some(value) => self.plain(&serde_json::json!({"@type": data.type_url, "value": value})),
            None => self.any(&data),
        }
    }
}

/// A value as it is encoded.
#[derive(Clone, Copy)]
enum Value<'b> {
    /// A number, a truth value or an enumeration value, as the bits that were sent.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'b [u8]),
    /// The default of any type.
    Empty,
}

impl<'b> Value<'b> {
    fn read(kind: &Kind, wire: WireType, bytes: &mut &'b [u8]) -> Result<Self, Problem> {
        match kind.packed_wire() {
            None => length_delimited(wire, bytes).map(Value::Bytes),
            Some(wanted) if wanted != wire => Err(Problem::Malformed),
            Some(WireType::ThirtyTwoBit) if bytes.len() >= 4 => Ok(Value::Number(bytes.get_u32_le().into())),
            Some(WireType::SixtyFourBit) if bytes.len() >= 8 => Ok(Value::Number(bytes.get_u64_le())),
            Some(WireType::Varint) => decode_varint(bytes).map(Value::Number).map_err(malformed),
            Some(_) => Err(Problem::Malformed),
        }
    }

    fn is_default(&self) -> bool {
        match self {
            Value::Number(bits) => *bits == 0,
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Empty => true,
        }
    }
}

impl Kind {
    /// The wire type of a number; `None` for all that has a length.
    fn packed_wire(&self) -> Option<WireType> {
        match self {
            Self::Bool | Self::Int32 | Self::Sint32 | Self::Uint32 | Self::Enum(_) => Some(WireType::Varint),
            Self::Int64 | Self::Sint64 | Self::Uint64 => Some(WireType::Varint),
            Self::Fixed32 | Self::Sfixed32 | Self::Float => Some(WireType::ThirtyTwoBit),
            Self::Fixed64 | Self::Sfixed64 | Self::Double => Some(WireType::SixtyFourBit),
            Self::String | Self::Bytes | Self::Message(_) => None,
        }
    }
}

fn malformed<E>(_: E) -> Problem {
    Problem::Malformed
}

fn unzigzag(bits: u64) -> i64 {
    ((bits >> 1) as i64) ^ -((bits & 1) as i64)
}

fn length_delimited<'b>(wire: WireType, bytes: &mut &'b [u8]) -> Result<&'b [u8], Problem> {
    if wire != WireType::LengthDelimited {
        return Err(Problem::Malformed);
    }
    let length = decode_varint(bytes).map_err(malformed)?;
    let length = usize::try_from(length).map_err(malformed)?;
    let (field, rest) = bytes.split_at_checked(length).ok_or(Problem::Malformed)?;
    *bytes = rest;
    Ok(field)
}

fn skip(wire: WireType, number: u32, bytes: &mut &[u8]) -> Result<(), Problem> {
    let context = prost::encoding::DecodeContext::default();
    prost::encoding::skip_field(wire, number, bytes, context).map_err(malformed)
}

/// The full name of the message in `any`.
fn name(any: &prost_types::Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

fn type_of(resource: &pbresource::Resource) -> Type {
    let type_ = resource.id.as_ref().and_then(|id| id.r#type.clone()).unwrap_or_default();
    Type::new(&type_.group, &type_.group_version, &type_.kind)
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
