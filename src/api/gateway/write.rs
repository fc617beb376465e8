//! Writes encoded messages as JSON, in the form of etcd's gateway: names as in the proto, bytes as
//! base64, 64-bit integers as strings, defaults left out.
//!
//! Reads the encoded bytes and writes the text in one pass: messages in between would cost several
//! times as much. One pass suffices for what encoders of protobuf write: each field once, the items
//! of a list one after the other. The format allows others, in which fields replace or merge
//! earlier ones; bytes that a client gave (the data of a resource) may be so. Once such an encoding
//! is met, the answer is written again: each encoding in it is looked through first and, where
//! needed, encoded anew by the library.
//!
//! Invariant: the cost is bounded by the length of the answer times [`DEPTH_MAX`], and the depth of
//! the stack by three times as many levels, whatever the bytes are: those of the answer, and below
//! them those of a message that the library writes, or of the data of a registered type.

use std::collections::HashSet;

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
use headwater_proto::well_known::has_own_json;
use headwater_types::resource::{Any, Type};

const WRITE: SerializeOptions = SerializeOptions::new().use_proto_field_name(true);
/// Most levels of messages below the outermost one, those in an `Any` included. The library has the
/// same limit, but begins anew in each `Any`.
const DEPTH_MAX: usize = 100;
/// Number of the field `id` of a resource.
const ID: u32 = 1;
/// Number of the field `data` of a resource.
const DATA: u32 = 7;

/// Reason for which encoded bytes were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// A field replaces an earlier one or merges with it: it occurs again, or a second field of a
    /// oneof occurs, or a key of a map again.
    Order,
    /// The bytes are no message of the type, have too many levels, or have no form in JSON.
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
    let start = out.len();
    let mut writer = Writer { layouts, types, out, depth: 0, looks_first: false };
    match writer.encoding(place, bytes) {
        Err(Problem::Order) => {
            writer.out.truncate(start);
            (writer.depth, writer.looks_first) = (0, true);
            writer.encoding(place, bytes).map_err(malformed)
        }
        written => written,
    }
}

struct Writer<'w> {
    layouts: &'w Layouts,
    types: Option<&'w TypeMap>,
    out: &'w mut Vec<u8>,
    depth: usize,
    /// Whether encodings are looked through before they are written.
    looks_first: bool,
}

/// The fields of a message that were read so far.
#[derive(Default)]
struct Seen<'l, 'b> {
    /// Numbers, and oneofs.
    fields: SmallVec<[(u32, Option<usize>); 8]>,
    open: Option<Open<'l, 'b>>,
}

/// The field that was read last, if more of its items may follow.
struct Open<'l, 'b> {
    field: &'l Field,
    /// Whether its bracket is written.
    is_begun: bool,
    /// The keys so far, if it is a map: numbers, or bytes.
    keys: HashSet<(u64, &'b [u8])>,
}

impl<'l> Seen<'l, '_> {
    /// Records a field. Returns the list or map that is complete now, if there is one.
    fn add(&mut self, field: &'l Field) -> Result<Option<&'l Field>, Problem> {
        if self.open.as_ref().is_some_and(|open| open.field.number == field.number) {
            return Ok(None);
        }
        let closed = self.close();
        let replaces = |(number, oneof): &(u32, Option<usize>)| {
            *number == field.number || (oneof.is_some() && *oneof == field.oneof)
        };
        if self.fields.iter().any(replaces) {
            return Err(Problem::Order);
        }
        self.fields.push((field.number, field.oneof));
        if !matches!(field.shape, Shape::Single { .. }) {
            self.open = Some(Open { field, is_begun: false, keys: HashSet::new() });
        }
        Ok(closed)
    }

    /// The list or map that was read last, if any of it is written.
    fn close(&mut self) -> Option<&'l Field> {
        self.open.take().filter(|open| open.is_begun).map(|open| open.field)
    }
}

/// An entry of a map.
struct Entry<'l, 'b> {
    key: (&'l Kind, Value<'b>),
    value: (&'l Kind, Value<'b>),
}

impl<'l, 'b> Entry<'l, 'b> {
    /// Reads an entry of the message `layout`. A key or a value that is absent is the default.
    fn read(layout: &'l Layout, mut bytes: &'b [u8]) -> Result<Self, Problem> {
        let (Some(key), Some(value)) = (layout.field(1), layout.field(2)) else { return Err(Problem::Malformed) };
        let (mut key_found, mut value_found) = (None, None);
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).map_err(malformed)?;
            let again = match number {
                1 => key_found.replace(Value::read(&key.kind, wire, &mut bytes)?),
                2 => value_found.replace(Value::read(&value.kind, wire, &mut bytes)?),
                _ => {
                    skip(wire, number, &mut bytes)?;
                    None
                }
            };
            if again.is_some() {
                return Err(Problem::Order);
            }
        }
        let found = |value: Option<Value<'b>>| value.unwrap_or(Value::Empty);
        Ok(Self { key: (&key.kind, found(key_found)), value: (&value.kind, found(value_found)) })
    }
}

impl<'b> Open<'_, 'b> {
    /// Records the key of an entry.
    fn add_key(&mut self, key: Value<'b>) -> Result<(), Problem> {
        let key = match key {
            Value::Number(bits) => (bits, &[][..]),
            Value::Bytes(bytes) => (0, bytes),
            Value::Empty => (0, &[][..]),
        };
        if self.keys.insert(key) { Ok(()) } else { Err(Problem::Order) }
    }
}

impl Writer<'_> {
    /// A message that is encoded by itself: the answer, or the message in an `Any`.
    fn encoding(&mut self, place: Place, bytes: &[u8]) -> Result<(), Problem> {
        let layout = self.layouts.get(place);
        let is_plain = matches!(layout.form, Form::Fields | Form::Resource);
        if is_plain && self.looks_first && !self.is_in_order(layout, bytes, self.depth)? {
            let message = DynamicMessage::decode(layout.descriptor.clone(), bytes).map_err(malformed)?;
            return self.message(place, &message.encode_to_vec());
        }
        self.message(place, bytes)
    }

    /// Whether no field in the message replaces or merges another, at any depth. What an `Any` has
    /// in it is not looked at.
    fn is_in_order(&self, layout: &Layout, mut bytes: &[u8], depth: usize) -> Result<bool, Problem> {
        if depth > DEPTH_MAX {
            return Err(Problem::Malformed);
        }
        let inner = |kind: &Kind, value: Value<'_>| match (kind, value) {
            (Kind::Message(place), Value::Bytes(bytes)) => match self.layouts.get(*place) {
                layout if matches!(layout.form, Form::Fields | Form::Resource) => {
                    self.is_in_order(layout, bytes, depth + 1)
                }
                _ => Ok(true),
            },
            (_, _) => Ok(true),
        };
        let mut seen = Seen::default();
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).map_err(malformed)?;
            let Some(field) = layout.field(number) else {
                skip(wire, number, &mut bytes)?;
                continue;
            };
            if seen.add(field).is_err() {
                return Ok(false);
            }
            if field.shape == Shape::List && field.kind.packed_wire().is_some() {
                skip(wire, number, &mut bytes)?;
                continue;
            }
            let value = Value::read(&field.kind, wire, &mut bytes)?;
            let is_in_order = match (field.shape, &mut seen.open, value) {
                (Shape::Map, Some(open), Value::Bytes(bytes)) => match Entry::read(self.entry_layout(field)?, bytes) {
                    Ok(entry) => open.add_key(entry.key.1).is_ok() && inner(entry.value.0, entry.value.1)?,
                    Err(Problem::Order) => false,
                    Err(problem) => return Err(problem),
                },
                (_, _, value) => inner(&field.kind, value)?,
            };
            if !is_in_order {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entry_layout(&self, field: &Field) -> Result<&Layout, Problem> {
        match field.kind {
            Kind::Message(place) => Ok(self.layouts.get(place)),
            _ => Err(Problem::Malformed),
        }
    }

    fn message(&mut self, place: Place, bytes: &[u8]) -> Result<(), Problem> {
        let layout = self.layouts.get(place);
        match layout.form {
            Form::Any => self.any(bytes),
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
        let written = message.serialize_with_options(to, &WRITE);
        // Of a value without a form, such as a time out of range, only the second pass knows that
        // no later field replaces it.
        let problem = if self.looks_first { Problem::Malformed } else { Problem::Order };
        written.map_err(|_| problem)
    }

    /// Does `write` one level deeper.
    fn deeper(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Problem>) -> Result<(), Problem> {
        if self.depth > DEPTH_MAX {
            return Err(Problem::Malformed);
        }
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }

    /// The fields of a message, without brackets.
    fn fields(&mut self, layout: &Layout, bytes: &[u8]) -> Result<(), Problem> {
        self.deeper(|writer| writer.each_field(layout, bytes))
    }

    fn each_field(&mut self, layout: &Layout, mut bytes: &[u8]) -> Result<(), Problem> {
        let whole = bytes;
        let mut seen = Seen::default();
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).map_err(malformed)?;
            let Some(field) = layout.field(number) else {
                skip(wire, number, &mut bytes)?;
                continue;
            };
            let closed = seen.add(field)?;
            self.close(closed);
            match (field.shape, &mut seen.open) {
                (Shape::Map, Some(open)) => self.entry(open, length_delimited(wire, &mut bytes)?)?,
                (Shape::List, Some(open)) => self.items(open, wire, &mut bytes)?,
                (Shape::Single { has_presence }, _) => {
                    if number == DATA && layout.form == Form::Resource {
                        self.data(field, whole, length_delimited(wire, &mut bytes)?)?;
                        continue;
                    }
                    let value = Value::read(&field.kind, wire, &mut bytes)?;
                    if has_presence || !value.is_default(&field.kind) {
                        self.name(field);
                        self.value(&field.kind, value)?;
                    }
                }
                (Shape::Map | Shape::List, None) => unreachable!("it was opened when it was added"),
            }
        }
        let closed = seen.close();
        self.close(closed);
        Ok(())
    }

    fn close(&mut self, closed: Option<&Field>) {
        if let Some(field) = closed {
            self.out.push(if field.shape == Shape::Map { b'}' } else { b']' });
        }
    }

    fn begin(&mut self, open: &mut Open<'_, '_>) {
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
    fn items(&mut self, open: &mut Open<'_, '_>, wire: WireType, bytes: &mut &[u8]) -> Result<(), Problem> {
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

    fn entry<'b>(&mut self, open: &mut Open<'_, 'b>, bytes: &'b [u8]) -> Result<(), Problem> {
        let Kind::Message(place) = open.field.kind else { return Err(Problem::Malformed) };
        let layouts = self.layouts;
        let entry = Entry::read(layouts.get(place), bytes)?;
        open.add_key(entry.key.1)?;
        self.begin(open);
        let start = self.out.len();
        self.value(entry.key.0, entry.key.1)?;
        // Names of members are texts, whatever the type of the key.
        if self.out[start] != b'"' {
            self.out.insert(start, b'"');
            self.out.push(b'"');
        }
        self.out.push(b':');
        self.value(entry.value.0, entry.value.1)
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
    fn any(&mut self, any: &[u8]) -> Result<(), Problem> {
        let any = AnyParts::read(any)?;
        self.out.extend_from_slice(b"{\"@type\":");
        self.plain(&any.type_url)?;
        let after_type = self.out.len();
        let written = match self.layouts.find(any.name()) {
            None => Err(Problem::Malformed),
            Some(place) => self.deeper(|writer| writer.inside(place, any.value)),
        };
        match written {
            Ok(()) => {}
            Err(Problem::Order) => return Err(Problem::Order),
            // Bytes that are no message of the type are left as they are.
            Err(Problem::Malformed) => {
                self.out.truncate(after_type);
                self.out.extend_from_slice(b",\"value\":");
                self.base64(any.value);
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The message in an `Any`, after its `@type`.
    fn inside(&mut self, place: Place, bytes: &[u8]) -> Result<(), Problem> {
        let layout = self.layouts.get(place);
        if has_own_json(layout.descriptor.full_name()) {
            self.out.extend_from_slice(b",\"value\":");
            return self.message(place, bytes);
        }
        // Its fields stand beside `@type`, so its own brackets are taken away.
        let start = self.out.len();
        self.encoding(place, bytes)?;
        self.out.pop();
        match self.out.len() - start {
            1 => self.out.truncate(start),
            _ => self.out[start] = b',',
        }
        Ok(())
    }

    /// The data of the resource that is encoded in `resource`: by its registered type, else as any
    /// message.
    fn data(&mut self, field: &Field, resource: &[u8], data: &[u8]) -> Result<(), Problem> {
        self.name(field);
        let any = AnyParts::read(data)?;
        match self.registered(resource, &any)? {
            // As proto-JSON has it.
            Some(serde_json::Value::Object(fields)) if !has_own_json(any.name()) => {
                self.out.extend_from_slice(b"{\"@type\":");
                self.plain(&any.type_url)?;
                for (name, value) in fields.iter().filter(|(name, _)| *name != "@type") {
                    self.separate();
                    self.plain(name)?;
                    self.out.push(b':');
                    self.plain(value)?;
                }
                self.out.push(b'}');
                Ok(())
            }
            Some(value) => self.plain(&serde_json::json!({"@type": any.type_url, "value": value})),
            None => {
                // What is in data of no registered form has none either.
                let types = self.types.take();
                let written = self.any(data);
                self.types = types;
                written
            }
        }
    }

    /// The data of a resource by its registered type; `None` without one, or if it is not of it.
    fn registered(&self, resource: &[u8], data: &AnyParts<'_>) -> Result<Option<serde_json::Value>, Problem> {
        let Some(types) = self.types else { return Ok(None) };
        let type_ = type_of(resource)?;
        let schema = types.get(&type_).and_then(|known| known.schema()).and_then(Result::ok);
        let Some(schema) = schema else { return Ok(None) };
        let content = Any { type_url: data.type_url.to_owned(), value: bytes::Bytes::copy_from_slice(data.value) };
        let known = schema.data_as_json(&content).ok();
        Ok(known.and_then(|known| serde_json::to_value(known).ok()))
    }
}

/// The fields of a `google.protobuf.Any`.
#[derive(Default)]
struct AnyParts<'b> {
    type_url: &'b str,
    value: &'b [u8],
}

impl<'b> AnyParts<'b> {
    fn read(mut bytes: &'b [u8]) -> Result<Self, Problem> {
        let mut parts = Self::default();
        while !bytes.is_empty() {
            match decode_key(&mut bytes).map_err(malformed)? {
                (1, wire) => {
                    let type_url = length_delimited(wire, &mut bytes)?;
                    parts.type_url = std::str::from_utf8(type_url).map_err(malformed)?;
                }
                (2, wire) => parts.value = length_delimited(wire, &mut bytes)?,
                (number, wire) => skip(wire, number, &mut bytes)?,
            }
        }
        Ok(parts)
    }

    /// The full name of the message.
    fn name(&self) -> &'b str {
        self.type_url.rsplit('/').next().unwrap_or_default()
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

    fn is_default(&self, kind: &Kind) -> bool {
        match (self, kind) {
            (Value::Number(bits), Kind::Int32 | Kind::Sint32 | Kind::Uint32 | Kind::Enum(_)) => *bits as u32 == 0,
            // Both zeroes, as the library has it.
            (Value::Number(bits), Kind::Float) => f32::from_bits(*bits as u32) == 0.0,
            (Value::Number(bits), Kind::Double) => f64::from_bits(*bits) == 0.0,
            (Value::Number(bits), _) => *bits == 0,
            (Value::Bytes(bytes), _) => bytes.is_empty(),
            (Value::Empty, _) => true,
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

/// The type of an encoded resource.
fn type_of(mut resource: &[u8]) -> Result<Type, Problem> {
    let mut type_ = pbresource::Type::default();
    while !resource.is_empty() {
        match decode_key(&mut resource).map_err(malformed)? {
            (ID, wire) => {
                let id = pbresource::Id::decode(length_delimited(wire, &mut resource)?).map_err(malformed)?;
                type_ = id.r#type.unwrap_or_default();
            }
            (number, wire) => skip(wire, number, &mut resource)?,
        }
    }
    Ok(Type::new(&type_.group, &type_.group_version, &type_.kind))
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
