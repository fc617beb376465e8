//! Approximate sizes of entities and changes in messages, bytes. Pages and messages end by them.

use headwater_storage::state::CatalogRow;
use headwater_types::catalog::CheckServiceNode;

/// Bytes of an entity beside its name and its value: the name of its type, versions, lengths.
const ENTITY_BYTES: usize = 128;

/// Size of an entity without its value. Its data repeats the name.
pub(super) fn entity(name: &str) -> usize {
    ENTITY_BYTES + 2 * name.len()
}

/// Size of a change without the values of its states. With `names_only` it has no states.
pub(super) fn change(name: &str, names_only: bool) -> usize {
    let states = if names_only { 0 } else { 2 * entity(name) };
    ENTITY_BYTES / 2 + name.len() + states
}

/// Size of an instance: the rows of its service, node and checks.
pub(super) fn instance(instance: &CheckServiceNode) -> usize {
    let CheckServiceNode { node, service, checks } = instance;
    let checks: usize = checks.iter().map(|check| ENTITY_BYTES + check.encode().len()).sum();
    ENTITY_BYTES + node.encode().len() + service.encode().len() + checks
}
