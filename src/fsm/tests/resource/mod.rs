//! Tests of commands about resources, without other layers around them.
//!
//! The type `demo.v2.Artist` (namespaces), `demo.v1.Artist` beside it, `demo.v1.RecordLabel`
//! (partitions) and `demo.v1.Executive` (cluster) are registered first.

mod deferred;
mod delete;
mod model;
mod reap;
mod tenancy;
mod types;
mod write;

use super::bed::{TestBed, bytes};
use headwater_storage::state::{StateReader, Table, tombstone_data, tombstone_owner};
use headwater_types::resource::{
    Any, FINALIZERS, ProposerChoices, Resource, ResourceCommand, ResourceDelete, ResourceDeletion, ResourceId,
    ResourceOutcome, ResourceReap, ResourceReaped, ResourceRefusal, ResourceWrite, ResourceWriteStatus, Scope, Status,
    Tenancy, Type, TypeName, resource_key,
};
use headwater_types::{Command, KeyRange, LogIndex, Outcome, Refusal};

pub(super) const NOW: &str = "2026-01-01T00:00:00Z";

/// Outcome of a command, or its refusal.
pub(super) type Done = Result<ResourceOutcome, ResourceRefusal>;

pub(super) fn types() -> [(Type, Scope); 4] {
    [
        (Type::new("demo", "v2", "Artist"), Scope::Namespace),
        (Type::new("demo", "v1", "Artist"), Scope::Namespace),
        (Type::new("demo", "v1", "RecordLabel"), Scope::Partition),
        (Type::new("demo", "v1", "Executive"), Scope::Cluster),
    ]
}

pub(super) fn artist(name: &str) -> ResourceId {
    ResourceId {
        uid: String::new(),
        name: name.to_owned(),
        type_: Type::new("demo", "v2", "Artist"),
        tenancy: Tenancy::new("default", "default"),
    }
}

pub(super) fn of(id: ResourceId) -> Resource {
    Resource { id, data: data("x"), ..Resource::default() }
}

pub(super) fn data(text: &str) -> Option<Any> {
    Some(Any { type_url: "type.googleapis.com/demo.v2.Artist".to_owned(), value: bytes(text) })
}

pub(super) fn with_finalizers(resource: Resource, finalizers: &str) -> Resource {
    let mut resource = resource;
    resource.metadata.insert(FINALIZERS.to_owned(), finalizers.to_owned());
    resource
}

/// A test bed with a record of the commands about resources.
pub(super) struct Store {
    pub(super) bed: TestBed,
    /// The newest chosen ULID.
    chosen: u128,
    /// Commands that [`Self::run`] applied.
    log: Vec<Command>,
}

impl Store {
    pub(super) fn empty() -> Self {
        Self { bed: TestBed::new(), chosen: 1000, log: Vec::new() }
    }

    /// A store with the types registered.
    pub(super) fn new() -> Self {
        let mut store = Self::empty();
        for (type_, scope) in types() {
            store.register(type_, scope).unwrap();
        }
        store
    }

    pub(super) fn run(&mut self, command: ResourceCommand) -> Done {
        self.log.push(Command::Resource(command.clone()));
        match self.bed.apply(Command::Resource(command)) {
            Outcome::Resource(outcome) => Ok(outcome),
            Outcome::Refused(Refusal::Resource(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn next_chosen(&mut self) -> ProposerChoices {
        self.chosen += 1_000_000;
        ProposerChoices { ulid: self.chosen, now: NOW.to_owned() }
    }

    /// A write as the node makes it.
    pub(super) fn write_command(&mut self, resource: Resource, expected: Option<u64>) -> ResourceWrite {
        let chosen = self.next_chosen().ulid;
        let type_version = self.registered(&resource.id.type_);
        ResourceWrite {
            resource,
            expected: expected.map(LogIndex),
            uid: format!("U{chosen}"),
            generation: format!("G{chosen}"),
            type_version,
            registers: None,
        }
    }

    pub(super) fn write(&mut self, resource: Resource) -> Result<Resource, ResourceRefusal> {
        self.write_if(resource, None)
    }

    pub(super) fn write_if(&mut self, resource: Resource, expected: Option<u64>) -> Result<Resource, ResourceRefusal> {
        let command = self.write_command(resource, expected);
        self.run(ResourceCommand::Write(Box::new(command))).map(written)
    }

    pub(super) fn register(&mut self, type_: Type, scope: Scope) -> Result<Resource, ResourceRefusal> {
        self.register_as(type_, scope, None)
    }

    /// Registers a type. `data` is that of the resource of the registration.
    pub(super) fn register_as(
        &mut self,
        type_: Type,
        scope: Scope,
        data: Option<Any>,
    ) -> Result<Resource, ResourceRefusal> {
        let id = ResourceId { name: TypeName::of(&type_).0, type_: Type::resource_type(), ..ResourceId::default() };
        let mut command = self.write_command(Resource { id, data, ..Resource::default() }, None);
        command.registers = Some((type_, scope));
        self.run(ResourceCommand::Write(Box::new(command))).map(written)
    }

    pub(super) fn write_status(&mut self, id: &ResourceId, key: &str, expected: Option<u64>) -> Done {
        self.run(ResourceCommand::WriteStatus(Box::new(ResourceWriteStatus {
            id: id.clone(),
            expected: expected.map(LogIndex),
            key: key.to_owned(),
            status: Status { observed_generation: "G".to_owned(), ..Status::default() },
        })))
    }

    pub(super) fn delete(&mut self, id: &ResourceId) -> Result<ResourceDeletion, ResourceRefusal> {
        self.delete_if(id, None)
    }

    pub(super) fn delete_if(
        &mut self,
        id: &ResourceId,
        expected: Option<u64>,
    ) -> Result<ResourceDeletion, ResourceRefusal> {
        let chosen = self.next_chosen();
        let command = ResourceDelete { id: id.clone(), expected: expected.map(LogIndex), chosen };
        self.run(ResourceCommand::Delete(Box::new(command))).map(|outcome| match outcome {
            ResourceOutcome::Deleted(deletion) => deletion,
            other => panic!("{other:?}"),
        })
    }

    pub(super) fn reap_step(
        &mut self,
        owner: &ResourceId,
        tombstone_version: LogIndex,
        after: bytes::Bytes,
    ) -> Result<ResourceReaped, ResourceRefusal> {
        let chosen = self.next_chosen();
        let command = ResourceReap { owner: owner.clone(), tombstone_version, after, chosen };
        self.run(ResourceCommand::Reap(Box::new(command))).map(|outcome| match outcome {
            ResourceOutcome::Reaped(reaped) => reaped,
            other => panic!("{other:?}"),
        })
    }

    /// Reaps until no tombstone is left. Returns the number of steps.
    pub(super) fn reap_all(&mut self) -> usize {
        let mut steps = 0;
        while let Some(tombstone) = self.all(&Type::tombstone()).first().cloned() {
            let owner = tombstone_owner(&tombstone).unwrap();
            let mut after = bytes::Bytes::new();
            loop {
                steps += 1;
                match self.reap_step(&owner, tombstone.version, after).unwrap().next {
                    Some(next) => after = next,
                    None => break,
                }
            }
        }
        steps
    }

    fn view<T>(&self, read: impl FnOnce(&headwater_storage::ReadView<'_>) -> T) -> T {
        let db = self.bed.store.current();
        read(&db.view().unwrap())
    }

    fn registered(&self, type_: &Type) -> LogIndex {
        let record = self.view(|view| view.type_record(&TypeName::of(type_)).unwrap());
        record.registered.map_or(LogIndex::ZERO, |registered| registered.version)
    }

    pub(super) fn read(&self, id: &ResourceId) -> Option<Resource> {
        self.view(|view| view.resource(&resource_key(id)).unwrap()).map(|(_, resource)| resource)
    }

    /// Every resource of a type.
    pub(super) fn all(&self, type_: &Type) -> Vec<Resource> {
        self.everything().into_iter().filter(|resource| resource.id.type_ == *type_).collect()
    }

    pub(super) fn everything(&self) -> Vec<Resource> {
        self.view(|view| {
            let mut scan = view.scan(Table::Resource, &KeyRange::all(), headwater_storage::state::NEWEST).unwrap();
            let mut versions = Vec::new();
            while let Some((_, version)) = scan.next().unwrap() {
                versions.push(version);
            }
            let records = view.load(&versions).unwrap();
            versions.iter().zip(records).map(|(version, record)| record.resource(version.index).unwrap()).collect()
        })
    }

    pub(super) fn owned(&self, owner: &ResourceId) -> Vec<bytes::Bytes> {
        self.view(|view| view.owned(owner, &[], usize::MAX).unwrap())
    }

    pub(super) fn unit_count(&self, partition: &str, namespace: &str) -> u64 {
        self.view(|view| view.unit_count(&Tenancy::new(partition, namespace)).unwrap())
    }

    pub(super) fn type_count(&self, type_: &Type) -> u64 {
        self.view(|view| view.type_record(&TypeName::of(type_)).unwrap()).count
    }
}

pub(super) fn written(outcome: ResourceOutcome) -> Resource {
    match outcome {
        ResourceOutcome::Written(resource) => *resource,
        other => panic!("{other:?}"),
    }
}
