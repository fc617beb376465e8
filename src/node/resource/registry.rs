//! The known types, built-in and registered, compiled to validate data.
//!
//! Owns the compiled registrations. They follow from the state. The head of the state has the index
//! of the last change of types, and the first request after a change loads the registrations again.
//! So a member knows a type as soon as it has applied its registration, from an entry or a
//! snapshot. Invariant: a [`TypeMap`] holds the types of one view.

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
    /// Full name of the protobuf message of the type's data; empty for a type without data.
    pub message: String,
    /// The content of the registration; `None` for a built-in type.
    pub registration: Option<ResourceType>,
    /// Log index at which the data of the registering resource last changed. A change of its status
    /// or metadata alone does not count. Zero for a built-in type.
    pub(super) version: LogIndex,
    /// The schema that validates data; `None` for a built-in type. An error if an earlier version
    /// of the program accepted a registration that this one refuses, or if no thread could be
    /// started to compile it.
    pub(super) schema: Option<Result<TypeSchema, SchemaError>>,
}

impl KnownType {
    /// The schema that validates data; `None` for a built-in type.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if an earlier version of the program accepted a registration that this one
    /// refuses; [`SchemaError::Unavailable`] if it is not compiled yet.
    pub fn schema(&self) -> Option<Result<&TypeSchema, SchemaError>> {
        self.schema.as_ref().map(|schema| schema.as_ref().map_err(Clone::clone))
    }

    /// Whether the registration is still to be compiled, because no thread could be started for it.
    fn is_uncompiled(&self) -> bool {
        matches!(self.schema, Some(Err(SchemaError::Unavailable(_))))
    }
}

/// All types of one state.
#[derive(Debug, Default)]
pub struct TypeMap {
    as_of: Option<Point>,
    types: HashMap<Type, Arc<KnownType>>,
    /// Whether some type is still to be compiled: the next request reads the types again.
    is_partial: bool,
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
        let fresh = |map: &TypeMap| !map.is_partial && map.as_of == Some(point(&store.current().head()));
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
        let old = known.types.get(&registration.type_);
        let type_ = match old.filter(|old| same_lineage && old.version == registered && !old.is_uncompiled()) {
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
    let is_partial = types.values().any(|known| known.is_uncompiled());
    Ok(TypeMap { as_of, types, is_partial })
}

fn registration(resource: &Resource) -> Option<ResourceType> {
    codec::decode_resource_type(resource.data.as_ref().map(|Any { value, .. }| value.clone())?).ok()
}

impl TypedResources<'_> {
    /// The types of this node's applied state.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed; [`NodeError::Stopped`] if the node is stopping.
    pub async fn types(self) -> Result<Arc<TypeMap>, NodeError> {
        self.node.inner.resource_types.current(&self.node.inner.store).await
    }

    /// The known type for `type_`. If it is not found, it is looked up again after a read barrier:
    /// another member may have registered it a moment ago.
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

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_storage::state::{AppliedState, StateOptions};
    use headwater_types::Term;
    use headwater_types::resource::ResourceId;

    /// A store in which the type `demo.v1.Thing`, without data, is registered.
    fn store() -> (tempfile::TempDir, StateStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = StateStore::open(dir.path(), &StateOptions::default()).unwrap();
        let db = store.current();
        let mut txn = store.begin(&db).unwrap();
        let index = LogIndex(1);
        txn.begin_command(index, 0);
        let registration = b"\x0a\x04demo\x12\x02v1\x1a\x05Thing\x20\x03".as_slice();
        let data = Any { type_url: String::new(), value: registration.into() };
        let id = ResourceId { name: "demo-v1-thing".into(), type_: Type::resource_type(), ..ResourceId::default() };
        txn.put_resource(Resource { id, data: Some(data), ..Resource::default() }, None).unwrap();
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        txn.commit().unwrap();
        drop(db);
        (dir, store)
    }

    #[test]
    fn a_type_that_could_not_be_compiled_is_compiled_later() {
        let (_dir, store) = store();
        let type_ = Type::new("demo", "v1", "Thing");
        let read = |known: &TypeMap| store.read(|view| read_types(view, known)).unwrap();
        let compiled = read(&TypeMap::default());
        let known = Arc::clone(compiled.get(&type_).unwrap());
        assert!(matches!(known.schema(), Some(Ok(_))) && !compiled.is_partial);
        assert!(Arc::ptr_eq(&known, read(&compiled).get(&type_).unwrap()), "an unchanged type is reused");

        let uncompiled = KnownType {
            type_: type_.clone(),
            scope: known.scope,
            message: String::new(),
            registration: known.registration.clone(),
            version: known.version,
            schema: Some(Err(SchemaError::Unavailable("no thread".to_owned()))),
        };
        let types = HashMap::from([(type_.clone(), Arc::new(uncompiled))]);
        let again = read(&TypeMap { as_of: compiled.as_of, types, is_partial: true });
        assert!(matches!(again.get(&type_).unwrap().schema(), Some(Ok(_))) && !again.is_partial);
    }
}
