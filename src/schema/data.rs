//! Converts the data of a resource, an encoded protobuf message, to proto-JSON and back.

use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::{Deserializer, Serialize, Serializer};

use super::{TypeSchema, Violation};
use headwater_types::resource::Any;

/// Text before the message's full name in the type URL of an `Any`.
const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// Writes standard proto-JSON: unset fields are left out, names are in camel case.
const WRITE: SerializeOptions = SerializeOptions::new();
/// Refuses unknown fields: most are misspelt.
const READ: DeserializeOptions = DeserializeOptions::new();

impl TypeSchema {
    /// Reads data of this type in its proto-JSON form, from any serde format such as JSON or YAML.
    ///
    /// # Errors
    ///
    /// The deserializer's error if the input is not a message of the type: an unknown field, for
    /// example. The text of [`Violation::NoDataWanted`] if the type has no data.
    pub fn read_data<'de, D: Deserializer<'de>>(&self, from: D) -> Result<Any, D::Error> {
        let Some(message) = &self.message else {
            let refusal = Violation::NoDataWanted { given: "an object".to_owned() };
            return Err(serde::de::Error::custom(refusal));
        };
        read_message(message, from)
    }

    /// The data as a value that serialises to proto-JSON, in any serde format.
    ///
    /// # Errors
    ///
    /// [`Violation`] if `data` is not an encoded message of this type.
    pub fn data_as_json(&self, data: &Any) -> Result<JsonData, Violation> {
        self.decode(data).map(JsonData)
    }
}

/// Data that serialises as proto-JSON, fields in the order of their numbers. A value that JSON
/// cannot represent, such as a time out of range, is an error of the serializer.
#[derive(Clone, Debug)]
pub struct JsonData(DynamicMessage);

impl Serialize for JsonData {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_with_options(to, &WRITE)
    }
}

fn read_message<'de, D: Deserializer<'de>>(message: &MessageDescriptor, from: D) -> Result<Any, D::Error> {
    let read = DynamicMessage::deserialize_with_options(message.clone(), from, &READ)?;
    Ok(Any { type_url: format!("{TYPE_URL_PREFIX}{}", message.full_name()), value: read.encode_to_vec().into() })
}
