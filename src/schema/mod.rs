//! What a type says about the data of its resources: the protobuf message, defaults, and rules in CEL.
//!
//! Pure and synchronous: a registration goes in, a [`TypeSchema`] comes out, and bytes are judged by it. Knows nothing of
//! nodes, requests or where types are stored. Invariant: whatever somebody registers, compiling and judging end soon: input
//! has a size limit, and rules are evaluated under a budget. Judging happens before a write is proposed, never in apply.
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
use prost_reflect::{DynamicMessage, MessageDescriptor};

pub use data::JsonData;
pub use error::{SchemaError, Violation};

use headwater_types::resource::{Any, Resource, ResourceType, check_group, check_group_version, check_kind};
use rules::Rules;

/// A registered type, ready to judge data. Cheap to share, costly to make.
#[derive(Debug)]
pub struct TypeSchema {
    message: Option<MessageDescriptor>,
    defaults: Option<DynamicMessage>,
    rules: Rules,
}

impl TypeSchema {
    /// Reads a registration.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] for whatever is wrong with it, in words for the one who wrote it.
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

    /// The message of the data; `None` for a type without data.
    #[must_use]
    pub fn message(&self) -> Option<&MessageDescriptor> {
        self.message.as_ref()
    }

    /// Completes data and judges it: sets the fields that it leaves unset and that have a default, then looks whether it is
    /// what the type wants, in this resource. Data that lacks no default keeps its bytes.
    ///
    /// # Errors
    ///
    /// [`Violation`] with every rule that is broken, or with what keeps the data from being judged.
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
        DynamicMessage::decode(message.clone(), data.value.clone())
            .map_err(|error| Violation::Malformed { message: message.full_name().to_owned(), why: error.to_string() })
    }
}

/// Most of what somebody gave that an error repeats, characters.
const SHOWN_MAX: usize = 200;

/// As much of what somebody gave as an error repeats.
#[must_use]
pub fn shown(given: &str) -> String {
    match given.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &given[..end]),
        None => given.to_owned(),
    }
}

#[cfg(test)]
mod tests;
