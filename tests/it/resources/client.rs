//! A client of the resource service for tests, and the demo types: artist, album, label, executive,
//! concept.

use std::time::Duration;

use headwater::pb::headwater_v1 as registered;
use headwater::pb::pbresource as pb;
use headwater::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater::pb::pbresource::watch_event::Event;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type as FieldType};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::cluster::{Cluster, within};

/// Longest wait for an event: longer than it takes on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub use registered::resource_type::Scope;

/// A client of the resource service at one member.
#[derive(Clone)]
pub struct Client {
    inner: ResourceServiceClient<Channel>,
    /// Metadata of every request.
    metadata: Vec<(&'static str, String)>,
}

/// The message of an answer, or the status of a failed request.
pub type Done<T> = Result<T, Status>;

impl Client {
    /// A client of a running member, without metadata.
    pub fn of(cluster: &Cluster, index: usize) -> Self {
        let endpoint = tonic::transport::Endpoint::from_shared(cluster.client_url(index)).unwrap();
        let inner = ResourceServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(usize::MAX);
        Self { inner, metadata: Vec::new() }
    }

    /// A clone with one more metadata field in all its requests.
    pub fn with(&self, name: &'static str, value: impl Into<String>) -> Self {
        let mut other = self.clone();
        other.metadata.push((name, value.into()));
        other
    }

    /// A clone with linearizable reads (Consul's consistency mode "consistent").
    pub fn consistent(&self) -> Self {
        self.with("x-consul-consistency-mode", "consistent")
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in &self.metadata {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        request
    }

    pub async fn read(&self, id: pb::Id) -> Done<pb::Resource> {
        let request = self.request(pb::ReadRequest { id: Some(id) });
        let read = within("a read", self.inner.clone().read(request)).await?;
        Ok(read.into_inner().resource.unwrap())
    }

    pub async fn write(&self, resource: pb::Resource) -> Done<pb::Resource> {
        let request = self.request(pb::WriteRequest { resource: Some(resource) });
        let written = within("a write", self.inner.clone().write(request)).await?;
        Ok(written.into_inner().resource.unwrap())
    }

    pub async fn write_status(&self, request: pb::WriteStatusRequest) -> Done<pb::Resource> {
        let request = self.request(request);
        let written = within("a status", self.inner.clone().write_status(request)).await?;
        Ok(written.into_inner().resource.unwrap())
    }

    pub async fn delete(&self, id: pb::Id) -> Done<()> {
        self.delete_if(id, "").await
    }

    pub async fn delete_if(&self, id: pb::Id, version: &str) -> Done<()> {
        let request = self.request(pb::DeleteRequest { id: Some(id), version: version.to_owned() });
        within("a delete", self.inner.clone().delete(request)).await.map(|_| ())
    }

    /// Sends a list request; returns the whole response, with its metadata.
    pub async fn list_response(&self, request: pb::ListRequest) -> Done<Response<pb::ListResponse>> {
        within("a list", self.inner.clone().list(self.request(request))).await
    }

    pub async fn list(&self, type_: pb::Type, units: (&str, &str), prefix: &str) -> Done<Vec<pb::Resource>> {
        let request =
            pb::ListRequest { r#type: Some(type_), tenancy: Some(tenancy(units)), name_prefix: prefix.to_owned() };
        Ok(self.list_response(request).await?.into_inner().resources)
    }

    pub async fn owned(&self, owner: pb::Id) -> Done<Vec<pb::Resource>> {
        let request = self.request(pb::ListByOwnerRequest { owner: Some(owner) });
        let listed = within("a list by owner", self.inner.clone().list_by_owner(request)).await?;
        Ok(listed.into_inner().resources)
    }

    pub async fn judge(&self, resource: pb::Resource) -> Done<pb::Resource> {
        let request = self.request(pb::MutateAndValidateRequest { resource: Some(resource) });
        let judged = within("a judgement", self.inner.clone().mutate_and_validate(request)).await?;
        Ok(judged.into_inner().resource.unwrap())
    }

    pub async fn watch(&self, type_: pb::Type, units: Option<(&str, &str)>, prefix: &str) -> Done<Watch> {
        let request =
            pb::WatchListRequest { r#type: Some(type_), tenancy: units.map(tenancy), name_prefix: prefix.to_owned() };
        let opened = within("a watch", self.inner.clone().watch_list(self.request(request))).await?;
        Ok(Watch { events: opened.into_inner() })
    }

    /// Registers a type without a message, so that its resources have no data.
    pub async fn register(&self, type_: &pb::Type, scope: Scope) -> pb::Resource {
        self.write(registration(type_, scope, None)).await.unwrap()
    }

    /// Registers the demo types.
    pub async fn register_demo(&self) {
        for (type_, scope, message) in demo_types() {
            self.write(registration(&type_, scope, message)).await.unwrap();
        }
    }

    /// Creates the partition, unless it is `default`, and the namespace in it.
    pub async fn make_unit(&self, partition: &str, namespace: &str) {
        if partition != "default" {
            self.write(named(type_of("tenancy", "v2beta1", "Partition"), ("", ""), partition)).await.unwrap();
        }
        self.write(named(type_of("tenancy", "v2beta1", "Namespace"), (partition, ""), namespace)).await.unwrap();
    }
}

/// An open watch.
pub struct Watch {
    events: Streaming<pb::WatchEvent>,
}

/// An event of a watch. `End` is the end of the list with which the watch begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    Upsert(pb::Resource),
    Delete(pb::Resource),
    End,
}

impl Watch {
    /// The next event, with its log index; 0 for a resource of the list.
    pub async fn next_with_index(&mut self) -> Done<(Delivery, u64)> {
        let event = tokio::time::timeout(TIMEOUT, self.events.message()).await.expect("an event in time")?;
        let event = event.ok_or_else(|| Status::cancelled("the stream has ended"))?;
        let delivered = match event.event.expect("an event of a known kind") {
            Event::Upsert(upsert) => Delivery::Upsert(upsert.resource.unwrap()),
            Event::Delete(delete) => Delivery::Delete(delete.resource.unwrap()),
            Event::EndOfSnapshot(_) => Delivery::End,
        };
        Ok((delivered, event.headwater_index))
    }

    pub async fn next(&mut self) -> Delivery {
        self.next_with_index().await.unwrap().0
    }

    /// The list at the beginning of the watch, and its log index. Reads all events up to `End`.
    pub async fn list(&mut self) -> (Vec<pb::Resource>, u64) {
        let mut listed = Vec::new();
        loop {
            match self.next_with_index().await.unwrap() {
                (Delivery::Upsert(resource), 0) => listed.push(resource),
                (Delivery::End, index) => return (listed, index),
                other => panic!("{other:?} in a list"),
            }
        }
    }
}

pub fn type_of(group: &str, group_version: &str, kind: &str) -> pb::Type {
    pb::Type { group: group.to_owned(), group_version: group_version.to_owned(), kind: kind.to_owned() }
}

pub fn tenancy((partition, namespace): (&str, &str)) -> pb::Tenancy {
    pb::Tenancy { partition: partition.to_owned(), namespace: namespace.to_owned() }
}

pub fn id(type_: pb::Type, units: (&str, &str), name: &str) -> pb::Id {
    pb::Id { uid: String::new(), name: name.to_owned(), r#type: Some(type_), tenancy: Some(tenancy(units)) }
}

/// A resource with this type, these units (partition, namespace) and this name, without data.
pub fn named(type_: pb::Type, units: (&str, &str), name: &str) -> pb::Resource {
    pb::Resource { id: Some(id(type_, units, name)), ..Default::default() }
}

/// The id of a resource. Panics if it has none.
pub fn id_of(resource: &pb::Resource) -> pb::Id {
    resource.id.clone().unwrap()
}

pub fn without_uid(id: pb::Id) -> pb::Id {
    pb::Id { uid: String::new(), ..id }
}

pub fn name_of(resource: &pb::Resource) -> &str {
    &resource.id.as_ref().unwrap().name
}

pub fn names_of(resources: &[pb::Resource]) -> Vec<&str> {
    let mut names: Vec<&str> = resources.iter().map(name_of).collect();
    names.sort_unstable();
    names
}

/// Fails the test unless `result` is refused with this code and a text that has `part`.
pub fn refused<T: std::fmt::Debug>(result: Done<T>, code: Code, part: &str) {
    let status = result.expect_err(part);
    assert_eq!(status.code(), code, "{status:?}, wanted {part}");
    assert!(status.message().contains(part), "{:?} does not say {part:?}", status.message());
}

pub fn artist_type() -> pb::Type {
    type_of("demo", "v2", "Artist")
}

pub fn artist_v1_type() -> pb::Type {
    type_of("demo", "v1", "Artist")
}

pub fn label_type() -> pb::Type {
    type_of("demo", "v1", "RecordLabel")
}

pub fn executive_type() -> pb::Type {
    type_of("demo", "v1", "Executive")
}

pub fn concept_type() -> pb::Type {
    type_of("demo", "v1", "Concept")
}

pub fn album_type() -> pb::Type {
    type_of("demo", "v2", "Album")
}

/// Every demo type with its scope and its message's name; `None` for a type without data.
fn demo_types() -> Vec<(pb::Type, Scope, Option<&'static str>)> {
    vec![
        (artist_type(), Scope::Namespace, Some("demo.v2.Artist")),
        (artist_v1_type(), Scope::Namespace, Some("demo.v1.Artist")),
        (album_type(), Scope::Namespace, Some("demo.v2.Album")),
        (label_type(), Scope::Partition, Some("demo.v1.RecordLabel")),
        (executive_type(), Scope::Cluster, Some("demo.v1.Executive")),
        (concept_type(), Scope::Namespace, None),
    ]
}

/// The data of the demo types that have data: each of their messages has these fields.
#[derive(Clone, PartialEq, Message)]
pub struct Demo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub genre: String,
}

/// The registration of a type. With a message, it has rules: a name is required, and `unspecified`
/// is the default genre.
pub fn registration(type_: &pb::Type, scope: Scope, message: Option<&str>) -> pb::Resource {
    let mut content = registered::ResourceType {
        group: type_.group.clone(),
        group_version: type_.group_version.clone(),
        kind: type_.kind.clone(),
        scope: scope.into(),
        ..Default::default()
    };
    if let Some(message) = message {
        let (package, name) = message.rsplit_once('.').unwrap();
        content.message = message.to_owned();
        content.descriptor_set = descriptors(package, name).into();
        let genre = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue("unspecified".to_owned())) };
        content.defaults = Some(prost_types::Struct { fields: [("genre".to_owned(), genre)].into() });
        content.rules = vec![registered::resource_type::Rule {
            expression: "data.name != ''".to_owned(),
            message: format!("{}.name required", type_.kind.to_lowercase()),
        }];
    }
    let name = format!("{}-{}-{}", type_.group, type_.group_version, type_.kind.to_lowercase());
    let mut resource = named(type_of("headwater", "v1", "ResourceType"), ("", ""), &name);
    resource.data = Some(any("headwater.v1.ResourceType", &content));
    resource
}

pub fn descriptors(package: &str, name: &str) -> Vec<u8> {
    let field = |name: &str, number| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(FieldType::String.into()),
        json_name: Some(name.to_owned()),
        ..Default::default()
    };
    let message = DescriptorProto {
        name: Some(name.to_owned()),
        field: vec![field("name", 1), field("genre", 2)],
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some(format!("{package}.{name}.proto")),
        package: Some(package.to_owned()),
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

pub fn any(message: &str, content: &impl Message) -> prost_types::Any {
    prost_types::Any { type_url: format!("type.googleapis.com/{message}"), value: content.encode_to_vec() }
}

/// Data of an artist with this name, genre rock.
pub fn artist_data(name: &str) -> prost_types::Any {
    any("demo.v2.Artist", &Demo { name: name.to_owned(), genre: "rock".to_owned() })
}

/// An artist with data in the default partition and namespace.
pub fn artist(name: &str) -> pb::Resource {
    let mut resource = named(artist_type(), ("default", "default"), name);
    resource.data = Some(artist_data(name));
    resource
}

/// An album with data and this owner in the default partition and namespace.
pub fn album(owner: &pb::Id, name: &str) -> pb::Resource {
    let mut resource = named(album_type(), ("default", "default"), name);
    resource.owner = Some(owner.clone());
    resource.data = Some(any("demo.v2.Album", &Demo { name: name.to_owned(), genre: String::new() }));
    resource
}
