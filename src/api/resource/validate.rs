//! The shape of requests: the checks that do not look up the resource's type (spec: consul §5.3 to
//! §5.14).
//!
//! Owns the order of the checks and their words. Clients get the first error.

use thiserror::Error;

use headwater_proto::pb::pbresource as pb;
use headwater_schema::shown;
use headwater_types::LogIndex;
use headwater_types::limits::{
    RESOURCE_NAME_BYTES_MAX, RESOURCE_SECTION_BYTES_MAX, RESOURCE_STATUS_KEY_BYTES_MAX, RESOURCE_UID_BYTES_MAX,
    TOMBSTONE_NAME_BYTES_MAX,
};
use headwater_types::resource::{
    NameProblem, Resource, ResourceId, Selector, Status, Tenancy, Type, WILDCARD, check_group, check_group_version,
    check_kind, check_name, is_ulid,
};

/// The mistake in a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// A required field is missing.
    #[error("{0} is required")]
    Required(String),
    /// The value of a field is not a valid name, or not a valid part of a type.
    #[error("{field} invalid: {problem}, got: {given:?}")]
    Name {
        /// The field with the name.
        field: String,
        /// The mistake.
        problem: NameProblem,
        /// The given value; only its first 200 characters if it is longer.
        given: String,
    },
    /// A uid, a part of a type, a key or a section exceeds its length limit.
    #[error("{0} is too long")]
    TooLong(String),
    /// A field is given that only the server sets.
    #[error("{0} is automatically set and cannot be provided")]
    SetByServer(&'static str),
    /// The state of a condition is a number that no state has.
    #[error("status.conditions[{at}].state is not valid: {given}, there are 0 (unknown), 1 (true) and 2 (false)")]
    State {
        /// Position of the condition in the status, from 0.
        at: usize,
        /// The number in the request.
        given: i32,
    },
    /// The field is not a ULID, or it is an owner's uid with lower-case letters.
    #[error("{0} is not valid")]
    NotUlid(&'static str),
    /// A prefix of names has upper-case letters.
    #[error("name_prefix invalid: must be lower case alphanumeric, got: {0:?}")]
    Prefix(String),
    /// A prefix of names is longer than names may be.
    #[error("name_prefix invalid: must be less than {} characters", .max + 1)]
    PrefixTooLong {
        /// Longest name of the type, bytes.
        max: usize,
    },
    /// The owner of a list by owner has no uid.
    #[error("owner uid is required")]
    OwnerUid,
    /// Metadata of the call cannot be read.
    #[error("metadata {0} cannot be read")]
    Metadata(&'static str),
    /// A key of a map is empty.
    #[error("{0} must not have an empty key")]
    EmptyKey(&'static str),
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid::Required(field.to_owned()))
}

fn name(given: &str, field: String) -> Result<(), Invalid> {
    check_name(given).map_err(|problem| Invalid::Name { field, problem, given: shown(given) })
}

/// The values that the units of a tenancy may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Units {
    /// Names, or empty.
    Names,
    /// Names, empty, or [`WILDCARD`].
    Patterns,
}

fn tenancy(tenancy: &Tenancy, field: &str, units: Units) -> Result<(), Invalid> {
    for (unit, given) in [("partition", &tenancy.partition), ("namespace", &tenancy.namespace)] {
        let is_pattern = units == Units::Patterns && given == WILDCARD;
        if !given.is_empty() && !is_pattern {
            name(given, format!("{field}.{unit}"))?;
        }
    }
    Ok(())
}

/// Checks an id that names one resource. `field` is the name of the id in the texts of errors.
pub fn id(id: Option<pb::Id>, field: &str) -> Result<ResourceId, Invalid> {
    let id = named(id, field)?;
    // The store makes the names of tombstones, and they are longer than a client's may be.
    let is_tombstones = id.type_.is_tombstone() && id.name.starts_with("tombstone-");
    if !is_tombstones || id.name.len() > TOMBSTONE_NAME_BYTES_MAX {
        name(&id.name, format!("{field}.name"))?;
    }
    tenancy(&id.tenancy, &format!("{field}.tenancy"), Units::Names)?;
    Ok(id)
}

/// Checks that an id is given, has a type, and keeps the length limits of type and uid. Returns it.
fn named(id: Option<pb::Id>, field: &str) -> Result<ResourceId, Invalid> {
    let id = required(id, field)?;
    if id.r#type.is_none() {
        return Err(Invalid::Required(format!("{field}.type")));
    }
    let id = ResourceId::from(id);
    bounded_type(&id.type_, &format!("{field}.type"))?;
    if id.uid.len() > RESOURCE_UID_BYTES_MAX {
        return Err(Invalid::TooLong(format!("{field}.uid")));
    }
    Ok(id)
}

/// Refuses a type with a part longer than a name. No such type can be registered: the name of a
/// registration has all parts of the type.
fn bounded_type(type_: &Type, field: &str) -> Result<(), Invalid> {
    let Type { group, group_version, kind } = type_;
    for (part, given) in [("group", group), ("group_version", group_version), ("kind", kind)] {
        if given.len() > RESOURCE_NAME_BYTES_MAX {
            return Err(Invalid::TooLong(format!("{field}.{part}")));
        }
    }
    Ok(())
}

/// Checks a resource to write. Returns it with the [`expected`] version.
pub fn resource(given: Option<pb::Resource>) -> Result<(Resource, Option<LogIndex>), Invalid> {
    let mut given = required(given, "resource")?;
    let checked = id(given.id.take(), "resource.id")?;
    let owner = given.owner.take().map(|owner| {
        let owner = id(Some(owner), "resource.owner")?;
        // Its type may be unregistered, but must be valid: the index of owners is keyed by it.
        let type_ = &owner.type_;
        for (part, given, problem) in [
            ("group", &type_.group, check_group(&type_.group)),
            ("group_version", &type_.group_version, check_group_version(&type_.group_version)),
            ("kind", &type_.kind, check_kind(&type_.kind)),
        ] {
            problem.map_err(|problem| Invalid::Name {
                field: format!("resource.owner.type.{part}"),
                problem,
                given: shown(given),
            })?;
        }
        // The owner's uid is part of the index, and of the name of its tombstone: only one spelling
        // is valid.
        let is_lower = |byte: u8| byte.is_ascii_lowercase();
        let is_life = owner.uid.is_empty() || is_ulid(&owner.uid) && !owner.uid.bytes().any(is_lower);
        if !is_life {
            return Err(Invalid::NotUlid("resource.owner.uid"));
        }
        Ok(owner)
    });
    let owner = owner.transpose()?;
    if given.metadata.contains_key("") {
        return Err(Invalid::EmptyKey("resource.metadata"));
    }
    let expected = expected(&given.version);
    Ok((Resource { id: checked, owner, ..Resource::from(given) }, expected))
}

/// The version that a client expects; `None` for any. A text that the server never assigns becomes
/// zero, which matches nothing.
pub fn expected(version: &str) -> Option<LogIndex> {
    if version.is_empty() {
        return None;
    }
    let number = version.parse().ok().filter(|number: &u64| number.to_string() == version);
    Some(number.map_or(LogIndex::ZERO, LogIndex))
}

/// Checks the owner of a list by owner. It must have a uid.
pub(super) fn owner(given: Option<pb::Id>) -> Result<ResourceId, Invalid> {
    let owner = id(given, "owner")?;
    if owner.uid.is_empty() {
        return Err(Invalid::OwnerUid);
    }
    Ok(owner)
}

/// Checks the selection of a list or a watch. `without_tenancy` stands in for a missing tenancy; if
/// it is `None`, a missing tenancy is refused.
pub(super) fn selector(
    type_: Option<pb::Type>,
    tenancy_: Option<pb::Tenancy>,
    name_prefix: String,
    without_tenancy: Option<Tenancy>,
) -> Result<Selector, Invalid> {
    let type_: Type = required(type_, "type")?.into();
    bounded_type(&type_, "type")?;
    let units = match (tenancy_, without_tenancy) {
        (Some(given), _) => given.into(),
        (None, Some(everywhere)) => everywhere,
        (None, None) => return Err(Invalid::Required("tenancy".to_owned())),
    };
    tenancy(&units, "tenancy", Units::Patterns)?;
    let max = if type_.is_tombstone() { TOMBSTONE_NAME_BYTES_MAX } else { RESOURCE_NAME_BYTES_MAX };
    if name_prefix.len() > max {
        return Err(Invalid::PrefixTooLong { max });
    }
    if name_prefix.chars().any(char::is_uppercase) {
        return Err(Invalid::Prefix(name_prefix));
    }
    Ok(Selector { type_, tenancy: units, name_prefix })
}

/// A status to write.
pub struct StatusWrite {
    /// The id of the resource.
    pub id: ResourceId,
    /// Key under which the resource keeps the status.
    pub key: String,
    /// The status.
    pub status: Status,
    /// The version that the resource must have, if given.
    pub expected: Option<LogIndex>,
}

/// Checks a status to write, in the order of spec consul §5.7.
pub fn status(request: pb::WriteStatusRequest) -> Result<StatusWrite, Invalid> {
    let given = required(request.id, "id")?;
    if given.r#type.is_none() {
        return Err(Invalid::Required("id.type".to_owned()));
    }
    for (value, field) in [(&given.name, "id.name"), (&given.uid, "id.uid"), (&request.key, "key")] {
        if value.is_empty() {
            return Err(Invalid::Required(field.to_owned()));
        }
    }
    let status = required(request.status, "status")?;
    if status.observed_generation.is_empty() {
        return Err(Invalid::Required("status.observed_generation".to_owned()));
    }
    for (at, condition) in status.conditions.iter().enumerate() {
        if condition.r#type.is_empty() {
            return Err(Invalid::Required(format!("status.conditions[{at}].type")));
        }
        if pb::condition::State::try_from(condition.state).is_err() {
            return Err(Invalid::State { at, given: condition.state });
        }
        let Some(reference) = &condition.resource else { continue };
        let missing = [
            ("type", reference.r#type.is_none()),
            ("tenancy", reference.tenancy.is_none()),
            ("name", reference.name.is_empty()),
        ];
        if let Some((field, _)) = missing.into_iter().find(|(_, missing)| *missing) {
            return Err(Invalid::Required(format!("status.conditions[{at}].resource.{field}")));
        }
    }
    if status.updated_at.is_some() {
        return Err(Invalid::SetByServer("status.updated_at"));
    }
    if !is_ulid(&status.observed_generation) {
        return Err(Invalid::NotUlid("status.observed_generation"));
    }
    let id = id(Some(given), "id")?;
    if request.key.len() > RESOURCE_STATUS_KEY_BYTES_MAX {
        return Err(Invalid::TooLong("key".to_owned()));
    }
    let status = Status::from(status);
    for (at, condition) in status.conditions.iter().enumerate() {
        let Some(reference) = &condition.resource else { continue };
        let field = format!("status.conditions[{at}].resource");
        name(&reference.name, format!("{field}.name"))?;
        // An empty unit is one that the referenced type lacks; Consul's references cannot express
        // it.
        tenancy(&reference.tenancy, &format!("{field}.tenancy"), Units::Names)?;
        bounded_type(&reference.type_, &format!("{field}.type"))?;
        if reference.section.len() > RESOURCE_SECTION_BYTES_MAX {
            return Err(Invalid::TooLong(format!("{field}.section")));
        }
    }
    Ok(StatusWrite { id, key: request.key, status, expected: expected(&request.version) })
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
