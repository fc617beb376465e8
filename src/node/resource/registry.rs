//! The known types, ready to validate data.
//!
//! Owns the compiled registrations. They follow from the state: its head has the index at which
//! types changed last, and a read after a change loads them anew. So a type is known on a member as
//! soon as its registration is applied there, by an entry or by a snapshot. Invariant: a
//! [`TypeMap`] holds the types of one view.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::error::NodeError;
use crate::{Consistency, Node, RequestContext};
use headwater_proto::codec;
use headwater_schema::{SchemaError, TypeSchema};
use headwater_storage::state::{NEWEST, RegisteredTypes, StateHead, StateReader, StateStore, Table};
use headwater_storage::{ReadView, StorageError};
use headwater_types::resource::{Any, Resource, ResourceType, Scope, Selector, Type, TypeName, builtin_types};
use headwater_types::{LogIndex, StoreEpoch};

use super::error::ResourceError;

/// A type that is known.
#[derive(Debug)]
pub struct KnownType {
    /// Group, version and kind.
    pub type_: Type,
    /// Where its resources live.
    pub scope: Scope,
    /// Full name of the message of its data; empty for a type without data.
    pub message: String,
    /// The content of the registration; `None` for a built-in type.
    pub registration: Option<ResourceType>,
    /// Version of its registration: that of the registering resource at the last change of its
    /// content. Zero for a built-in type.
    pub(super) version: LogIndex,
    /// The schema that validates data; an error if an earlier version of the program accepted a
    /// registration that this one does not.
    pub(super) schema: Option<Result<TypeSchema, SchemaError>>,
}

impl KnownType {
    /// The schema that validates the data, if the type was registered.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if an earlier version of the program accepted the registration, and this one
    /// does not.
    pub fn schema(&self) -> Option<Result<&TypeSchema, SchemaError>> {
        self.schema.as_ref().map(|schema| schema.as_ref().map_err(Clone::clone))
    }
}

/// All types that are known in one state.
#[derive(Debug, Default)]
pub struct TypeMap {
    as_of: Option<Point>,
    types: HashMap<Type, Arc<KnownType>>,
}

/// The coordinates of the state that change with the types.
type Point = (Option<StoreEpoch>, RegisteredTypes);

fn point(head: &StateHead) -> Point {
    (head.epoch, head.types)
}

impl TypeMap {
    /// A type by its names.
    pub fn get(&self, type_: &Type) -> Option<&Arc<KnownType>> {
        self.types.get(type_)
    }

    /// Every type, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<KnownType>> {
        self.types.values()
    }
}

#[derive(Default)]
pub(super) struct TypeRegistry {
    current: RwLock<Arc<TypeMap>>,
    /// Held while types are read anew.
    reading: Mutex<()>,
}

impl TypeRegistry {
    /// The types as of now.
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

/// Reads all types; unchanged ones are taken over as compiled.
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
    // In another lineage a version may be another registration's.
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
        // Not the resource's own version: a status of it changes nothing about the type.
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

impl Node {
    /// The types that are known on this node.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed.
    pub async fn resource_types(&self) -> Result<Arc<TypeMap>, NodeError> {
        self.inner.resources.types.current(&self.inner.store).await
    }

    /// A type. An unknown one may have been registered at another member a moment ago, so this
    /// waits for it.
    pub(super) async fn resolve(&self, ctx: &RequestContext, type_: &Type) -> Result<Arc<KnownType>, ResourceError> {
        if let Some(known) = self.resource_types().await?.get(type_) {
            return Ok(Arc::clone(known));
        }
        self.ready_to_read(ctx, Consistency::Linearizable).await?;
        match self.resource_types().await?.get(type_) {
            Some(known) => Ok(Arc::clone(known)),
            None => Err(ResourceError::TypeUnknown(type_.clone())),
        }
    }
}
