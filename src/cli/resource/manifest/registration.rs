//! Manifests that register a type. Beside the fields of `headwater.v1.ResourceType`, `data` may
//! have
//!
//! * `protoFile: demo.proto`, a file beside the manifest, or `proto: |` and the text itself, in
//!   place of `descriptorSet`;
//! * `scope: namespace`, short for `SCOPE_NAMESPACE`.

use std::path::Path;

use prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage};
use std::sync::LazyLock;

use super::node::{Content, Location, Problem, YamlEntry, YamlNode};
use super::proto;
use crate::resource::catalogue;
use headwater_proto::pb::{PUBLIC_DESCRIPTORS, headwater_v1};
use headwater_schema::{SchemaError, TypeSchema};
use headwater_types::resource::{Any, ResourceType, Scope};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("descriptors that were compiled in"));

const MESSAGE: &str = "headwater.v1.ResourceType";

/// Reads and checks the data of a registration. Returns it as it is stored, and decoded. `folder`
/// is that of the manifest.
pub(super) fn read(data: &YamlNode, folder: Option<&Path>) -> Result<(Any, ResourceType), Problem> {
    let mut plain = data.clone();
    let Content::Map(entries) = &mut plain.content else { return Err(data.wrong("a map")) };
    let mut descriptors = None;
    let mut kept = Vec::with_capacity(entries.len());
    for mut entry in entries.drain(..) {
        let compiled = match entry.key.as_str() {
            "protoFile" => proto::compile_file(folder, &entry.value)?,
            "proto" => proto::compile_text(folder, &entry.value)?,
            "scope" => {
                if let Content::Text(scope) = &mut entry.value.content
                    && !scope.starts_with("SCOPE_")
                {
                    *scope = format!("SCOPE_{}", scope.to_ascii_uppercase());
                }
                kept.push(entry);
                continue;
            }
            _ => {
                kept.push(entry);
                continue;
            }
        };
        let twice = kept.iter().any(|entry| matches!(entry.key.as_str(), "descriptorSet" | "descriptor_set"));
        if twice || descriptors.replace(compiled).is_some() {
            return Err(Problem::at(
                entry.location,
                "the descriptors are given twice: by proto, protoFile or descriptorSet",
            ));
        }
    }
    *entries = kept;

    let descriptor = POOL.get_message_by_name(MESSAGE).expect("a message that was compiled in");
    let message = DynamicMessage::deserialize_with_options(descriptor, &plain, &DeserializeOptions::new())?;
    let mut stored = headwater_v1::ResourceType::decode(message.encode_to_vec().as_slice())
        .map_err(|error| Problem::at(data.location, error.to_string()))?;
    if let Some(descriptors) = descriptors {
        stored.descriptor_set = descriptors;
    }
    let any = Any { type_url: format!("type.googleapis.com/{MESSAGE}"), value: stored.encode_to_vec().into() };
    let used = catalogue::registration(stored);
    if used.scope == Scope::Undefined {
        let location = find(data, &["scope"]).unwrap_or(data.location);
        return Err(Problem::at(location, "scope must be cluster, partition or namespace"));
    }
    TypeSchema::compile(&used).map_err(|error| locate(data, &error))?;
    Ok((any, used))
}

/// The error with a location: that of the field in `data` that it is about, else that of `data`.
fn locate(data: &YamlNode, error: &SchemaError) -> Problem {
    let location = match error {
        SchemaError::Name { field: "group_version", .. } => find(data, &["groupVersion", "group_version"]),
        SchemaError::Name { field, .. } => find(data, &[field]),
        SchemaError::Descriptors(_) => find(data, &["descriptorSet", "descriptor_set", "protoFile", "proto"]),
        SchemaError::NoSuchMessage { .. } => find(data, &["message"]),
        SchemaError::Defaults { .. } => find(data, &["defaults"]),
        SchemaError::Rule { number, .. } => rule(data, *number),
        SchemaError::TooLarge { .. } | SchemaError::NoMessage(_) | SchemaError::Unavailable(_) => None,
    };
    Problem::at(location.unwrap_or(data.location), error.to_string())
}

fn entry<'a>(data: &'a YamlNode, names: &[&str]) -> Option<&'a YamlEntry> {
    data.entries().ok()?.iter().find(|entry| names.contains(&entry.key.as_str()))
}

fn find(data: &YamlNode, names: &[&str]) -> Option<Location> {
    entry(data, names).map(|entry| entry.value.location)
}

fn rule(data: &YamlNode, number: usize) -> Option<Location> {
    let Content::List(rules) = &entry(data, &["rules"])?.value.content else { return None };
    let rule = rules.get(number.checked_sub(1)?)?;
    Some(find(rule, &["expression"]).unwrap_or(rule.location))
}
