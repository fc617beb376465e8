//! Requests and answers of the resource service, to and from the types of clients.

use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::{Code, Request, Response, Status};

use crate::EPOCH;
use headwater_proto::pb::pbresource;
use headwater_types::resource::{Any, DEFAULT_UNIT, Resource, ResourceId, Scope, Tenancy, Type};

/// Makes the read linearizable: the answer has every write acknowledged before the request.
pub fn consistent<T>(request: &mut Request<T>) {
    request.metadata_mut().insert("x-consul-consistency-mode", MetadataValue::from_static("consistent"));
}

/// The message of a type.
pub fn type_to_pb(type_: &Type) -> pbresource::Type {
    pbresource::Type {
        group: type_.group.clone(),
        group_version: type_.group_version.clone(),
        kind: type_.kind.clone(),
    }
}

/// The type of a message; missing fields are empty.
pub fn type_from_pb(type_: Option<&pbresource::Type>) -> Type {
    type_.map_or_else(Type::default, |it| Type::new(&it.group, &it.group_version, &it.kind))
}

/// The message of the units of a tenancy.
pub fn tenancy_to_pb(tenancy: &Tenancy) -> pbresource::Tenancy {
    pbresource::Tenancy { partition: tenancy.partition.clone(), namespace: tenancy.namespace.clone() }
}

/// The units of a message of tenancy; missing fields are empty.
pub fn tenancy_from_pb(tenancy: Option<&pbresource::Tenancy>) -> Tenancy {
    tenancy.map_or_else(Tenancy::default, |it| Tenancy::new(&it.partition, &it.namespace))
}

/// The message of a resource's id.
pub fn id_to_pb(id: &ResourceId) -> pbresource::Id {
    pbresource::Id {
        uid: id.uid.clone(),
        name: id.name.clone(),
        r#type: Some(type_to_pb(&id.type_)),
        tenancy: Some(tenancy_to_pb(&id.tenancy)),
    }
}

/// The resource's id of a message; missing fields are empty.
pub fn id_from_pb(id: Option<&pbresource::Id>) -> ResourceId {
    id.map_or_else(ResourceId::default, |it| ResourceId {
        uid: it.uid.clone(),
        name: it.name.clone(),
        type_: type_from_pb(it.r#type.as_ref()),
        tenancy: tenancy_from_pb(it.tenancy.as_ref()),
    })
}

/// The data of a resource; `None` if the message has none.
pub fn data_from_pb(resource: &pbresource::Resource) -> Option<Any> {
    let data = resource.data.as_ref()?;
    Some(Any { type_url: data.type_url.clone(), value: data.value.clone().into() })
}

/// The id of a message without its uid: it matches the resource with any uid.
pub fn id_without_uid(id: Option<&pbresource::Id>) -> ResourceId {
    ResourceId { uid: String::new(), ..id_from_pb(id) }
}

/// Whether both are versions of one kind: their resources share names.
pub fn is_same_kind(one: &Type, other: &Type) -> bool {
    one.group == other.group && one.kind == other.kind
}

/// Whether two ids are equal but for the uid and the version of the kind.
pub fn is_same_resource(one: &ResourceId, other: &ResourceId) -> bool {
    one.name == other.name && is_same_kind(&one.type_, &other.type_) && one.tenancy == other.tenancy
}

/// Whether a read was refused because the resource is stored under another version of its type
/// (`v1`, `v2`). The caller treats the resource as absent.
pub fn is_other_version(status: &Status) -> bool {
    status.code() == Code::InvalidArgument && status.message().contains("but stored with GroupVersion=")
}

/// Adds the page size and the page token to the metadata of a request for a list. Without a token
/// the answer is the first page.
pub fn page<T>(request: &mut Request<T>, size: usize, token: Option<&str>) {
    request.metadata_mut().insert("headwater-page-size", size.into());
    if let Some(token) = token.and_then(|token| token.parse().ok()) {
        request.metadata_mut().insert("headwater-page-token", token);
    }
}

/// The token of the next page of a list, if there is one.
pub fn next_page<T>(answer: &Response<T>) -> Option<String> {
    let token = answer.metadata().get("headwater-page-token")?.to_str().ok()?;
    (!token.is_empty()).then(|| token.to_owned())
}

/// A position in a watch. A watch that resumes after it misses nothing.
#[derive(Clone, Debug, Default)]
pub struct Position {
    index: Option<u64>,
    /// The lineage that the index belongs to.
    epoch: Option<AsciiMetadataValue>,
}

impl Position {
    /// The position after an index that the caller has stored. `None`: a watch begins with a list.
    pub fn after(index: Option<u64>) -> Self {
        Self { index, epoch: None }
    }

    /// The index after which the watch resumes, if there is one.
    pub fn index(&self) -> Option<u64> {
        self.index
    }

    /// Records that a watch was opened: its indexes belong to the lineage that its answer names. An
    /// answer that names none leaves the lineage as it is.
    pub fn opened<T>(&mut self, answer: &Response<T>) {
        if let Some(epoch) = answer.metadata().get(EPOCH) {
            self.epoch = Some(epoch.clone());
        }
    }

    /// Moves the position for a received event. An event of the first list leaves it as it is: a
    /// list cannot be resumed in the middle. The end of the list moves it to the index of the list.
    /// A later event moves it to before its commit: more of the commit may follow, so a watch that
    /// resumes receives the whole commit again.
    pub fn saw(&mut self, event: &pbresource::WatchEvent) {
        use pbresource::watch_event::Event;
        match (&event.event, event.headwater_index) {
            // Events of the list itself have no index.
            (_, 0) => {}
            (Some(Event::EndOfSnapshot(_)), index) => self.index = Some(index),
            (_, index) => self.index = Some(index - 1),
        }
    }

    /// Forgets the position: the next watch begins with a list.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds the position to the request of a watch, which then resumes after it. Adds nothing
    /// without an index: the watch begins with a list.
    pub fn resume<T>(&self, request: &mut Request<T>) {
        let Some(index) = self.index else { return };
        request.metadata_mut().insert("headwater-resume-index", index.into());
        if let Some(epoch) = &self.epoch {
            request.metadata_mut().insert(EPOCH, epoch.clone());
        }
    }
}

/// The message that writes `resource` over the stored `version`; an empty `version` accepts any.
/// Fields that a write does not set are left out.
pub fn resource_to_pb(resource: &Resource, version: &str) -> pbresource::Resource {
    pbresource::Resource {
        id: Some(id_to_pb(&resource.id)),
        owner: resource.owner.as_ref().map(id_to_pb),
        version: version.to_owned(),
        metadata: resource.metadata.clone(),
        data: resource
            .data
            .as_ref()
            .map(|data| prost_types::Any { type_url: data.type_url.clone(), value: data.value.to_vec() }),
        ..Default::default()
    }
}

/// The given partition and namespace. One that is not given is `default` if resources of this scope
/// have it, else empty.
pub fn default_tenancy(scope: Scope, partition: Option<&str>, namespace: Option<&str>) -> Tenancy {
    let unit = |is_there: bool, given: Option<&str>| match given {
        Some(given) => given.to_owned(),
        None if is_there => DEFAULT_UNIT.to_owned(),
        None => String::new(),
    };
    Tenancy { partition: unit(scope.has_partition(), partition), namespace: unit(scope.has_namespace(), namespace) }
}

/// The text of an id for people: `demo.v2.Artist korn`. Its partition and namespace follow (`in
/// eu/music`) unless both are default or empty.
pub fn name(id: &ResourceId) -> String {
    let is_default = |unit: &str| unit.is_empty() || unit == DEFAULT_UNIT;
    let units = &id.tenancy;
    match (is_default(&units.partition), is_default(&units.namespace)) {
        (true, true) => format!("{} {}", id.type_, id.name),
        (false, true) if units.namespace.is_empty() => format!("{} {} in {}", id.type_, id.name, units.partition),
        _ => format!("{} {} in {}/{}", id.type_, id.name, units.partition, units.namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::pbresource::watch_event::{Delete, EndOfSnapshot, Event};

    #[test]
    fn a_watch_goes_on_before_the_commit_that_it_saw_last_and_in_its_lineage() {
        let event = |event, headwater_index| pbresource::WatchEvent { event: Some(event), headwater_index };
        let metadata = |position: &Position| {
            let mut request = Request::new(());
            position.resume(&mut request);
            let text = |name| request.metadata().get(name).map(|value| value.to_str().unwrap().to_owned());
            (text("headwater-resume-index"), text("headwater-epoch"))
        };
        let mut position = Position::default();
        assert_eq!(metadata(&position), (None, None));
        let mut answer = Response::new(());
        answer.metadata_mut().insert(EPOCH, "00ff".parse().unwrap());
        position.opened(&answer);
        assert_eq!(metadata(&position), (None, None), "there is nothing to go on after yet");
        position.saw(&event(Event::Delete(Delete::default()), 0));
        assert_eq!(position.index(), None, "a list cannot be resumed in the middle");
        position.saw(&event(Event::EndOfSnapshot(EndOfSnapshot {}), 7));
        assert_eq!(metadata(&position), (Some("7".to_owned()), Some("00ff".to_owned())), "a list is complete");
        // More of this commit may have been to come.
        position.saw(&event(Event::Delete(Delete::default()), 9));
        assert_eq!(metadata(&position), (Some("8".to_owned()), Some("00ff".to_owned())));
        position.forget();
        assert_eq!(metadata(&position), (None, None));
    }

    #[test]
    fn units_are_said_where_they_matter() {
        let id = |partition, namespace| ResourceId {
            name: "korn".into(),
            type_: Type::new("demo", "v2", "Artist"),
            tenancy: Tenancy::new(partition, namespace),
            ..Default::default()
        };
        for (partition, namespace, wanted) in [
            ("default", "default", "demo.v2.Artist korn"),
            ("", "", "demo.v2.Artist korn"),
            ("default", "music", "demo.v2.Artist korn in default/music"),
            ("eu", "default", "demo.v2.Artist korn in eu/default"),
            ("eu", "", "demo.v2.Artist korn in eu"),
        ] {
            assert_eq!(name(&id(partition, namespace)), wanted);
        }
    }

    #[test]
    fn units_that_are_not_named_are_the_default_ones() {
        for (scope, partition, namespace, wanted) in [
            (Scope::Namespace, None, None, ("default", "default")),
            (Scope::Namespace, Some("eu"), None, ("eu", "default")),
            (Scope::Partition, None, None, ("default", "")),
            (Scope::Partition, None, Some("x"), ("default", "x")),
            (Scope::Cluster, None, None, ("", "")),
            (Scope::Namespace, None, Some("*"), ("default", "*")),
        ] {
            let found = default_tenancy(scope, partition, namespace);
            assert_eq!((found.partition.as_str(), found.namespace.as_str()), wanted);
        }
    }
}
