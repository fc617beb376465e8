//! The known types, built-in and registered, compiled to validate data.
//!
//! Owns the compiled registrations. They follow from the state: its head has the index of the last
//! change of types, and a read after a change loads them again. So a member knows a type as soon as
//! it has applied its registration, from an entry or a snapshot. Invariant: a [`TypeMap`] holds the
//! types of one view.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::error::NodeError;
use crate::{Consistency, RequestContext};
use headwater_proto::codec;
use headwater_schema::{SchemaError, TypeSchema};
use headwater_storage::state::{NEWEST, RegisteredTypes, StateHead, StateReader, StateStore, Table};
use headwater_storage::{ReadView, StorageError};
use headwater_types::resource::{Any, Resource, ResourceType, Scope, Selector, Type, TypeName, builtin_types};
use headwater_types::{LogIndex, StoreEpoch};

use super::TypedResources;
use super::error::ResourceError;

/// A type of resources that is registered or built in.
#[derive(Debug)]
pub struct KnownType {
    /// Group, version and kind.
    pub type_: Type,
    /// The scope of the resources of the type.
    pub scope: Scope,
    /// Full name of the message of its data; empty for a type without data.
    pub message: String,
    /// The content of the registration; `None` for a built-in type.
    pub registration: Option<ResourceType>,
    /// Version of its registration: the registering resource's version at its last change of
    /// content. Zero for a built-in type.
    pub(super) version: LogIndex,
    /// The schema that validates data; `None` for a built-in type. An error if an earlier version
    /// of the program accepted a registration that this one refuses.
    pub(super) schema: Option<Result<TypeSchema, SchemaError>>,
}

impl KnownType {
    /// The schema that validates data; `None` for a built-in type.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if an earlier version of the program accepted a registration that this one
    /// refuses.
    pub fn schema(&self) -> Option<Result<&TypeSchema, SchemaError>> {
        self.schema.as_ref().map(|schema| schema.as_ref().map_err(Clone::clone))
    }
}

/// All types of one state.
#[derive(Debug, Default)]
pub struct TypeMap {
    as_of: Option<Point>,
    types: HashMap<Type, Arc<KnownType>>,
}

/// The coordinates of the state that change whenever its types change.
type Point = (Option<StoreEpoch>, RegisteredTypes);

fn point(head: &StateHead) -> Point {
    (head.epoch, head.types)
}

impl TypeMap {
    /// The type with exactly this group, version and kind.
    pub fn get(&self, type_: &Type) -> Option<&Arc<KnownType>> {
        self.types.get(type_)
    }

    /// Every type, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<KnownType>> {
        self.types.values()
    }
}

#[derive(Default)]
pub(crate) struct TypeRegistry {
    current: RwLock<Arc<TypeMap>>,
    /// Held while the types are read, so that one request reads them for all.
    reading: Mutex<()>,
}

impl TypeRegistry {
    /// The types of the current state. Reads them if they have changed.
    async fn current(&self, store: &Arc<StateStore>) -> Result<Arc<TypeMap>, NodeError> {
        let fresh = |map: &TypeMap| map.as_of == Some(point(&store.current().head()));
        let known = Arc::clone(&self.current.read());
        if fresh(&known) {
            return Ok(known);
        }
        let _one = self.reading.lock().await;
        let known = Arc::clone(&self.current.read());
        if fresh(&known) {
            return Ok(known);
        }
        let store = Arc::clone(store);
        let read = tokio::task::spawn_blocking(move || store.read(|view| read_types(view, &known)));
        let map = Arc::new(read.await.map_err(|_| NodeError::Stopped)??);
        *self.current.write() = Arc::clone(&map);
        Ok(map)
    }
}

/// Reads all types. Unchanged ones are reused as compiled.
fn read_types(view: &ReadView<'_>, known: &TypeMap) -> Result<TypeMap, StorageError> {
    let as_of = Some(point(view.head()));
    let mut types: HashMap<Type, Arc<KnownType>> = HashMap::new();
    for (type_, scope, message) in builtin_types() {
        let built_in = KnownType {
            type_: type_.clone(),
            scope,
            message: message.to_owned(),
            registration: None,
            version: LogIndex::ZERO,
            schema: None,
        };
        types.insert(type_, Arc::new(built_in));
    }
    // In another lineage, the same version may be that of another registration.
    let same_lineage = known.as_of.is_some_and(|(epoch, _)| epoch == view.head().epoch);
    let mut scan = view.scan(Table::Resource, &Selector::everywhere(Type::resource_type()).range(), NEWEST)?;
    let mut versions = Vec::new();
    while let Some((_, version)) = scan.next()? {
        versions.push(version);
    }
    drop(scan);
    for (version, record) in versions.iter().zip(view.load(&versions)?) {
        let resource = record.resource(version.index)?;
        let Some(registration) = registration(&resource) else {
            tracing::error!(name = resource.id.name, "the registration of a type cannot be read");
            continue;
        };
        // Not the version of the resource: a new status changes nothing about the type.
        let registered = view.type_record(&TypeName(resource.id.name))?.registered;
        let registered = registered.map_or(version.index, |registered| registered.version);
        let old = known.types.get(&registration.type_).filter(|old| same_lineage && old.version == registered);
        let type_ = match old {
            Some(old) => Arc::clone(old),
            None => Arc::new(KnownType {
                type_: registration.type_.clone(),
                scope: registration.scope,
                message: registration.message.clone(),
                version: registered,
                schema: Some(TypeSchema::compile(&registration)),
                registration: Some(registration),
            }),
        };
        types.insert(type_.type_.clone(), type_);
    }
    Ok(TypeMap { as_of, types })
}

fn registration(resource: &Resource) -> Option<ResourceType> {
    codec::decode_resource_type(resource.data.as_ref().map(|Any { value, .. }| value.clone())?).ok()
}

impl TypedResources<'_> {
    /// The types of this node's applied state.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed.
    pub async fn types(self) -> Result<Arc<TypeMap>, NodeError> {
        self.node.inner.resource_types.current(&self.node.inner.store).await
    }

    /// The type; an unknown one is looked up again after a read barrier, because another member may
    /// have registered it a moment ago.
    pub(super) async fn resolve(self, ctx: &RequestContext, type_: &Type) -> Result<Arc<KnownType>, ResourceError> {
        if let Some(known) = self.types().await?.get(type_) {
            return Ok(Arc::clone(known));
        }
        self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        match self.types().await?.get(type_) {
            Some(known) => Ok(Arc::clone(known)),
            None => Err(ResourceError::TypeUnknown(type_.clone())),
        }
    }
}
