//! Encoding of resources: in storage, in commands and in outcomes. Also conversions between the
//! messages of the API and the types of the store.
//!
//! A resource is stored as the message of the public API, which is as stable as a format of our
//! own. A live resource is stored without its version, which is the log index of its record. The
//! record of a removal holds the last version. The conversions are `From`, so that faces and
//! clients can use them.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::CodecError;
use super::command::{decode_message, encode_message};
use super::kv::{fixed, required, unknown};
use crate::pb::{headwater_v1, internal as pb, pbresource, pbtenancy, struct_to_json};
use headwater_types::LogIndex;
use headwater_types::resource::{
    Any, Condition, ProposerChoices, Reference, Resource, ResourceCommand, ResourceDelete, ResourceDeletion,
    ResourceId, ResourceOutcome, ResourceReap, ResourceReaped, ResourceRefusal, ResourceType, ResourceWrite,
    ResourceWriteStatus, Rule, Scope, Status, Tenancy, Timestamp, Type,
};

/// The only format of stored resources so far.
const FORMAT: u8 = 1;
const WHAT: &str = "resource";
/// Prefix of a message's full name in a type URL.
const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// The bytes of a resource as it is stored, and the resource. A version of zero is left out. Takes
/// the resource and returns it unchanged: its texts are moved to the message and back, not copied.
pub fn encode_resource(resource: Resource) -> (Bytes, Resource) {
    let message = pbresource::Resource::from(resource);
    (encode_message(FORMAT, &message), message.into())
}

/// Reads a resource from the record with the log index `at`, which becomes its version if the bytes
/// have none.
///
/// # Errors
///
/// [`CodecError`] for another format byte, and for bytes that are not a resource.
pub fn decode_resource(bytes: Bytes, at: LogIndex) -> Result<Resource, CodecError> {
    let message: pbresource::Resource = decode_message(WHAT, FORMAT, bytes)?;
    let mut resource = Resource::from(message);
    if resource.version == LogIndex::ZERO {
        resource.version = at;
    }
    Ok(resource)
}

/// The data of the tombstone of the deleted resource `owner`.
pub fn tombstone_data(owner: &ResourceId) -> Any {
    let message = pbresource::Tombstone { owner: Some(owner.clone().into()) };
    Any {
        type_url: format!("{TYPE_URL_PREFIX}hashicorp.consul.resource.Tombstone"),
        value: message.encode_to_vec().into(),
    }
}

/// Reads the id of the deleted owner from the data of its tombstone. The type URL is not checked.
///
/// # Errors
///
/// [`CodecError::Malformed`], [`CodecError::Missing`].
pub fn read_tombstone(data: &Any) -> Result<ResourceId, CodecError> {
    let message = pbresource::Tombstone::decode(data.value.clone())
        .map_err(|error| CodecError::Malformed { what: "tombstone", detail: error.to_string() })?;
    Ok(required(message.owner, "Tombstone.owner")?.into())
}

/// Checks that bytes are an encoded `Partition` or `Namespace`, the messages of units of tenancy.
///
/// # Errors
///
/// [`CodecError::Malformed`] if not.
pub fn check_unit(bytes: &Bytes) -> Result<(), CodecError> {
    // The messages of both kinds of unit have the same fields.
    match pbtenancy::Namespace::decode(bytes.clone()) {
        Ok(_) => Ok(()),
        Err(error) => Err(CodecError::Malformed { what: "unit of tenancy", detail: error.to_string() }),
    }
}

/// Reads the message `headwater.v1.ResourceType`.
///
/// # Errors
///
/// [`CodecError::Malformed`] if it is not such a message; [`CodecError::UnknownValue`] for an
/// unknown scope.
pub fn decode_resource_type(message: Bytes) -> Result<ResourceType, CodecError> {
    use headwater_v1::resource_type::Scope as Wire;
    let message = headwater_v1::ResourceType::decode(message)
        .map_err(|error| CodecError::Malformed { what: "resource type", detail: error.to_string() })?;
    let scope = match Wire::try_from(message.scope) {
        Ok(Wire::Cluster) => Scope::Cluster,
        Ok(Wire::Partition) => Scope::Partition,
        Ok(Wire::Namespace) => Scope::Namespace,
        Ok(Wire::Undefined) => Scope::Undefined,
        Err(_) => return Err(unknown("ResourceType.scope", message.scope)),
    };
    Ok(ResourceType {
        type_: Type { group: message.group, group_version: message.group_version, kind: message.kind },
        scope,
        message: message.message,
        descriptor_set: message.descriptor_set,
        defaults_json: message.defaults.map(|object| struct_to_json(&object).to_string()).unwrap_or_default(),
        rules: message
            .rules
            .into_iter()
            .map(|rule| Rule { expression: rule.expression, message: rule.message })
            .collect(),
        dont_map_http: message.dont_map_http,
        description: message.description,
    })
}

pub(super) fn write_command(command: &ResourceCommand) -> pb::ResourceCommand {
    let command = match command {
        ResourceCommand::Write(write) => pb::resource_command::Command::Write(pb::ResourceWrite {
            resource: Some(write.resource.clone().into()),
            expected: write.expected.map(LogIndex::get),
            uid: write.uid.clone(),
            generation: write.generation.clone(),
            type_version: write.type_version.get(),
            registers: write.registers.as_ref().map(|(type_, scope)| pb::RegisteredType {
                r#type: Some(type_.clone().into()),
                scope: write_scope(*scope).into(),
            }),
        }),
        ResourceCommand::WriteStatus(write) => pb::resource_command::Command::WriteStatus(pb::ResourceWriteStatus {
            id: Some(write.id.clone().into()),
            expected: write.expected.map(LogIndex::get),
            key: write.key.clone(),
            status: Some(write.status.clone().into()),
        }),
        ResourceCommand::Delete(delete) => pb::resource_command::Command::Delete(pb::ResourceDelete {
            id: Some(delete.id.clone().into()),
            expected: delete.expected.map(LogIndex::get),
            chosen: Some(write_chosen(&delete.chosen)),
        }),
        ResourceCommand::Reap(reap) => pb::resource_command::Command::Reap(pb::ResourceReap {
            owner: Some(reap.owner.clone().into()),
            tombstone_version: reap.tombstone_version.get(),
            after: reap.after.clone(),
            chosen: Some(write_chosen(&reap.chosen)),
        }),
    };
    pb::ResourceCommand { command: Some(command) }
}

pub(super) fn read_command(command: pb::ResourceCommand) -> Result<ResourceCommand, CodecError> {
    Ok(match command.command.ok_or(CodecError::UnknownCommand)? {
        pb::resource_command::Command::Write(write) => {
            let registers = write.registers.map(|registered| {
                let type_ = required(registered.r#type, "RegisteredType.type")?;
                Ok::<_, CodecError>((type_.into(), read_scope(registered.scope)?))
            });
            ResourceCommand::Write(Box::new(ResourceWrite {
                resource: required(write.resource, "ResourceWrite.resource")?.into(),
                expected: write.expected.map(LogIndex),
                uid: write.uid,
                generation: write.generation,
                type_version: LogIndex(write.type_version),
                registers: registers.transpose()?,
            }))
        }
        pb::resource_command::Command::WriteStatus(write) => {
            ResourceCommand::WriteStatus(Box::new(ResourceWriteStatus {
                id: required(write.id, "ResourceWriteStatus.id")?.into(),
                expected: write.expected.map(LogIndex),
                key: write.key,
                status: required(write.status, "ResourceWriteStatus.status")?.into(),
            }))
        }
        pb::resource_command::Command::Delete(delete) => ResourceCommand::Delete(Box::new(ResourceDelete {
            id: required(delete.id, "ResourceDelete.id")?.into(),
            expected: delete.expected.map(LogIndex),
            chosen: read_chosen(delete.chosen)?,
        })),
        pb::resource_command::Command::Reap(reap) => ResourceCommand::Reap(Box::new(ResourceReap {
            owner: required(reap.owner, "ResourceReap.owner")?.into(),
            tombstone_version: LogIndex(reap.tombstone_version),
            after: reap.after,
            chosen: read_chosen(reap.chosen)?,
        })),
    })
}

fn write_chosen(chosen: &ProposerChoices) -> pb::Chosen {
    pb::Chosen { ulid: Bytes::copy_from_slice(&chosen.ulid.to_be_bytes()), now: chosen.now.clone() }
}

fn read_chosen(chosen: Option<pb::Chosen>) -> Result<ProposerChoices, CodecError> {
    let chosen = required(chosen, "chosen")?;
    Ok(ProposerChoices { ulid: u128::from_be_bytes(fixed(&chosen.ulid, "Chosen.ulid")?), now: chosen.now })
}

fn write_scope(scope: Scope) -> pb::ResourceScope {
    match scope {
        Scope::Cluster => pb::ResourceScope::Cluster,
        Scope::Partition => pb::ResourceScope::Partition,
        Scope::Namespace => pb::ResourceScope::Namespace,
        Scope::Undefined => pb::ResourceScope::Undefined,
    }
}

fn read_scope(scope: i32) -> Result<Scope, CodecError> {
    Ok(match pb::ResourceScope::try_from(scope) {
        Ok(pb::ResourceScope::Cluster) => Scope::Cluster,
        Ok(pb::ResourceScope::Partition) => Scope::Partition,
        Ok(pb::ResourceScope::Namespace) => Scope::Namespace,
        Ok(pb::ResourceScope::Undefined) => Scope::Undefined,
        Ok(pb::ResourceScope::Unspecified) | Err(_) => return Err(unknown("RegisteredType.scope", scope)),
    })
}

pub(super) fn write_outcome(outcome: &ResourceOutcome) -> pb::ResourceOutcome {
    let outcome = match outcome {
        ResourceOutcome::Written(resource) => {
            pb::resource_outcome::Outcome::Written(pbresource::Resource::from((**resource).clone()))
        }
        ResourceOutcome::Deleted(deletion) => pb::resource_outcome::Outcome::Deleted(
            match deletion {
                ResourceDeletion::Nothing => pb::ResourceDeletion::Nothing,
                ResourceDeletion::Marked => pb::ResourceDeletion::Marked,
                ResourceDeletion::Removed => pb::ResourceDeletion::Removed,
            }
            .into(),
        ),
        ResourceOutcome::Reaped(reaped) => pb::resource_outcome::Outcome::Reaped(pb::ResourceReaped {
            removed: reaped.removed,
            marked: reaped.marked,
            next: reaped.next.clone(),
        }),
    };
    pb::ResourceOutcome { outcome: Some(outcome) }
}

pub(super) fn read_outcome(outcome: pb::ResourceOutcome) -> Result<ResourceOutcome, CodecError> {
    Ok(match outcome.outcome.ok_or(CodecError::UnknownOutcome)? {
        pb::resource_outcome::Outcome::Written(resource) => ResourceOutcome::Written(Box::new(resource.into())),
        pb::resource_outcome::Outcome::Deleted(deletion) => {
            ResourceOutcome::Deleted(match pb::ResourceDeletion::try_from(deletion) {
                Ok(pb::ResourceDeletion::Nothing) => ResourceDeletion::Nothing,
                Ok(pb::ResourceDeletion::Marked) => ResourceDeletion::Marked,
                Ok(pb::ResourceDeletion::Removed) => ResourceDeletion::Removed,
                Ok(pb::ResourceDeletion::Unspecified) | Err(_) => {
                    return Err(unknown("ResourceOutcome.deleted", deletion));
                }
            })
        }
        pb::resource_outcome::Outcome::Reaped(reaped) => ResourceOutcome::Reaped(ResourceReaped {
            removed: reaped.removed,
            marked: reaped.marked,
            next: reaped.next,
        }),
    })
}

pub(super) fn read_refusal(number: i32) -> Result<ResourceRefusal, CodecError> {
    let known = ResourceRefusal::ALL.into_iter().find(|refusal| *refusal as i32 == number);
    known.ok_or_else(|| unknown("Refusal.resource", number))
}

impl From<Type> for pbresource::Type {
    fn from(type_: Type) -> Self {
        Self { group: type_.group, group_version: type_.group_version, kind: type_.kind }
    }
}

impl From<pbresource::Type> for Type {
    fn from(type_: pbresource::Type) -> Self {
        Self { group: type_.group, group_version: type_.group_version, kind: type_.kind }
    }
}

impl From<Tenancy> for pbresource::Tenancy {
    fn from(tenancy: Tenancy) -> Self {
        Self { partition: tenancy.partition, namespace: tenancy.namespace }
    }
}

impl From<pbresource::Tenancy> for Tenancy {
    fn from(tenancy: pbresource::Tenancy) -> Self {
        Self { partition: tenancy.partition, namespace: tenancy.namespace }
    }
}

impl From<ResourceId> for pbresource::Id {
    fn from(id: ResourceId) -> Self {
        Self { uid: id.uid, name: id.name, r#type: Some(id.type_.into()), tenancy: Some(id.tenancy.into()) }
    }
}

/// An absent type or tenancy becomes an empty one.
impl From<pbresource::Id> for ResourceId {
    fn from(id: pbresource::Id) -> Self {
        Self {
            uid: id.uid,
            name: id.name,
            type_: id.r#type.unwrap_or_default().into(),
            tenancy: id.tenancy.unwrap_or_default().into(),
        }
    }
}

impl From<Resource> for pbresource::Resource {
    fn from(resource: Resource) -> Self {
        Self {
            id: Some(resource.id.into()),
            owner: resource.owner.map(Into::into),
            version: if resource.version == LogIndex::ZERO { String::new() } else { resource.version.to_string() },
            generation: resource.generation,
            metadata: resource.metadata,
            status: resource.status.into_iter().map(|(key, status)| (key, status.into())).collect(),
            data: resource.data.map(|data| prost_types::Any { type_url: data.type_url, value: data.value.into() }),
        }
    }
}

/// An absent id becomes an empty one. A version that is no number becomes zero.
impl From<pbresource::Resource> for Resource {
    fn from(resource: pbresource::Resource) -> Self {
        Self {
            id: resource.id.unwrap_or_default().into(),
            owner: resource.owner.map(Into::into),
            version: LogIndex(resource.version.parse().unwrap_or_default()),
            generation: resource.generation,
            metadata: resource.metadata,
            status: resource.status.into_iter().map(|(key, status)| (key, status.into())).collect::<BTreeMap<_, _>>(),
            data: resource.data.map(|data| Any { type_url: data.type_url, value: data.value.into() }),
        }
    }
}

impl From<Status> for pbresource::Status {
    fn from(status: Status) -> Self {
        Self {
            observed_generation: status.observed_generation,
            conditions: status.conditions.into_iter().map(Into::into).collect(),
            updated_at: status.updated_at.map(|at| prost_types::Timestamp { seconds: at.seconds, nanos: at.nanos }),
        }
    }
}

impl From<pbresource::Status> for Status {
    fn from(status: pbresource::Status) -> Self {
        Self {
            observed_generation: status.observed_generation,
            conditions: status.conditions.into_iter().map(Into::into).collect(),
            updated_at: status.updated_at.map(|at| Timestamp { seconds: at.seconds, nanos: at.nanos }),
        }
    }
}

impl From<Condition> for pbresource::Condition {
    fn from(condition: Condition) -> Self {
        Self {
            r#type: condition.type_,
            state: condition.state,
            reason: condition.reason,
            message: condition.message,
            resource: condition.resource.map(|reference| pbresource::Reference {
                r#type: Some(reference.type_.into()),
                tenancy: Some(reference.tenancy.into()),
                name: reference.name,
                section: reference.section,
            }),
        }
    }
}

impl From<pbresource::Condition> for Condition {
    fn from(condition: pbresource::Condition) -> Self {
        Self {
            type_: condition.r#type,
            state: condition.state,
            reason: condition.reason,
            message: condition.message,
            resource: condition.resource.map(|reference| Reference {
                type_: reference.r#type.unwrap_or_default().into(),
                tenancy: reference.tenancy.unwrap_or_default().into(),
                name: reference.name,
                section: reference.section,
            }),
        }
    }
}

#[cfg(test)]
#[path = "resource_tests.rs"]
mod tests;
