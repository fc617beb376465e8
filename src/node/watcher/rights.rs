//! The rights that following an entity needs: to read all of it, whether it exists or not (spec:
//! watcher W44 to W46).
//!
//! Owns the intervals of an entity. A part that may not be read is never left out silently: the
//! stream is refused as a whole.

use super::resources::key_range;
use super::{Entity, EntitySpace};
use crate::{Node, NodeError, RequestContext};
use headwater_types::catalog::canonical;
use headwater_types::entity::{key_of, part_of};
use headwater_types::limits::ENTITY_DEPTH_MAX;
use headwater_types::{Access, KeyRange, LogIndex, Space};

/// The intervals that the principal must be able to read for a stream about `entity`. A stream that
/// is not recursive also reveals which children have children, so it needs everything below the
/// entity.
pub(in super::super) fn wanted(entity: &Entity) -> Vec<(Space, KeyRange)> {
    match entity.space {
        EntitySpace::Kv => of_keys(&entity.name).into_iter().map(|range| (Space::Kv, range)).collect(),
        EntitySpace::Resources => vec![(Space::Resource, key_range(&entity.name))],
        EntitySpace::Services => {
            let parts = parts(&entity.name);
            let of = |space: Space, name: Option<&String>| match name {
                Some(name) => (space, KeyRange::One(space.key_of(name))),
                None => (space, KeyRange::all()),
            };
            // An instance is sent with its node.
            vec![of(Space::CatalogService, parts.first()), of(Space::CatalogNode, parts.get(1))]
        }
        EntitySpace::Nodes => {
            let range = match parts(&entity.name).first() {
                Some(name) => KeyRange::One(Space::CatalogNode.key_of(name)),
                None => KeyRange::all(),
            };
            vec![(Space::CatalogNode, range)]
        }
        // Leases belong to their keys, which may be any.
        EntitySpace::Leases => vec![(Space::Kv, KeyRange::all())],
        // As for the list of members: any authenticated principal may read it (`permit`).
        EntitySpace::Cluster => Vec::new(),
    }
}

fn of_keys(name: &str) -> Vec<KeyRange> {
    if name.is_empty() {
        return vec![KeyRange::all()];
    }
    let Ok(mut key) = key_of(name) else { return vec![KeyRange::all()] };
    let itself = KeyRange::One(key.clone().into());
    if name.split('/').count() >= ENTITY_DEPTH_MAX {
        return vec![itself];
    }
    key.push(b'/');
    vec![itself, KeyRange::prefix(key.into())]
}

fn parts(name: &str) -> Vec<String> {
    let text = |segment| part_of(segment).ok().and_then(|part| String::from_utf8(part).ok());
    let split = name.split('/').filter(|_| !name.is_empty());
    split.map(|segment| text(segment).map_or_else(|| "\0".to_owned(), |part| canonical(&part))).collect()
}

/// Checks that the principal may read all of the intervals. Without intervals, checks
/// [`Node::authorize_somebody`].
///
/// # Errors
///
/// If the principal is not authenticated where it must be, or may not read all of the intervals.
pub(in super::super) fn permit(
    node: &Node,
    ctx: &RequestContext,
    wanted: &[(Space, KeyRange)],
) -> Result<(), NodeError> {
    if wanted.is_empty() {
        return node.authorize_somebody(ctx);
    }
    if let [(space, range)] = wanted {
        return node.authorize(ctx, *space, range, Access::READ);
    }
    let wanted: Vec<_> = wanted.iter().map(|(space, range)| (*space, range, Access::READ)).collect();
    node.authorize_all(ctx, &wanted)
}

/// Whether the principal may have got its present rights only after the command at `index`. Always
/// false while nothing is judged.
pub(super) fn has_changed_since(node: &Node, ctx: &RequestContext, index: LogIndex) -> Result<bool, NodeError> {
    Ok(node.authorizer(ctx)?.has_changed_since(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::resource::{ResourceId, Tenancy, Type, resource_key};

    fn of(space: EntitySpace, name: &str) -> Vec<(Space, KeyRange)> {
        wanted(&Entity { space, name: name.to_owned(), recursive: false })
    }

    #[test]
    fn an_entity_is_its_name_and_everything_below() {
        assert_eq!(of(EntitySpace::Kv, ""), [(Space::Kv, KeyRange::all())]);
        let both = [(Space::Kv, KeyRange::One("app".into())), (Space::Kv, KeyRange::prefix("app/".into()))];
        assert_eq!(of(EntitySpace::Kv, "app"), both);
        let id = ResourceId {
            uid: String::new(),
            name: "korn".to_owned(),
            type_: Type::new("demo", "v2", "Artist"),
            tenancy: Tenancy::new("default", "default"),
        };
        let artist = [(Space::Resource, KeyRange::One(resource_key(&id)))];
        assert_eq!(of(EntitySpace::Resources, "demo/v2/Artist/default/default/korn"), artist);
        let [(_, below)] = &of(EntitySpace::Resources, "demo/v2/Artist")[..] else { panic!("one interval") };
        assert!(below.contains(&resource_key(&id)));
        assert_eq!(of(EntitySpace::Resources, ""), [(Space::Resource, KeyRange::all())]);
    }

    #[test]
    fn an_instance_is_told_with_its_node() {
        let one = |space, name: &'static str| (space, KeyRange::One(name.into()));
        assert_eq!(
            of(EntitySpace::Services, "web/n1/web-1"),
            [one(Space::CatalogService, "web"), one(Space::CatalogNode, "n1")]
        );
        assert_eq!(
            of(EntitySpace::Services, "web"),
            [one(Space::CatalogService, "web"), (Space::CatalogNode, KeyRange::all())]
        );
        assert_eq!(of(EntitySpace::Nodes, "n1"), [one(Space::CatalogNode, "n1")]);
        assert_eq!(of(EntitySpace::Leases, "0000000000000001"), [(Space::Kv, KeyRange::all())]);
        assert_eq!(of(EntitySpace::Cluster, "members"), []);
    }
}
