//! The type of the resources that `headwater bench resource` writes: one message with one field,
//! which has the value.

mod list;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type as FieldType};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use super::lease::connect;
use super::wire;
use crate::error::CliError;
use headwater_proto::pb::headwater_v1::{ResourceType, resource_type::Scope};
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater_proto::pb::pbresource::{Id, Resource, Tenancy, Type, WriteRequest};

pub(super) use list::{ResourceListArgs, run as list};

const MESSAGE: &str = "headwater.bench.Item";
const TYPE_URL: &str = "type.googleapis.com/headwater.bench.Item";

/// Data of the resources.
#[derive(Clone, PartialEq, Message)]
struct Item {
    #[prost(bytes = "bytes", tag = "1")]
    value: bytes::Bytes,
}

fn type_() -> Type {
    Type { group: "bench".to_owned(), group_version: "v1".to_owned(), kind: "Item".to_owned() }
}

/// The id of the measured resource with this name.
pub(super) fn id(name: &[u8]) -> Id {
    let tenancy = Tenancy { partition: "default".to_owned(), namespace: "default".to_owned() };
    let name = String::from_utf8_lossy(name).into_owned();
    Id { uid: String::new(), name, r#type: Some(type_()), tenancy: Some(tenancy) }
}

/// The measured resource with this name and this value.
pub(super) fn of(name: &[u8], value: &bytes::Bytes) -> Resource {
    let value = Item { value: value.clone() }.encode_to_vec();
    let data = prost_types::Any { type_url: TYPE_URL.to_owned(), value };
    Resource { id: Some(id(name)), data: Some(data), ..Resource::default() }
}

/// Registers the type of the measured resources.
pub(super) fn register(endpoints: &[String]) -> Result<(), CliError> {
    let content = ResourceType {
        group: type_().group,
        group_version: type_().group_version,
        kind: type_().kind,
        scope: Scope::Namespace.into(),
        message: MESSAGE.to_owned(),
        descriptor_set: descriptors().into(),
        ..ResourceType::default()
    };
    let data = prost_types::Any {
        type_url: "type.googleapis.com/headwater.v1.ResourceType".to_owned(),
        value: content.encode_to_vec(),
    };
    let registers =
        Type { group: "headwater".to_owned(), group_version: "v1".to_owned(), kind: "ResourceType".to_owned() };
    let id = Id { name: "bench-v1-item".to_owned(), r#type: Some(registers), ..Id::default() };
    let request = WriteRequest { resource: Some(Resource { id: Some(id), data: Some(data), ..Resource::default() }) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    runtime.block_on(async {
        let channel = connect(endpoints).await?.remove(0);
        let registered = ResourceServiceClient::new(channel).write(wire::request(request)).await;
        let failed = |status: tonic::Status| CliError::Finding(format!("the type is refused: {}", status.message()));
        registered.map(drop).map_err(failed)
    })
}

fn descriptors() -> Vec<u8> {
    let field = FieldDescriptorProto {
        name: Some("value".to_owned()),
        number: Some(1),
        label: Some(Label::Optional.into()),
        r#type: Some(FieldType::Bytes.into()),
        json_name: Some("value".to_owned()),
        ..FieldDescriptorProto::default()
    };
    let message = DescriptorProto { name: Some("Item".to_owned()), field: vec![field], ..DescriptorProto::default() };
    let file = FileDescriptorProto {
        name: Some("headwater/bench.proto".to_owned()),
        package: Some("headwater.bench".to_owned()),
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}
