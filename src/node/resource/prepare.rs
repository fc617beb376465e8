//! Preparation of a write: resolves the type, fills in units, completes and validates data.

use std::sync::Arc;

use super::TypedResources;
use super::error::ResourceError;
use super::registry::KnownType;
use crate::{NodeError, RequestContext};
use headwater_proto::codec;
use headwater_schema::{SchemaError, TypeSchema, shown};
use headwater_types::limits::DESCRIPTOR_SET_BYTES_MAX;
use headwater_types::resource::{Any, DEFAULT_UNIT, Resource, Scope, Tenancy, Type, TypeName, WILDCARD, builtin_scope};
use headwater_types::{LogIndex, Refusal};

/// Largest data that is validated on the request's own thread, bytes. Data of a built-in type, or
/// of a type with rules, is validated on a blocking thread at any size.
const JUDGED_AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// A resource that is ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The resource, with units and defaults filled in.
    pub resource: Resource,
    /// The scope of the resource's type.
    pub scope: Scope,
    /// Version of the type's registration by which the resource was validated; zero for a built-in
    /// type. The write is refused if the registration has another version by then.
    pub type_version: LogIndex,
    /// The type that the resource registers, and its scope. `None` for any other resource.
    pub registers: Option<(Type, Scope)>,
}

/// Whether [`WILDCARD`] is accepted as a unit that the type's scope does not have. As a unit that
/// the scope has, it passes either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wildcards {
    Allowed,
    Refused,
}

/// Replaces an empty partition or namespace by [`DEFAULT_UNIT`] if the type's scope has that unit
/// (spec: consul §5.4). Refuses a given unit that the scope does not have; a [`WILDCARD`] there is
/// cleared instead if `wildcards` allows it. Accepts any tenancy for [`Scope::Undefined`].
pub(super) fn complete_tenancy(
    known: &KnownType,
    mut tenancy: Tenancy,
    wildcards: Wildcards,
) -> Result<Tenancy, ResourceError> {
    if known.scope == Scope::Undefined {
        return Ok(tenancy);
    }
    let units = [
        ("partition", known.scope.has_partition(), &mut tenancy.partition),
        ("namespace", known.scope.has_namespace(), &mut tenancy.namespace),
    ];
    for (unit, has, given) in units {
        if has {
            if given.is_empty() {
                DEFAULT_UNIT.clone_into(given);
            }
        } else if given.is_empty() || given == WILDCARD && wildcards == Wildcards::Allowed {
            given.clear();
        } else {
            let (scope, given) = (known.scope, given.clone());
            return Err(ResourceError::Scope { scope, type_: known.type_.clone(), unit, given });
        }
    }
    Ok(tenancy)
}

/// Returns `known`, unless only the store itself writes resources of the type.
pub(super) fn writable(known: Arc<KnownType>) -> Result<Arc<KnownType>, ResourceError> {
    if known.scope == Scope::Undefined { Err(ResourceError::Reserved(known.type_.clone())) } else { Ok(known) }
}

impl TypedResources<'_> {
    /// Validates `resource` and returns the resource to write, as far as it does not depend on the
    /// stored one.
    pub(super) async fn prepare(self, ctx: &RequestContext, mut resource: Resource) -> Result<Prepared, ResourceError> {
        let known = writable(self.resolve(ctx, &resource.id.type_).await?)?;
        resource.id.tenancy = complete_tenancy(&known, std::mem::take(&mut resource.id.tenancy), Wildcards::Refused)?;
        let (resource, registers) = if may_take_long(&known, resource.data.as_ref()) {
            let known = Arc::clone(&known);
            let judged = tokio::task::spawn_blocking(move || judge(&known, resource)).await;
            judged.map_err(|_| ResourceError::Node(NodeError::Stopped))??
        } else {
            judge(&known, resource)?
        };
        Ok(Prepared { resource, scope: known.scope, type_version: known.version, registers })
    }
}

/// Whether validation of this data could block the thread for others.
fn may_take_long(known: &KnownType, data: Option<&Any>) -> bool {
    let has_rules = known.registration.as_ref().is_none_or(|registration| !registration.rules.is_empty());
    data.is_some_and(|data| has_rules || data.value.len() > JUDGED_AT_ONCE_BYTES_MAX)
}

/// Completes and validates the data. Also returns the type and scope that the resource registers,
/// if it does.
fn judge(known: &KnownType, mut resource: Resource) -> Result<(Resource, Option<(Type, Scope)>), ResourceError> {
    let Some(schema) = known.schema() else {
        return Ok(if known.type_ == Type::resource_type() {
            let registers = judge_registration(&resource)?;
            (resource, Some(registers))
        } else {
            judge_unit(known, resource.data.as_ref())?;
            (resource, None)
        });
    };
    let schema = schema?;
    let Some(mut data) = resource.data.take() else { return Ok((resource, None)) };
    schema.complete(&mut data, &resource)?;
    resource.data = Some(data);
    Ok((resource, None))
}

fn judge_unit(known: &KnownType, data: Option<&Any>) -> Result<(), ResourceError> {
    let Some(data) = data else { return Ok(()) };
    check_message(known, data)?;
    codec::check_unit(&data.value).map_err(|error| ResourceError::Data(format!("resource.data: {error}")))
}

fn check_message(known: &KnownType, data: &Any) -> Result<(), ResourceError> {
    if data.message_name() == known.message {
        return Ok(());
    }
    Err(ResourceError::Data(format!(
        "resource.data is of wrong type: {:?}, but the type's data is {:?}",
        shown(data.message_name()),
        known.message
    )))
}

/// Validates a registration, and returns its type and scope.
fn judge_registration(resource: &Resource) -> Result<(Type, Scope), ResourceError> {
    let data = resource.data.as_ref().filter(|data| data.message_name() == "headwater.v1.ResourceType");
    let Some(data) = data else {
        return Err(ResourceError::Data("resource.data is of wrong type: it must be headwater.v1.ResourceType".into()));
    };
    let registration = codec::decode_resource_type(data.value.clone())
        .map_err(|error| ResourceError::Data(format!("resource.data: {error}")))?;
    if registration.scope == Scope::Undefined {
        return Err(ResourceError::Data("resource.data: scope is required".to_owned()));
    }
    if registration.descriptor_set.len() > DESCRIPTOR_SET_BYTES_MAX {
        return Err(SchemaError::TooLarge {
            what: "the descriptor set".to_owned(),
            size: registration.descriptor_set.len(),
            max: DESCRIPTOR_SET_BYTES_MAX,
        }
        .into());
    }
    TypeSchema::compile(&registration)?;
    if builtin_scope(&registration.type_).is_some() {
        return Err(ResourceError::BuiltIn(registration.type_));
    }
    let wanted = TypeName::of(&registration.type_).0;
    if resource.id.name != wanted {
        let given = resource.id.name.clone();
        return Err(ResourceError::RegistrationName { type_: registration.type_, wanted, given });
    }
    Ok((registration.type_, registration.scope))
}

/// Converts the refusal of a unit to the error of a write. A read reports `NotFound` instead.
pub(super) fn unit_refusal(refusal: Refusal) -> ResourceError {
    ResourceError::Node(NodeError::Refused(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::resource::{ResourceType, Rule, builtin_registrations};

    fn known(scope: Scope) -> KnownType {
        KnownType {
            type_: Type::new("demo", "v1", "Thing"),
            scope,
            message: String::new(),
            registration: None,
            version: LogIndex::ZERO,
            schema: None,
        }
    }

    #[test]
    fn rules_and_large_data_are_judged_elsewhere() {
        let rule = Rule { expression: String::new(), message: String::new() };
        let known = |rules: Option<usize>| KnownType {
            registration: rules.map(|count| {
                let [registration, ..] = builtin_registrations(b"");
                ResourceType { rules: vec![rule.clone(); count], ..registration }
            }),
            ..known(Scope::Namespace)
        };
        let data = |bytes: usize| Any { value: vec![0; bytes].into(), ..Any::default() };
        let max = JUDGED_AT_ONCE_BYTES_MAX;
        for (rules, bytes, wanted) in [
            (Some(0), None, false),
            (Some(0), Some(max), false),
            (Some(0), Some(max + 1), true),
            (Some(1), None, false),
            (Some(1), Some(0), true),
            (None, Some(0), true),
        ] {
            let found = may_take_long(&known(rules), bytes.map(data).as_ref());
            assert_eq!(found, wanted, "{rules:?} rules, {bytes:?} bytes");
        }
    }

    #[test]
    fn units_are_filled_in_and_refused_by_scope() {
        // Scope, given units, allowed wildcards; then the completed units, or the refused one.
        let (yes, no) = (Wildcards::Allowed, Wildcards::Refused);
        for (scope, given, wildcards, wanted) in [
            (Scope::Namespace, ("", ""), no, Ok(("default", "default"))),
            (Scope::Namespace, ("p", ""), no, Ok(("p", "default"))),
            (Scope::Namespace, ("", "n"), no, Ok(("default", "n"))),
            (Scope::Namespace, ("*", "*"), yes, Ok(("*", "*"))),
            (Scope::Namespace, ("*", ""), yes, Ok(("*", "default"))),
            (Scope::Partition, ("", ""), no, Ok(("default", ""))),
            (Scope::Partition, ("p", ""), no, Ok(("p", ""))),
            (Scope::Partition, ("p", "n"), no, Err("namespace")),
            (Scope::Partition, ("p", "default"), no, Err("namespace")),
            (Scope::Partition, ("p", "*"), no, Err("namespace")),
            (Scope::Partition, ("*", "*"), yes, Ok(("*", ""))),
            (Scope::Partition, ("p", "n"), yes, Err("namespace")),
            (Scope::Cluster, ("", ""), no, Ok(("", ""))),
            (Scope::Cluster, ("default", ""), no, Err("partition")),
            (Scope::Cluster, ("", "default"), no, Err("namespace")),
            (Scope::Cluster, ("*", "*"), yes, Ok(("", ""))),
            (Scope::Cluster, ("*", "n"), yes, Err("namespace")),
            (Scope::Undefined, ("", "n"), no, Ok(("", "n"))),
            (Scope::Undefined, ("*", "*"), yes, Ok(("*", "*"))),
        ] {
            let done = complete_tenancy(&known(scope), Tenancy::new(given.0, given.1), wildcards);
            match (done, wanted) {
                (Ok(tenancy), Ok((partition, namespace))) => {
                    assert_eq!(tenancy, Tenancy::new(partition, namespace), "{scope} {given:?}");
                }
                (Err(ResourceError::Scope { unit, .. }), Err(wanted)) => assert_eq!(unit, wanted, "{scope} {given:?}"),
                (done, _) => panic!("{scope} {given:?}: {done:?}"),
            }
        }
    }
}
