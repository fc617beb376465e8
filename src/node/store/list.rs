//! Entities of one target at one point, in pages.
//!
//! Owns the order of entities within a target: that of their keys where they have keys, else that
//! of their names. Invariant: a page begins right after the last entity of the page before,
//! whatever was written since, because all pages show one state.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::instance::Instances;
use super::{At, Depth, Found, StoreTarget, past, size};
use crate::watcher::space::each;
use crate::watcher::{catalog, cluster, kv, resources};
use crate::{ElementData, EntitySpace};
use headwater_storage::state::{CatalogReader, CatalogRow, StateReader, Table, node_key, on_node_key};
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::{CatalogNode, Service, canonical};
use headwater_types::entity::{name_of, relative, same_as_name};
use headwater_types::limits::{ENTITY_DEPTH_MAX, STORE_PAGE_BYTES_MAX, STORE_PAGE_DEFAULT, STORE_PAGE_MAX};
use headwater_types::{KeyRange, KeyValue, LogIndex, Resource};

/// An entity as it is, or was, at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntity {
    /// The space of the entity.
    pub space: EntitySpace,
    /// The name in the space, but for a key that is its own name, as most are.
    given_name: Option<String>,
    /// Its data; [`ElementData::Empty`] for a name that exists because of others below it.
    pub data: ElementData,
    /// Log index of its last change; zero if it is unknown.
    pub index: LogIndex,
}

impl StoreEntity {
    /// An entity with the name that is given.
    pub fn new(space: EntitySpace, name: String, data: ElementData, index: LogIndex) -> Self {
        Self { space, given_name: Some(name), data, index }
    }

    /// A key that exists.
    fn pair(pair: KeyValue, index: LogIndex) -> Self {
        let given_name = same_as_name(&pair.key).is_none().then(|| name_of(&pair.key));
        Self { space: EntitySpace::Kv, given_name, data: ElementData::Kv(pair), index }
    }

    /// The name in the space.
    pub fn name(&self) -> &str {
        match (&self.given_name, &self.data) {
            (Some(name), _) => name,
            (None, ElementData::Kv(pair)) => std::str::from_utf8(&pair.key).unwrap_or_default(),
            (None, _) => "",
        }
    }
}

/// The page that one read fills, from one or several targets.
pub(super) struct Page {
    entities: Vec<StoreEntity>,
    count_max: usize,
    bytes: usize,
    /// The cursor of the present target: its last entity in this page, else the cursor with which
    /// the page began.
    last: Vec<u8>,
    /// Whether an entity was left out.
    is_cut: bool,
}

impl Page {
    pub(super) fn new(size: usize) -> Self {
        let count_max = if size == 0 { STORE_PAGE_DEFAULT } else { size.min(STORE_PAGE_MAX) };
        Self { entities: Vec::new(), count_max, bytes: 0, last: Vec::new(), is_cut: false }
    }

    /// If entities of the present target were left out, the cursor after which the next page
    /// begins. It is that of the target's last entity in this page. If this page has none of the
    /// target, it is the one with which [`list`] began. `None` if nothing was left out. Takes the
    /// cursor: call it once for each target.
    pub(super) fn cut(&mut self) -> Option<Vec<u8>> {
        self.is_cut.then(|| std::mem::take(&mut self.last))
    }

    /// Size of names and data so far, estimated, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn into_entities(self) -> Vec<StoreEntity> {
        self.entities
    }

    fn is_full(&self) -> bool {
        self.entities.len() >= self.count_max || self.bytes >= STORE_PAGE_BYTES_MAX
    }

    /// Adds an entity with the cursor `last` and `bytes` of data. False if the page was full
    /// before: the entity is left out.
    fn push(&mut self, last: &[u8], bytes: usize, entity: StoreEntity) -> bool {
        if !self.has_room() {
            return false;
        }
        self.bytes += bytes + size::entity(entity.name());
        self.last.clear();
        self.last.extend_from_slice(last);
        self.entities.push(entity);
        true
    }

    /// As [`push`](Self::push), of a pair, whose key is the cursor.
    fn push_pair(&mut self, pair: KeyValue, index: LogIndex) -> bool {
        if !self.has_room() {
            return false;
        }
        self.last.clear();
        self.last.extend_from_slice(&pair.key);
        let bytes = pair.value.len();
        let entity = StoreEntity::pair(pair, index);
        self.bytes += bytes + size::entity(entity.name());
        self.entities.push(entity);
        true
    }

    /// Whether the page takes one more entity; if not, the page ends with one left out.
    fn has_room(&mut self) -> bool {
        self.is_cut |= self.is_full();
        !self.is_cut
    }
}

/// Adds the entities of a target after the cursor `after` to the page, until the page is full. An
/// empty cursor begins with the first entity.
pub(super) fn list(view: &ReadView<'_>, at: At, target: &StoreTarget, after: &[u8], page: &mut Page) -> Found<()> {
    page.last = after.to_vec();
    match target.space {
        EntitySpace::Kv => list_keys(view, at, target, after, page)?,
        EntitySpace::Resources => list_resources(view, at, target, after, page)?,
        EntitySpace::Services => list_services(view, at, target, after, page)?,
        EntitySpace::Nodes => list_nodes(view, at, target, after, page)?,
        EntitySpace::Leases | EntitySpace::Cluster => return list_cluster(view, at, target, after, page),
    }
    Ok(Ok(()))
}

/// The keys of the interval `range` after the key `after`. A single key is returned as it is.
fn rest_of(range: KeyRange, after: &[u8]) -> KeyRange {
    match range {
        KeyRange::Span { start, end } if start[..] <= *after => {
            let mut next = after.to_vec();
            next.push(0);
            KeyRange::Span { start: next.into(), end }
        }
        range => range,
    }
}

fn list_keys(
    view: &ReadView<'_>,
    at: At,
    target: &StoreTarget,
    after: &[u8],
    page: &mut Page,
) -> Result<(), StorageError> {
    let own = kv::key(&target.name);
    if !own.is_empty()
        && after.is_empty()
        && let Some(version) = view.lookup(Table::Kv, &own, at.lookup)?
    {
        let pair = view.load_one(&version)?.kv;
        if !page.push_pair(pair, version.index) {
            return Ok(());
        }
    }
    if target.depth == Depth::Itself {
        return Ok(());
    }
    let Some(prefix) = kv::prefix(&target.name) else { return Ok(()) };
    // At the greatest depth of names, a slash separates no further part.
    let has_directories = target.depth == Depth::Children && name_of(&prefix).split('/').count() < ENTITY_DEPTH_MAX;
    let directory = |key: &[u8]| {
        let slash = key.get(prefix.len()..)?.iter().position(|byte| *byte == b'/').filter(|_| has_directories)?;
        Some(prefix.len() + slash)
    };
    // A directory is remembered as the prefix of what is below it.
    let mut range = match after.last() == Some(&b'/') && directory(after) == Some(after.len() - 1) {
        true => match (KeyRange::prefix(prefix.clone()), headwater_types::kv::prefix_end(after)) {
            (KeyRange::Span { end, .. }, Some(start)) => KeyRange::Span { start, end },
            (_, _) => return Ok(()),
        },
        false => rest_of(KeyRange::prefix(prefix.clone()), after),
    };
    loop {
        let mut below = None;
        each(view, Table::Kv, &range, at.lookup, |record, version| {
            let Some(slash) = directory(&record.kv.key) else {
                return Ok(page.push_pair(record.kv, version.index));
            };
            let inner = record.kv.key.slice(..=slash);
            let name = name_of(&record.kv.key[..slash]);
            // A key with the same name stands for both.
            let is_named = view.lookup(Table::Kv, &inner[..slash], at.lookup)?.is_some();
            let entity = StoreEntity::new(EntitySpace::Kv, name, ElementData::Empty, LogIndex::ZERO);
            if is_named || page.push(&inner, 0, entity) {
                below = Some(inner);
            }
            Ok(false)
        })?;
        let KeyRange::Span { end, .. } = range else { return Ok(()) };
        match below.and_then(|below: Bytes| headwater_types::kv::prefix_end(&below)) {
            Some(start) => range = KeyRange::Span { start, end },
            None => return Ok(()),
        }
    }
}

fn resource_entity(resource: Resource) -> StoreEntity {
    let (name, index) = (resources::name(&resource.id), resource.version);
    StoreEntity::new(EntitySpace::Resources, name, ElementData::Resource(resource.into()), index)
}

fn list_resources(
    view: &ReadView<'_>,
    at: At,
    target: &StoreTarget,
    after: &[u8],
    page: &mut Page,
) -> Result<(), StorageError> {
    let parts = resources::parts(&target.name);
    if parts.len() > resources::PARTS || (target.depth == Depth::Itself && parts.len() < resources::PARTS) {
        return Ok(());
    }
    let range = resources::key_range(&target.name);
    if target.depth == Depth::Children && parts.len() + 1 < resources::PARTS {
        let mut children = Children::default();
        each(view, Table::Resource, &range, at.lookup, |record, version| {
            let resource = record.resource(version.index)?;
            if resources::matches(&parts, &resource) {
                children.add(&resources::name(&resource.id), &target.name);
            }
            Ok(true)
        })?;
        children.list(EntitySpace::Resources, &target.name, after, page);
        return Ok(());
    }
    let range = match range {
        KeyRange::One(_) if !after.is_empty() => return Ok(()),
        range => rest_of(range, after),
    };
    each(view, Table::Resource, &range, at.lookup, |record, version| {
        let resource = record.resource(version.index)?;
        let bytes = version.value_len as usize;
        Ok(!resources::matches(&parts, &resource) || page.push(&record.kv.key, bytes, resource_entity(resource)))
    })
}

/// Names of the children of a directory, each once.
#[derive(Default)]
struct Children(BTreeSet<String>);

impl Children {
    /// Adds the child of `root` that contains the entity `name`.
    fn add(&mut self, name: &str, root: &str) {
        if let Some(below) = relative(name, root) {
            let child = below.split('/').next().unwrap_or_default();
            if !self.0.contains(child) {
                self.0.insert(child.to_owned());
            }
        }
    }

    fn list(self, space: EntitySpace, root: &str, after: &[u8], page: &mut Page) {
        for child in self.0.into_iter().filter(|child| child.as_bytes() > after) {
            let name = if root.is_empty() { child.clone() } else { format!("{root}/{child}") };
            let entity = StoreEntity::new(space, name, ElementData::Empty, LogIndex::ZERO);
            if !page.push(child.as_bytes(), 0, entity) {
                return;
            }
        }
    }
}

fn list_services(
    view: &ReadView<'_>,
    at: At,
    target: &StoreTarget,
    after: &[u8],
    page: &mut Page,
) -> Result<(), StorageError> {
    let parts = catalog::parts(&target.name);
    let mut instances = Instances::new(view, at);
    match (&parts[..], target.depth) {
        ([service, node, id], _) => {
            if after.is_empty()
                && let Some(instance) = instances.find(node, id)?
                && canonical(&instance.service.name) == *service
            {
                let index = instances.changed_at(&instance)?;
                push_instance(page, b"-", instance, index);
            }
            return Ok(());
        }
        (_, Depth::Itself) => return Ok(()),
        (_, Depth::Children | Depth::All) => {}
    }
    let in_service = |row: &Service| parts.first().is_none_or(|service| canonical(&row.name) == *service);
    if target.depth == Depth::Children && parts.len() < 2 {
        let mut children = Children::default();
        if at.is_newest() && parts.is_empty() {
            for name in view.service_names()?.value {
                children.add(&catalog::segment(&canonical(&name.name)), "");
            }
        } else {
            each(view, Table::CatalogService, &KeyRange::all(), at.lookup, |record, version| {
                let row = record.row::<Service>(version.index)?;
                if in_service(&row) {
                    let child = if parts.is_empty() { canonical(&row.name) } else { canonical(&row.node) };
                    children.add(&catalog::segment(&child), "");
                }
                Ok(true)
            })?;
        }
        children.list(EntitySpace::Services, &target.name, after, page);
        return Ok(());
    }
    if let ([service, ..], true) = (&parts[..], at.is_newest()) {
        let on_node = parts.get(1).map(|node| on_node_key(node, ""));
        for key in view.instance_keys(service)? {
            let is_wanted = &key[..] > after && on_node.as_ref().is_none_or(|prefix| key.starts_with(prefix));
            if is_wanted && let Some(instance) = view.with_node_and_checks(std::slice::from_ref(&key))?.pop() {
                let index = instances.changed_at(&instance)?;
                if !push_instance(page, &key, instance, index) {
                    break;
                }
            }
        }
        return Ok(());
    }
    let range = parts.get(1).map_or_else(KeyRange::all, |node| KeyRange::prefix(on_node_key(node, "")));
    each(view, Table::CatalogService, &rest_of(range, after), at.lookup, |record, version| {
        let row = record.row::<Service>(version.index)?;
        if !in_service(&row) {
            return Ok(true);
        }
        match instances.complete(row, &record.kv.key)? {
            Some(instance) => {
                let index = instances.changed_at(&instance)?;
                Ok(push_instance(page, &record.kv.key, instance, index))
            }
            None => Ok(true),
        }
    })
}

fn push_instance(
    page: &mut Page,
    key: &[u8],
    instance: std::sync::Arc<headwater_types::catalog::CheckServiceNode>,
    index: LogIndex,
) -> bool {
    let bytes = size::instance(&instance);
    let name = catalog::instance_name(&instance);
    let data = ElementData::Instance(instance);
    page.push(key, bytes, StoreEntity::new(EntitySpace::Services, name, data, index))
}

fn list_nodes(
    view: &ReadView<'_>,
    at: At,
    target: &StoreTarget,
    after: &[u8],
    page: &mut Page,
) -> Result<(), StorageError> {
    let range = match (&catalog::parts(&target.name)[..], target.depth) {
        ([], Depth::Itself) => return Ok(()),
        ([], Depth::Children | Depth::All) => rest_of(KeyRange::all(), after),
        ([node], _) if after.is_empty() => KeyRange::One(node_key(node)),
        (_, _) => return Ok(()),
    };
    each(view, CatalogNode::TABLE, &range, at.lookup, |record, version| {
        let row = record.row::<CatalogNode>(version.index)?;
        let (name, bytes) = (catalog::segment(&canonical(&row.name)), version.value_len as usize);
        let data = ElementData::CatalogNode(row);
        let entity = StoreEntity::new(EntitySpace::Nodes, name, data, version.index);
        Ok(page.push(&record.kv.key, bytes, entity))
    })
}

fn list_cluster(view: &ReadView<'_>, at: At, target: &StoreTarget, after: &[u8], page: &mut Page) -> Found<()> {
    let found: Vec<(String, ElementData, LogIndex)> = match target.space {
        EntitySpace::Leases => match past::leases(view, at)? {
            Ok(leases) => {
                let lease = |(id, lease): (headwater_types::LeaseId, past::PastLease)| {
                    let data = ElementData::Lease { id, ttl_seconds: lease.ttl_seconds };
                    (cluster::name(id.get().cast_unsigned()), data, lease.granted)
                };
                leases.into_iter().map(lease).collect()
            }
            Err(error) => return Ok(Err(error)),
        },
        EntitySpace::Cluster => match past::members(view, at)? {
            Ok(members) => {
                let member = |(id, (member, index)): (headwater_types::NodeId, _)| {
                    (format!("members/{}", cluster::name(id.get())), ElementData::Member(member), index)
                };
                members.into_iter().map(member).collect()
            }
            Err(error) => return Ok(Err(error)),
        },
        EntitySpace::Kv | EntitySpace::Resources | EntitySpace::Services | EntitySpace::Nodes => Vec::new(),
    };
    let is_directory = target.space == EntitySpace::Cluster && target.name.is_empty();
    if is_directory && target.depth == Depth::Children && after.is_empty() {
        let data = ElementData::Empty;
        let directory = StoreEntity::new(target.space, "members".to_owned(), data, LogIndex::ZERO);
        page.push(b"members", 0, directory);
    }
    let mut found: Vec<_> =
        found.into_iter().filter(|(name, ..)| target.has(name) && name.as_bytes() > after).collect();
    found.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
    for (name, data, index) in found {
        let last = name.clone();
        if !page.push(last.as_bytes(), 0, StoreEntity::new(target.space, name, data, index)) {
            break;
        }
    }
    Ok(Ok(()))
}
