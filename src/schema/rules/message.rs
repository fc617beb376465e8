//! Protobuf messages as values of CEL: fields have their names in the proto, unset fields their
//! protobuf default values; enumerations are numbers, well-known types the values that they
//! represent (cel-spec, "Protocol Buffer Data Conversion").

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use cel::ExecutionError;
use cel::common::traits::Indexer;
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelDuration, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp,
    CelUInt, Type,
};
use cel::common::value::{CowVal, StaticVal, Val};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value};

use super::meter;

static MESSAGE: Type = Type::new_unspecified_type("message");

/// A message. Clones share the fields.
#[derive(Clone, Debug)]
pub(super) struct MessageVal {
    descriptor: MessageDescriptor,
    /// The set fields, by name.
    fields: Arc<HashMap<String, Box<dyn Val>>>,
    /// The cost of reading the whole message, units of the budget.
    pub(super) weight: u64,
}

impl MessageVal {
    /// Result of `has(message.field)`; `None` if the message type has no such field.
    pub(super) fn has(&self, field: &str) -> Option<bool> {
        self.descriptor.get_field_by_name(field)?;
        Some(self.fields.contains_key(field))
    }
}

/// Converts a message to a value of CEL: a time, duration, wrapper, `Struct`, `ListValue` or
/// `Value` to the value that it represents, any other message to a [`MessageVal`]. A time or a
/// duration out of range becomes a [`MessageVal`], too.
pub(super) fn value(mut message: DynamicMessage) -> Box<dyn Val> {
    let descriptor = message.descriptor();
    if let Some(known) = well_known(&message) {
        return known;
    }
    let mut fields = HashMap::new();
    let mut weight = 1_u64;
    for (field, content) in message.take_fields() {
        let content = of_field(content);
        weight = weight.saturating_add(meter::weight(content.as_ref()));
        fields.insert(field.name().to_owned(), content);
    }
    Box::new(MessageVal { descriptor, fields: Arc::new(fields), weight })
}

fn of_field(content: Value) -> Box<dyn Val> {
    match content {
        Value::List(items) => list(items),
        Value::Map(entries) => object(entries),
        content => single(content),
    }
}

fn single(content: Value) -> Box<dyn Val> {
    match content {
        Value::Bool(it) => Box::new(CelBool::from(it)),
        Value::I32(it) | Value::EnumNumber(it) => Box::new(CelInt::from(i64::from(it))),
        Value::I64(it) => Box::new(CelInt::from(it)),
        Value::U32(it) => Box::new(CelUInt::from(u64::from(it))),
        Value::U64(it) => Box::new(CelUInt::from(it)),
        Value::F32(it) => Box::new(CelDouble::from(f64::from(it))),
        Value::F64(it) => Box::new(CelDouble::from(it)),
        Value::String(it) => Box::new(CelString::from(it)),
        Value::Bytes(it) => Box::new(CelBytes::from(it.to_vec())),
        Value::Message(it) => value(it),
        // Unreachable: elements of lists and maps are neither lists nor maps.
        Value::List(_) | Value::Map(_) => Box::new(CelNull),
    }
}

fn map_key(key: MapKey) -> CelMapKey<'static> {
    match key {
        MapKey::Bool(it) => it.into(),
        MapKey::I32(it) => i64::from(it).into(),
        MapKey::I64(it) => it.into(),
        MapKey::U32(it) => u64::from(it).into(),
        MapKey::U64(it) => it.into(),
        MapKey::String(it) => it.into(),
    }
}

/// The CEL value of an unset field: null for a wrapper message, the value of an empty message for
/// any other message type, otherwise the field's default value.
fn unset(field: &FieldDescriptor) -> Box<dyn Val> {
    match field.kind() {
        _ if field.is_list() || field.is_map() => of_field(field.default_value()),
        Kind::Message(message) if is_wrapper(&message) => Box::new(CelNull),
        Kind::Message(message) => value(DynamicMessage::new(message)),
        _ => single(field.default_value()),
    }
}

fn is_wrapper(message: &MessageDescriptor) -> bool {
    matches!(
        message.full_name().strip_prefix("google.protobuf."),
        Some(
            "BoolValue"
                | "BytesValue"
                | "DoubleValue"
                | "FloatValue"
                | "Int32Value"
                | "Int64Value"
                | "StringValue"
                | "UInt32Value"
                | "UInt64Value"
        )
    )
}

fn well_known(message: &DynamicMessage) -> Option<Box<dyn Val>> {
    let descriptor = message.descriptor();
    let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
    let field = |name: &str| message.get_field_by_name(name).map(|content| content.into_owned());
    if is_wrapper(&descriptor) {
        return field("value").map(single);
    }
    match name {
        "Timestamp" | "Duration" => {
            let seconds = field("seconds")?.as_i64()?;
            let nanos = field("nanos")?.as_i32()?;
            time(name, seconds, nanos)
        }
        "Struct" => match field("fields")? {
            Value::Map(fields) => Some(object(fields)),
            _ => None,
        },
        "ListValue" => match field("values")? {
            Value::List(values) => Some(list(values)),
            _ => None,
        },
        "Value" => {
            let set = message.fields().next().map(|(field, content)| (field.name().to_owned(), content.clone()));
            Some(match set {
                None => Box::new(CelNull),
                Some((name, _)) if name == "null_value" => Box::new(CelNull),
                Some((_, content)) => single(content),
            })
        }
        _ => None,
    }
}

fn object(fields: HashMap<MapKey, Value>) -> Box<dyn Val> {
    let entries = fields.into_iter().map(|(key, content)| (map_key(key), single(content)));
    Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
}

fn list(values: Vec<Value>) -> Box<dyn Val> {
    Box::new(CelList::from(values.into_iter().map(single).collect::<Vec<_>>()))
}

/// The time or duration as a value of CEL; `None` if it is out of range, so that it stays an
/// ordinary message.
fn time(name: &str, seconds: i64, nanos: i32) -> Option<Box<dyn Val>> {
    if name == "Timestamp" {
        let time = chrono::DateTime::from_timestamp(seconds, u32::try_from(nanos).ok()?)?;
        return Some(Box::new(CelTimestamp::from(time.fixed_offset())));
    }
    // The nanoseconds of a negative duration are negative, too.
    let whole = chrono::Duration::try_seconds(seconds)?;
    Some(Box::new(CelDuration::from(whole.checked_add(&chrono::Duration::nanoseconds(i64::from(nanos)))?)))
}

impl Val for MessageVal {
    fn get_type(&self) -> &Type {
        &MESSAGE
    }

    fn cel_type() -> &'static Type {
        &MESSAGE
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| {
            self.descriptor == other.descriptor
                && self.fields.len() == other.fields.len()
                && self
                    .fields
                    .iter()
                    .all(|(name, value)| other.fields.get(name).is_some_and(|other| value.equals(other.as_ref())))
        })
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for MessageVal {}

impl Indexer for MessageVal {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = index.downcast_ref::<CelString<'_>>().ok_or_else(|| ExecutionError::UnexpectedType {
            got: index.get_type().name().to_owned(),
            want: "the name of a field".to_owned(),
        })?;
        if let Some(set) = self.fields.get(name.inner()) {
            return Ok(CowVal::Borrowed(set.as_ref()));
        }
        let field = self.descriptor.get_field_by_name(name.inner());
        field.map(|field| CowVal::Owned(unset(&field))).ok_or_else(|| ExecutionError::no_such_key(name.inner()))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}
