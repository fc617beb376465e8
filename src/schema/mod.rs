//! Schemas of resource types: the protobuf message of the data, defaults, and rules in CEL.
//!
//! Pure and synchronous: a registration is compiled to a [`TypeSchema`], and data is validated
//! against it. Knows nothing of nodes, requests or where types are stored. Invariant: compilation
//! and validation end soon for every input, because input has a size limit, and rules are evaluated
//! under a budget. Validation happens before a write is proposed, never in apply.
//!
//! ```text
//! TypeSchema::compile(registration) ─► complete(data, resource)
//! ```

mod data;
mod defaults;
mod descriptors;
mod error;
mod rules;

use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage, Value};

pub use data::JsonData;
pub use error::{SchemaError, Violation};

use headwater_types::limits::{TYPE_ANY_DEPTH_MAX, TYPE_DATA_LEVELS_MAX};
use headwater_types::resource::{Any, Resource, ResourceType, check_group, check_group_version, check_kind};
use rules::Rules;

/// The compiled registration of a type, which validates data. Compiling takes long: keep it and
/// share it.
#[derive(Debug)]
pub struct TypeSchema {
    message: Option<MessageDescriptor>,
    defaults: Option<DynamicMessage>,
    rules: Rules,
}

impl TypeSchema {
    /// Compiles a registration.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] for the first fault, with a text for the author of the registration.
    pub fn compile(registration: &ResourceType) -> Result<Self, SchemaError> {
        let type_ = &registration.type_;
        for (field, given, problem) in [
            ("group", &type_.group, check_group(&type_.group)),
            ("group_version", &type_.group_version, check_group_version(&type_.group_version)),
            ("kind", &type_.kind, check_kind(&type_.kind)),
        ] {
            problem.map_err(|problem| SchemaError::Name { field, given: shown(given), problem })?;
        }
        let message = descriptors::message(registration)?;
        let defaults = defaults::read(message.as_ref(), &registration.defaults_json)?;
        let rules = Rules::compile(&registration.rules, message.as_ref())?;
        Ok(Self { message, defaults, rules })
    }

    /// Descriptor of the message of the data; `None` for a type without data.
    #[must_use]
    pub fn message(&self) -> Option<&MessageDescriptor> {
        self.message.as_ref()
    }

    /// Completes data and validates it: sets unset fields that have a default, then evaluates the
    /// rules of the type for this resource. The bytes of `data` change only if a default was set.
    ///
    /// # Errors
    ///
    /// [`Violation`] with every broken rule, or with the reason why the data cannot be validated.
    /// Defaults may have been set in `data` by then.
    pub fn complete(&self, data: &mut Any, resource: &Resource) -> Result<(), Violation> {
        let mut message = self.decode(data)?;
        let changed = self.defaults.as_ref().is_some_and(|defaults| defaults::apply(defaults, &mut message));
        if changed {
            data.value = message.encode_to_vec().into();
        }
        self.rules.check(message, resource)
    }

    fn check_kind(&self, data: &Any) -> Result<&MessageDescriptor, Violation> {
        let given = data.message_name();
        match &self.message {
            Some(message) if message.full_name() == given => Ok(message),
            Some(message) => Err(Violation::WrongType { wanted: message.full_name().to_owned(), given: shown(given) }),
            None => Err(Violation::NoDataWanted { given: shown(given) }),
        }
    }

    fn decode(&self, data: &Any) -> Result<DynamicMessage, Violation> {
        let message = self.check_kind(data)?;
        let malformed = |why: String| Violation::Malformed { message: message.full_name().to_owned(), why };
        let decoded = DynamicMessage::decode(message.clone(), data.value.clone());
        let decoded = decoded.map_err(|error| malformed(error.to_string()))?;
        if !Room::MOST.holds(&decoded) {
            return Err(malformed(format!(
                "more than {TYPE_DATA_LEVELS_MAX} messages are in one another, those in google.protobuf.Any included, \
                 or more than {TYPE_ANY_DEPTH_MAX} google.protobuf.Any"
            )));
        }
        Ok(decoded)
    }
}

/// How much more may be in one another below a message. The message inside a `google.protobuf.Any`
/// is one level below it: the library that writes data as JSON follows those, begins its own limit
/// of levels anew in each, and copies in each all that is inside.
#[derive(Clone, Copy)]
struct Room {
    levels: usize,
    anys: usize,
}

impl Room {
    const MOST: Self = Self { levels: TYPE_DATA_LEVELS_MAX, anys: TYPE_ANY_DEPTH_MAX };

    fn holds(self, message: &DynamicMessage) -> bool {
        if message.descriptor().full_name() != ANY {
            return message.fields().all(|(_, value)| self.holds_value(value));
        }
        let Some(anys) = self.anys.checked_sub(1) else { return false };
        let Ok(any) = message.transcode_to::<prost_types::Any>() else { return true };
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        let known = message.descriptor().parent_pool().get_message_by_name(name);
        // The library does not follow what it does not know, or cannot decode.
        let inner = known.and_then(|known| DynamicMessage::decode(known, &any.value[..]).ok());
        inner.is_none_or(|inner| Self { anys, ..self }.holds_below(&inner))
    }

    fn holds_below(self, message: &DynamicMessage) -> bool {
        self.levels.checked_sub(1).is_some_and(|levels| Self { levels, ..self }.holds(message))
    }

    fn holds_value(self, value: &Value) -> bool {
        match value {
            Value::Message(message) => self.holds_below(message),
            Value::List(values) => values.iter().all(|value| self.holds_value(value)),
            Value::Map(entries) => entries.values().all(|value| self.holds_value(value)),
            _ => true,
        }
    }
}

/// The full name of the message that contains a message of any type.
const ANY: &str = "google.protobuf.Any";

/// Longest part of the input that an error quotes, characters.
const SHOWN_MAX: usize = 200;

/// A text as an error quotes it: its first 200 characters, with an ellipsis if it has more.
#[must_use]
pub fn shown(given: &str) -> String {
    match given.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &given[..end]),
        None => given.to_owned(),
    }
}

#[cfg(test)]
mod tests;
