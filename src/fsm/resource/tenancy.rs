//! Units of tenancy: the rules of their existence and of their deletion (spec: consul §5.4).
//!
//! A unit is a resource like any other. The default partition always exists, and so does the
//! default namespace of every partition.

use super::find_outline;
use crate::error::FsmError;
use headwater_storage::state::StateReader;
use headwater_types::resource::{DEFAULT_UNIT, ResourceId, ResourceRefusal, Scope, Tenancy, Type, WILDCARD};

/// State of the units of one tenancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitState {
    /// All units exist, and none is being deleted.
    Open,
    /// All units exist, and one of them is being deleted.
    Marked,
}

/// The state of the units of `tenancy` that `scope` has. Refuses a unit that does not exist.
pub(super) fn unit_state(state: &impl StateReader, scope: Scope, tenancy: &Tenancy) -> Result<UnitState, FsmError> {
    let mut units = UnitState::Open;
    // The default units always exist, and most resources live there.
    let in_default = tenancy.partition == DEFAULT_UNIT;
    if scope.has_partition() && !in_default {
        match is_marked(state, &partition(&tenancy.partition))? {
            Some(marked) => units = if marked { UnitState::Marked } else { units },
            None => return Err(ResourceRefusal::PartitionNotFound.into()),
        }
    }
    if scope.has_namespace() && !(in_default && tenancy.namespace == DEFAULT_UNIT) {
        match is_marked(state, &namespace(tenancy))? {
            Some(marked) => units = if marked { UnitState::Marked } else { units },
            None if tenancy.namespace == DEFAULT_UNIT => {}
            None => return Err(ResourceRefusal::NamespaceNotFound.into()),
        }
    }
    Ok(units)
}

fn is_marked(state: &impl StateReader, unit: &ResourceId) -> Result<Option<bool>, FsmError> {
    Ok(find_outline(state, unit)?.map(|stored| stored.resource.is_marked()))
}

/// The id, without uid, of the resource that represents a partition.
fn partition(name: &str) -> ResourceId {
    ResourceId { uid: String::new(), name: name.to_owned(), type_: Type::partition(), tenancy: Tenancy::default() }
}

/// The id, without uid, of the resource that represents the namespace of `tenancy`.
fn namespace(tenancy: &Tenancy) -> ResourceId {
    ResourceId {
        uid: String::new(),
        name: tenancy.namespace.clone(),
        type_: Type::namespace(),
        tenancy: Tenancy::new(&tenancy.partition, ""),
    }
}

/// The unit that a resource represents, as [`StateReader::unit_count`] takes it: a partition has
/// [`WILDCARD`] as namespace. `None` for other resources.
pub(super) fn unit_of(id: &ResourceId) -> Option<Tenancy> {
    if id.type_ == Type::partition() {
        Some(Tenancy::new(&id.name, WILDCARD))
    } else if id.type_ == Type::namespace() {
        Some(Tenancy::new(&id.tenancy.partition, &id.name))
    } else {
        None
    }
}

/// Whether a resource is a unit that can never be deleted: the default partition, or its default
/// namespace.
pub(super) fn is_default(id: &ResourceId) -> bool {
    id.name == DEFAULT_UNIT
        && (id.type_ == Type::partition() || id.type_ == Type::namespace() && id.tenancy.partition == DEFAULT_UNIT)
}
