//! Data as proto-JSON and back, by the type's message.

use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage, SerializeOptions};
use serde::Deserializer;

use super::{TypeSchema, Violation};
use crate::types::resource::Any;

/// What comes before a message's name in an `Any`.
const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// Values that are not set are left out, names are in camel case: proto-JSON as others write it.
const WRITE: SerializeOptions = SerializeOptions::new();
/// A field that the message does not have is an error: mostly it is a misspelt one.
const READ: DeserializeOptions = DeserializeOptions::new();

impl TypeSchema {
    /// Reads proto-JSON from any format.
    ///
    /// # Errors
    ///
    /// The reader's, wherever the data is not the message. [`Violation::NoDataWanted`] as text if the type has no data.
    pub fn read_data<'de, D: Deserializer<'de>>(&self, from: D) -> Result<Any, D::Error> {
        let Some(message) = &self.message else {
            let refusal = Violation::NoDataWanted { given: "an object".to_owned() };
            return Err(serde::de::Error::custom(refusal));
        };
        read_message(message, from)
    }

    /// The data as proto-JSON.
    ///
    /// # Errors
    ///
    /// [`Violation`] if it is not of this type.
    pub fn data_to_json(&self, data: &Any) -> Result<serde_json::Value, Violation> {
        let message = self.decode(data)?;
        message.serialize_with_options(serde_json::value::Serializer, &WRITE).map_err(|error| Violation::Json {
            message: message.descriptor().full_name().to_owned(),
            why: error.to_string(),
        })
    }
}

fn read_message<'de, D: Deserializer<'de>>(message: &MessageDescriptor, from: D) -> Result<Any, D::Error> {
    let read = DynamicMessage::deserialize_with_options(message.clone(), from, &READ)?;
    Ok(Any { type_url: format!("{TYPE_URL_PREFIX}{}", message.full_name()), value: read.encode_to_vec().into() })
}
