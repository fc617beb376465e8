//! Defaults of a type: a message with values. Each of its set fields is copied to data in which
//! that field is unset.
//!
//! A nested message that the data has is filled field by field; one that the data lacks is copied
//! whole. Lists, maps and well-known types such as times are single values: set or unset. A field
//! without presence (proto3 without `optional`) counts as unset when it is zero: a field that has a
//! default and may be zero must be `optional`.

use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage, Value};

use super::SchemaError;
use headwater_types::limits::TYPE_DEFAULTS_BYTES_MAX;

pub(super) fn read(message: Option<&MessageDescriptor>, text: &str) -> Result<Option<DynamicMessage>, SchemaError> {
    if text.len() > TYPE_DEFAULTS_BYTES_MAX {
        let what = "the defaults, in bytes,".to_owned();
        return Err(SchemaError::TooLarge { what, size: text.len(), max: TYPE_DEFAULTS_BYTES_MAX });
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    let message = message.ok_or(SchemaError::NoMessage("defaults"))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = DynamicMessage::deserialize_with_options(message.clone(), &mut reader, &DeserializeOptions::new())
        .and_then(|read| reader.end().map(|()| read));
    read.map(Some)
        .map_err(|error| SchemaError::Defaults { message: message.full_name().to_owned(), why: error.to_string() })
}

/// Sets the unset fields of `data` that `defaults` has, also in nested messages. Returns whether it
/// set any. A field of a oneof stays unset if another field of the oneof is set.
pub(super) fn apply(defaults: &DynamicMessage, data: &mut DynamicMessage) -> bool {
    let mut changed = false;
    for (field, default) in defaults.fields() {
        if !data.has_field(&field) {
            let is_decided = |member| member != field && data.has_field(&member);
            if field.containing_oneof().is_some_and(|oneof| oneof.fields().any(is_decided)) {
                continue;
            }
            data.set_field(&field, default.clone());
            changed = true;
        } else if let (Value::Message(default), Value::Message(inner)) = (default, data.get_field_mut(&field)) {
            // A well-known type, such as a time or a wrapped number, is one value without fields to
            // fill.
            if !default.descriptor().full_name().starts_with("google.protobuf.") {
                changed |= apply(default, inner);
            }
        }
    }
    changed
}
