//! Finds the message of a type in the descriptor set of its registration.

use prost::Message;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use prost_types::FileDescriptorSet;

use super::SchemaError;
use headwater_types::limits::DESCRIPTOR_SET_BYTES_MAX;
use headwater_types::resource::ResourceType;

/// Most names of known messages that the error for an unknown name lists, count.
const KNOWN_SHOWN_MAX: usize = 5;

pub(super) fn message(registration: &ResourceType) -> Result<Option<MessageDescriptor>, SchemaError> {
    let size = registration.descriptor_set.len();
    if size > DESCRIPTOR_SET_BYTES_MAX {
        let what = "the descriptor set, in bytes,".to_owned();
        return Err(SchemaError::TooLarge { what, size, max: DESCRIPTOR_SET_BYTES_MAX });
    }
    if registration.message.is_empty() {
        return match registration {
            it if !it.descriptor_set.is_empty() => Err(SchemaError::NoMessage("descriptors")),
            it if !it.defaults_json.trim().is_empty() => Err(SchemaError::NoMessage("defaults")),
            it if !it.rules.is_empty() => Err(SchemaError::NoMessage("rules")),
            _ => Ok(None),
        };
    }
    let pool = pool(&registration.descriptor_set)?;
    match pool.get_message_by_name(&registration.message) {
        Some(message) if message.is_map_entry() => {
            Err(SchemaError::NoSuchMessage { name: registration.message.clone(), known: Vec::new() })
        }
        Some(message) => Ok(Some(message)),
        None => Err(SchemaError::NoSuchMessage { name: registration.message.clone(), known: known(&pool) }),
    }
}

/// A pool with the files of an encoded set, and with the well-known files that any set may import.
/// If the set has its own copy of a well-known file, perhaps of another release, that copy is used.
fn pool(encoded: &[u8]) -> Result<DescriptorPool, SchemaError> {
    let refused = |error: &dyn std::fmt::Display| SchemaError::Descriptors(error.to_string());
    let given = FileDescriptorSet::decode(encoded).map_err(|error| refused(&error))?.file;
    if given.is_empty() {
        return Err(SchemaError::Descriptors("it is empty".to_owned()));
    }
    let known = DescriptorPool::global();
    let missing = known.file_descriptor_protos().filter(|known| given.iter().all(|file| file.name() != known.name()));
    let file = missing.cloned().chain(given.iter().cloned()).collect();
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_set(FileDescriptorSet { file }).map_err(|error| refused(&error))?;
    Ok(pool)
}

fn known(pool: &DescriptorPool) -> Vec<String> {
    let messages = pool.all_messages().filter(|message| !message.is_map_entry());
    let own = messages.filter(|message| !message.full_name().starts_with("google.protobuf."));
    own.take(KNOWN_SHOWN_MAX).map(|message| message.full_name().to_owned()).collect()
}
